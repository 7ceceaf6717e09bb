use std::time::Duration;

/// Totals of an engine since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Requests waiting for their turn.
    pub waiting: usize,
    /// Requests running.
    pub running: usize,
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
    /// Prompt tokens computed, those computed again included.
    pub prompt_tokens: u64,
    /// Prompt tokens taken from the prefix cache.
    pub cached_tokens: u64,
    /// Tokens generated.
    pub completion_tokens: u64,
    /// Decode steps over all requests.
    pub steps: u64,
    /// `drafted[i]`: how often a draft `i + 1` behind the anchor was verified.
    pub drafted: Vec<u64>,
    /// `accepted[i]`: how often it was accepted.
    pub accepted: Vec<u64>,
    /// Steps that running streams waited for.
    pub gaps: u64,
    /// Of these, longer than the ceiling.
    pub late_gaps: u64,
    /// The longest of these, in milliseconds.
    pub longest_gap_ms: u64,
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
        let accepted: u64 = self.accepted.iter().sum();
        (self.steps > 0).then(|| (accepted + self.steps) as f64 / self.steps as f64)
    }

    /// Counts a step that streams waited for.
    pub(crate) fn count_gap(&mut self, took: Duration, ceiling: Option<Duration>) {
        self.gaps += 1;
        self.late_gaps += u64::from(ceiling.is_some_and(|ceiling| took > ceiling));
        self.longest_gap_ms = self.longest_gap_ms.max(took.as_millis() as u64);
    }

    /// Counts one decode step of one sequence.
    pub(crate) fn count_step(&mut self, drafted: usize, accepted: usize) {
        self.steps += 1;
        if self.drafted.len() < drafted {
            self.drafted.resize(drafted, 0);
            self.accepted.resize(drafted, 0);
        }
        self.drafted[..drafted].iter_mut().for_each(|n| *n += 1);
        self.accepted[..accepted].iter_mut().for_each(|n| *n += 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acceptance_by_position() {
        let mut stats = EngineStats::default();
        assert_eq!(stats.acceptance_length(), None);
        stats.count_step(3, 2);
        stats.count_step(1, 1);
        stats.count_step(0, 0);
        stats.count_step(4, 0);
        assert_eq!(stats.drafted, [3, 2, 2, 1]);
        assert_eq!(stats.accepted, [2, 1, 0, 0]);
        assert_eq!(stats.acceptance_length(), Some(7.0 / 4.0));
    }
}
