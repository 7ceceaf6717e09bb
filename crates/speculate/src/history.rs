use std::collections::HashMap;

/// Tokens of one sequence so far, counted for the penalties.
///
/// The output can grow and shrink at its end: verification extends it by the draft path, row by
/// row, and takes it back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    counts: HashMap<u32, Occurrences>,
    output: Vec<u32>,
}

/// How often a token occurs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Occurrences {
    pub prompt: usize,
    pub output: usize,
}

impl History {
    /// History with this prompt and no output.
    pub fn new(prompt: &[u32]) -> Self {
        let mut counts: HashMap<u32, Occurrences> = HashMap::new();
        for &token in prompt {
            counts.entry(token).or_default().prompt += 1;
        }
        Self {
            counts,
            output: Vec::new(),
        }
    }

    /// Generated tokens in order.
    pub fn output(&self) -> &[u32] {
        &self.output
    }

    /// Appends one generated token.
    pub fn push(&mut self, token: u32) {
        self.counts.entry(token).or_default().output += 1;
        self.output.push(token);
    }

    /// Takes back all generated tokens behind the first `len`.
    pub fn truncate(&mut self, len: usize) {
        let removed = self.output.split_off(len.min(self.output.len()));
        for token in removed {
            let occurrences = self
                .counts
                .get_mut(&token)
                .expect("every output token is counted: this is a bug");
            occurrences.output -= 1;
            if *occurrences == Occurrences::default() {
                self.counts.remove(&token);
            }
        }
    }

    /// How often a token occurs.
    pub(crate) fn count(&self, token: u32) -> Occurrences {
        self.counts.get(&token).copied().unwrap_or_default()
    }

    /// Every token that occurs, in no particular order.
    pub(crate) fn occurrences(&self) -> impl Iterator<Item = (u32, Occurrences)> {
        self.counts.iter().map(|(&token, &count)| (token, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taking_back_leaves_no_trace() {
        let mut history = History::new(&[3, 5, 3]);
        history.push(5);
        let before = history.clone();
        for token in [3, 9, 9, 5] {
            history.push(token);
        }
        assert_eq!(history.output(), [5, 3, 9, 9, 5]);
        let nine = history.occurrences().find(|(token, _)| *token == 9);
        assert_eq!(
            nine.map(|(_, count)| (count.prompt, count.output)),
            Some((0, 2))
        );
        history.truncate(1);
        assert_eq!(history, before);
        history.truncate(7);
        assert_eq!(history, before);
    }
}
