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
    /// Requests that failed.
    pub failed: u64,
    /// Prompt tokens computed.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub completion_tokens: u64,
    /// Decode steps over all requests.
    pub steps: u64,
    /// `drafted[i]`: how often a draft `i + 1` behind the anchor was verified.
    pub drafted: Vec<u64>,
    /// `accepted[i]`: how often it was accepted.
    pub accepted: Vec<u64>,
    /// Cache blocks in no table.
    pub free_blocks: usize,
    /// All cache blocks.
    pub total_blocks: usize,
}

impl EngineStats {
    /// Mean tokens per decode step, the bonus token included; `None` before the first step.
    pub fn acceptance_length(&self) -> Option<f64> {
        let accepted: u64 = self.accepted.iter().sum();
        (self.steps > 0).then(|| (accepted + self.steps) as f64 / self.steps as f64)
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
