/// Probabilities of the tokens that survive the filters, by ascending token id; they sum to one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    /// Token ids, ascending.
    pub tokens: Vec<u32>,
    /// Probability of each token, positive.
    pub probs: Vec<f32>,
}

impl Distribution {
    /// All mass on `token`.
    pub fn one_hot(token: u32) -> Self {
        Self {
            tokens: vec![token],
            probs: vec![1.0],
        }
    }

    /// Probability of `token`, 0 where it is filtered out.
    pub fn probability(&self, token: u32) -> f32 {
        match self.tokens.binary_search(&token) {
            Ok(index) => self.probs[index],
            Err(_) => 0.0,
        }
    }

    /// Tokens with their probabilities, by ascending id.
    pub fn iter(&self) -> impl Iterator<Item = (u32, f32)> {
        self.tokens.iter().copied().zip(self.probs.iter().copied())
    }
}
