use std::time::Duration;

use volley_speculate::Method;

use crate::step::SlotUpdate;

/// How drafts did: of a request, or of an engine since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DraftStats {
    /// Steps that drafted.
    pub drafts: u64,
    /// Drafts verified, all nodes of trees counted.
    pub draft_tokens: u64,
    /// Drafts accepted.
    pub accepted_tokens: u64,
    /// `drafted[i]`: how often a draft `i + 1` behind the anchor was verified.
    pub drafted: Vec<u64>,
    /// `accepted[i]`: how often one was accepted.
    pub accepted: Vec<u64>,
    /// Decode steps by method of drafting.
    pub methods: MethodSteps,
}

/// Decode steps by method of drafting; none for steps without drafts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MethodSteps([u64; Method::ALL.len()]);

impl MethodSteps {
    /// Steps of a method.
    pub fn of(&self, method: Method) -> u64 {
        self.0[method as usize]
    }

    /// The method of most steps.
    pub fn most(&self) -> Method {
        let methods = Method::ALL.into_iter();
        methods
            .max_by_key(|&method| self.of(method))
            .unwrap_or_default()
    }
}

impl DraftStats {
    /// Counts what another one has counted.
    pub fn add(&mut self, other: &Self) {
        self.drafts += other.drafts;
        self.draft_tokens += other.draft_tokens;
        self.accepted_tokens += other.accepted_tokens;
        let depth = self.drafted.len().max(other.drafted.len());
        self.drafted.resize(depth, 0);
        self.accepted.resize(depth, 0);
        add_all(&mut self.drafted, &other.drafted);
        add_all(&mut self.accepted, &other.accepted);
        add_all(&mut self.methods.0, &other.methods.0);
    }

    /// Counts a decode step.
    pub(crate) fn take(&mut self, update: &SlotUpdate) {
        self.methods.0[update.method as usize] += 1;
        self.drafts += u64::from(update.drafted > 0);
        self.draft_tokens += update.drafted as u64;
        self.accepted_tokens += update.accepted as u64;
        if self.drafted.len() < update.depth {
            self.drafted.resize(update.depth, 0);
            self.accepted.resize(update.depth, 0);
        }
        self.drafted[..update.depth]
            .iter_mut()
            .for_each(|n| *n += 1);
        self.accepted[..update.accepted]
            .iter_mut()
            .for_each(|n| *n += 1);
    }
}

fn add_all(sums: &mut [u64], values: &[u64]) {
    sums.iter_mut()
        .zip(values)
        .for_each(|(sum, value)| *sum += value);
}

/// Totals of an engine since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Requests waiting for their turn.
    pub waiting: usize,
    /// Requests running.
    pub running: usize,
    /// Of these, those that lost their blocks and wait for room.
    pub paused: usize,
    /// Requests that ended with a stop token or by length.
    pub finished: u64,
    /// Requests whose receiver was dropped.
    pub cancelled: u64,
    /// Of these, before they ran.
    pub cancelled_waiting: u64,
    /// Of these, before their first token.
    pub cancelled_prefill: u64,
    /// Of these, later.
    pub cancelled_decode: u64,
    /// Requests that failed.
    pub failed: u64,
    /// How often a running request lost its blocks to one before it.
    pub preempted: u64,
    /// Prompt tokens of requests that have their first token.
    pub prompt_tokens: u64,
    /// Of these, taken from the prefix cache.
    pub cached_prompt_tokens: u64,
    /// Tokens of prompts computed, those computed again included.
    pub computed_tokens: u64,
    /// Prompt tokens looked up in the prefix cache.
    pub queried_tokens: u64,
    /// Of these, found.
    pub cached_tokens: u64,
    /// Tokens generated.
    pub completion_tokens: u64,
    /// Decode steps over all requests.
    pub steps: u64,
    /// Steps that running streams waited for.
    pub gaps: u64,
    /// Of these, longer than the ceiling.
    pub late_gaps: u64,
    /// The longest of these, in milliseconds.
    pub longest_gap_ms: u64,
    /// How drafts did.
    pub speculation: DraftStats,
    /// Cache blocks that no running request holds; kept prefixes give theirs up when needed.
    pub free_blocks: usize,
    /// Of these, blocks of kept prefixes.
    pub cached_blocks: usize,
    /// Kept prefixes.
    pub checkpoints: usize,
    /// All cache blocks.
    pub total_blocks: usize,
}

impl EngineStats {
    /// Mean tokens per decode step, the bonus token included; `None` before the first step.
    pub fn acceptance_length(&self) -> Option<f64> {
        let accepted = self.speculation.accepted_tokens;
        (self.steps > 0).then(|| (accepted + self.steps) as f64 / self.steps as f64)
    }

    /// Counts a step that streams waited for.
    pub(crate) fn count_gap(&mut self, took: Duration, ceiling: Option<Duration>) {
        self.gaps += 1;
        self.late_gaps += u64::from(ceiling.is_some_and(|ceiling| took > ceiling));
        self.longest_gap_ms = self.longest_gap_ms.max(took.as_millis() as u64);
    }

    /// Counts one decode step of one sequence.
    pub(crate) fn count_step(&mut self, update: &SlotUpdate) {
        self.steps += 1;
        self.speculation.take(update);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acceptance_by_position() {
        let mut stats = EngineStats::default();
        assert_eq!(stats.acceptance_length(), None);
        let mut count = |method, drafted, depth, accepted| {
            stats.count_step(&SlotUpdate {
                method,
                drafted,
                depth,
                accepted,
                ..SlotUpdate::default()
            });
        };
        count(Method::Ddtree, 9, 3, 2);
        count(Method::Dflash, 1, 1, 1);
        count(Method::None, 0, 0, 0);
        count(Method::Dflash, 4, 4, 0);
        let drafts = &stats.speculation;
        assert_eq!(drafts.drafted, [3, 2, 2, 1]);
        assert_eq!(drafts.accepted, [2, 1, 0, 0]);
        assert_eq!(
            (drafts.drafts, drafts.draft_tokens, drafts.accepted_tokens),
            (3, 14, 3)
        );
        assert_eq!(drafts.methods.of(Method::Dflash), 2);
        assert_eq!(drafts.methods.most(), Method::Dflash);
        let mut twice = DraftStats::default();
        twice.add(drafts);
        assert_eq!(&twice, drafts);
        twice.add(drafts);
        assert_eq!((twice.drafts, twice.draft_tokens), (6, 28));
        assert_eq!(twice.drafted, [6, 4, 4, 2]);
        assert_eq!(twice.methods.of(Method::Dflash), 4);
        assert_eq!(stats.acceptance_length(), Some(7.0 / 4.0));
    }
}
