use volley_constrain::Matcher;
use volley_speculate::{Allowed, Distribution, Proposal, Rule};

use super::{ClosedBy, Control, RepetitionRule, Thinking};
use crate::{EngineError, Request};

/// Follows one output and says what may come next. All of it depends on the output alone, not on
/// how many tokens a step brings.
pub(crate) struct Controller {
    control: Control,
    stop_ids: Vec<u32>,
    min_tokens: usize,
    matcher: Option<Matcher>,
    phase: Phase,
    /// Output tokens taken in.
    followed: usize,
    /// What has closed the thoughts, until it is taken.
    closed_by: Option<ClosedBy>,
    repeats_at: Option<usize>,
    /// Lengths of the output behind which a single token was allowed, since they were last taken.
    forced_at: Vec<usize>,
}

/// Where the output is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// In the thoughts.
    Thinking,
    /// In tokens that come by force, the first of them at this length of the output.
    Forced { from: usize, what: Forced },
    /// In the answer.
    Answer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forced {
    Closing,
    Opening,
    Script,
}

impl Controller {
    pub fn new(request: &Request) -> Self {
        let control = request.control.clone();
        Self {
            stop_ids: request.stop_ids.clone(),
            min_tokens: request.min_tokens,
            matcher: control.constraint.as_ref().map(|c| c.matcher()),
            phase: match &control.thinking {
                _ if !control.script.is_empty() => Phase::Forced {
                    from: 0,
                    what: Forced::Script,
                },
                Some(_) => Phase::Thinking,
                None => Phase::Answer,
            },
            control,
            followed: 0,
            closed_by: None,
            repeats_at: None,
            forced_at: Vec::new(),
        }
    }

    /// Number of likeliest tokens wanted with each token's logprob, if any.
    pub fn logprobs(&self) -> Option<usize> {
        self.control.logprobs
    }

    /// What may come behind an output of this length, whatever its tokens are, unless one is forced; none
    /// where a rule is awake, which heeds the tokens.
    pub fn foreseen(&self, len: usize) -> Option<Allowed> {
        match &self.matcher {
            Some(_) if self.phase != Phase::Thinking => None,
            Some(_) => Some(Allowed::Except(self.stop_ids.clone())),
            None if len < self.min_tokens => Some(Allowed::Except(self.stop_ids.clone())),
            None => Some(Allowed::All),
        }
    }

    /// What has closed the thoughts since the last call.
    pub fn take_closed_by(&mut self) -> Option<ClosedBy> {
        self.closed_by.take()
    }

    /// Length at which the answer was found to repeat itself.
    pub fn repeats_at(&self) -> Option<usize> {
        self.repeats_at
    }

