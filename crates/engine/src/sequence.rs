use std::ops::Range;

use volley_speculate::{
    Commit, Cut, End, Error, History, Logits, Proposal, Rule, cut, distribution_of, sample, verify,
};

use crate::step::SlotUpdate;
use crate::{Request, Stop};

/// How a rank samples and accepts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampling {
    /// How drafts are accepted.
    pub rule: Rule,
    /// Ids at or above are never sampled.
    pub allowed: usize,
}

/// What a rank keeps of one sequence between steps.
pub(crate) struct Sequence {
    pub slot: usize,
    pub request: Request,
    /// Prompt and output; ends with the anchor.
    pub history: History,
    /// Tokens that the target has taken in.
    pub committed: usize,
    /// Last token that came out, not yet committed; 0 during the prompt.
    pub anchor: u32,
}

impl Sequence {
    pub fn new(slot: usize, request: &Request) -> Self {
        Self {
            slot,
            history: History::new(&request.prompt),
            request: request.clone(),
            committed: 0,
            anchor: 0,
        }
    }

    /// Tokens of the text, prompt and output.
    pub fn tokens(&self, range: Range<usize>) -> Vec<u32> {
        let prompt = self.request.prompt.iter();
        let text = prompt.chain(self.history.output());
        text.copied().skip(range.start).take(range.len()).collect()
    }

    /// Chooses the token behind the prompt from the logits of its last row, row 0.
    pub fn first_token(
        &self,
        logits: &mut dyn Logits,
        position: usize,
        sampling: Sampling,
    ) -> Result<Cut, Error> {
        let params = &self.request.sampling;
        let target = distribution_of(logits, 0, params, &self.history, sampling.allowed)?;
        Ok(self.cut(&Commit {
            keep: vec![0],
            accepted: Vec::new(),
            bonus: sample(&target, params.seed, position)?,
        }))
    }

    /// Decides over a proposal from the logits of anchor and drafts, `1 + drafts` rows: how many
    /// drafts stand, and what of them is emitted.
    pub fn verify(
        &mut self,
        proposal: &Proposal,
        logits: &mut dyn Logits,
        sampling: Sampling,
    ) -> Result<(usize, Cut), Error> {
        let params = &self.request.sampling;
        let target = |row: usize, history: &History| {
            distribution_of(logits, row, params, history, sampling.allowed)
        };
        let position = self.committed + 1;
        let history = &mut self.history;
        let commit = verify(
            proposal,
            sampling.rule,
            params.seed,
            position,
            history,
            target,
        )?;
        Ok((commit.accepted.len(), self.cut(&commit)))
    }

    fn cut(&self, commit: &Commit) -> Cut {
        let out = self.history.output().len();
        let Request {
            stop_ids,
            min_tokens,
            max_tokens,
            ..
        } = &self.request;
        let (min_left, max_left) = (min_tokens.saturating_sub(out), max_tokens - out);
        cut(commit, stop_ids, min_left, max_left)
    }

    /// Appends the tokens to the output; the last one is the new anchor.
    pub fn emit(&mut self, cut: Cut, update: &mut SlotUpdate) {
        for &token in &cut.tokens {
            self.history.push(token);
            self.anchor = token;
        }
        update.tokens = cut.tokens;
        update.stop = cut.end.map(|end| match end {
            End::Token(id) => Stop::Token(id),
            End::Length => Stop::Length,
        });
    }
}