    /// Lengths of the output behind which a single token was allowed, since the last call.
    pub fn take_forced(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.forced_at)
    }

    /// What may follow an output, which extends the one followed last.
    pub fn allowed(&mut self, output: &[u32]) -> Result<Allowed, EngineError> {
        self.follow(output)?;
        let allowed = self.next()?;
        if allowed.is_single() {
            self.forced_at.push(output.len());
        }
        Ok(allowed)
    }

    fn next(&mut self) -> Result<Allowed, EngineError> {
        let forced = self.forced();
        if let Some(token) = forced.first() {
            return Ok(Allowed::Token(*token));
        }
        let answers = self.phase == Phase::Answer;
        Ok(match &mut self.matcher {
            Some(matcher) if answers => Allowed::Mask(matcher.mask()?),
            // An output that ended in its thoughts would not keep to its rule.
            Some(_) => Allowed::Except(self.stop_ids.clone()),
            None if self.followed < self.min_tokens => Allowed::Except(self.stop_ids.clone()),
            None => Allowed::All,
        })
    }

    /// Takes in what is new in an output.
    pub fn follow(&mut self, output: &[u32]) -> Result<(), EngineError> {
        for len in self.followed + 1..=output.len() {
            self.take(&output[..len])?;
            self.followed = len;
        }
        Ok(())
    }

    /// Takes in the last token of an output.
    fn take(&mut self, output: &[u32]) -> Result<(), EngineError> {
        let (len, Some(&token)) = (output.len(), output.last()) else {
            return Ok(());
        };
        match (self.phase, &self.control.thinking) {
            (Phase::Thinking, Some(thinking)) => {
                let (phase, closed_by) = self.think(thinking, output, token);
                self.phase = phase;
                self.closed_by = closed_by;
            }
            (Phase::Forced { from, what }, _) => {
                if len - from == what.tokens(&self.control).len() {
                    self.phase = Phase::Answer;
                }
            }
            _ => {
                if let Some(matcher) = &mut self.matcher {
                    matcher.take(token)?;
                }
                if self.repeats_at.is_none() && self.repeats(output) {
                    self.repeats_at = Some(len);
                }
            }
        }
        Ok(())
    }

    /// Where the output is behind a token of the thoughts.
    fn think(&self, thinking: &Thinking, output: &[u32], token: u32) -> (Phase, Option<ClosedBy>) {
        let len = output.len();
        let force = |what: Forced| match what.tokens(&self.control).is_empty() {
            true => Phase::Answer,
            false => Phase::Forced { from: len, what },
        };
        if token == thinking.close_id {
            let phase = match self.matcher {
                Some(_) => force(Forced::Opening),
                None => Phase::Answer,
            };
            return (phase, Some(ClosedBy::Model));
        }
        if thinking.budget.is_some_and(|budget| len >= budget) {
            return (force(Forced::Closing), Some(ClosedBy::Budget));
        }
        if self.repeats(output) {
            return (force(Forced::Closing), Some(ClosedBy::Repetition));
        }
        (Phase::Thinking, None)
    }

    fn repeats(&self, output: &[u32]) -> bool {
        output.len().is_multiple_of(RepetitionRule::INTERVAL)
            && self
                .control
                .repetition
                .is_some_and(|rule| rule.applies(output))
    }

    /// Tokens that come by force from here on.
    fn forced(&self) -> &[u32] {
        match self.phase {
            Phase::Forced { from, what } => &what.tokens(&self.control)[self.followed - from..],
            _ => &[],
        }
    }

    /// Whether a chain of so many drafts behind the output followed last fits whatever its tokens are:
    /// [`Controller::refine`] would leave it alone.
    pub fn fits(&self, drafts: usize) -> bool {
        match (self.phase, &self.control.thinking) {
            _ if !self.forced().is_empty() => false,
            (Phase::Thinking, Some(thinking)) => thinking
                .budget
                .is_none_or(|budget| budget - self.followed > drafts),
            _ => self.matcher.is_none(),
        }
    }

    /// Whether nothing has a say in the next tokens, at most so many, whatever they are, but stop ids and the
    /// allowance.
    pub fn leaves(&self, output: &[u32], tokens: usize) -> bool {
        let budget = match (self.phase, &self.control.thinking) {
            (Phase::Thinking, Some(thinking)) => thinking.budget,
            _ => None,
        };
        let repetition = self.control.repetition;
        self.matcher.is_none()
            && self.forced().is_empty()
            && output.len() >= self.min_tokens
            && budget.is_none_or(|budget| budget >= output.len() + tokens)
            && !repetition.is_some_and(|rule| rule.may_apply(output, tokens))
    }

    /// Makes a chain of drafts fit what may come behind `output`: forced tokens are free drafts,
    /// and nothing stands behind a draft that cannot come.
    pub fn refine(
        &mut self,
        output: &[u32],
        proposal: &mut Proposal,
        most: usize,
        rule: Rule,
    ) -> Result<(), EngineError> {
        if proposal.parents.is_some() {
            return Ok(());
        }
        self.follow(output)?;
        let forced = self.forced();
        if !forced.is_empty() {
            replace(proposal, 0, forced, most);
            return Ok(());
        }
        if let (Phase::Thinking, Some(thinking)) = (self.phase, &self.control.thinking) {
            let left = thinking.budget.map(|budget| budget - self.followed);
            if let Some(left) = left.filter(|left| *left <= proposal.tokens.len())
                && !proposal.tokens[..left].contains(&thinking.close_id)
            {
                replace(proposal, left, &thinking.closing, most);
            }
            return Ok(());
        }
        let Some(matcher) = &mut self.matcher else {
            return Ok(());
        };
        let valid = matcher.count_valid(&proposal.tokens)?;
        // A draft of its own distribution is part of the residual rule, also when it cannot come.
        if valid == proposal.tokens.len() || rule == Rule::Residual {
            return Ok(());
        }
        let mut ahead = matcher.clone();
        for &token in &proposal.tokens[..valid] {
            ahead.take(token)?;
        }
        replace(proposal, valid, &ahead.forced(), most);
        Ok(())
    }
}

impl Forced {
    fn tokens(self, control: &Control) -> &[u32] {
        let thinking = control.thinking.as_ref();
        match self {
            Self::Closing => thinking.map_or(&[], |thinking| &thinking.closing),
            Self::Opening => thinking.map_or(&[], |thinking| &thinking.opening),
            Self::Script => &control.script,
        }
    }
}

/// Keeps the first `keep` drafts and puts sure ones behind them, at most `most` in all.
fn replace(proposal: &mut Proposal, keep: usize, sure: &[u32], most: usize) {
    proposal.tokens.truncate(keep);
    proposal.tokens.extend(sure);
    proposal.tokens.truncate(most);
    if let Some(distributions) = &mut proposal.distributions {
        distributions.truncate(keep);
        distributions.extend(sure.iter().map(|token| Distribution::one_hot(*token)));
        distributions.truncate(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request that thinks until this many tokens, and may not end before it has said so many.
    fn controller(budget: Option<usize>, min_tokens: usize) -> Controller {
        let mut request = Request::new(vec![1], 100);
        request.min_tokens = min_tokens;
        request.control.thinking = Some(Thinking {
            close_id: 9,
            budget,
            closing: vec![8, 9],
            opening: vec![7],
        });
        Controller::new(&request)
    }

    #[test]
    fn what_is_left_alone_may_become_anything() {
        let mut left = 0;
        for budget in [None, Some(5), Some(12)] {
            for min_tokens in [0, 4] {
                for said in 0..15 {
                    for closed in [None, Some(2)] {
                        let mut output: Vec<u32> = (20..20 + said).collect();
                        if let Some(close) = closed.and_then(|at: usize| output.get_mut(at)) {
                            *close = 9;
                        }
                        for tokens in 1..10 {
                            let mut controller = controller(budget, min_tokens);
                            controller.follow(&output).expect("no rule");
                            let leaves = controller.leaves(&output, tokens);
                            left += usize::from(leaves);
                            // What comes behind all but the last of them is still chosen in the same step.
                            let mut all = true;
                            for next in 0..tokens {
                                let mut text = output.clone();
                                text.extend(40..40 + next as u32);
                                let allowed = controller.allowed(&text).expect("no rule");
                                all &= allowed == Allowed::All;
                            }
                            assert!(
                                all == leaves,
                                "{budget:?} {min_tokens} {output:?} {tokens} {leaves}"
                            );
                        }
                    }
                }
            }
        }
        assert!(left > 500, "{left}");
    }
}
