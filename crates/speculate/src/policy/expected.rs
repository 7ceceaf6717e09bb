use super::table::{BUDGETS, Choice};
use super::{Acceptance, Choices};

/// Tokens that steps of a sequence should give, bonus tokens included, by drafts of models.
#[derive(Clone, Debug)]
pub(super) struct Models {
    chain: Vec<f64>,
    mtp: Vec<f64>,
    /// How likely the whole chain is not accepted, and what a tree gains then, by budget.
    misses: f64,
    gains: [f64; BUDGETS.len()],
}

impl Models {
    pub fn new(own: &Acceptance, all: &Acceptance, choices: Choices) -> Self {
        let mut whole = 1.0;
        let chain = own.chain(all, choices.chain);
        let mut models = Self {
            chain: sums(chain.inspect(|&reach| whole = reach)),
            mtp: sums(own.mtp(all, choices.mtp)),
            misses: 0.0,
            gains: BUDGETS.map(|budget| own.tree_gain(all, budget, choices.chain)),
        };
        models.misses = 1.0 - whole;
        models
    }

    /// Of a lookup only what is sure.
    pub fn tokens(&self, choice: Choice) -> f64 {
        match choice {
            Choice::None | Choice::Lookup(_) => 1.0,
            Choice::Chain(drafts) => self.chain[drafts],
            Choice::Mtp(drafts) => self.mtp[drafts],
            Choice::Tree(budget) => {
                let sizes = BUDGETS.iter().zip(self.gains);
                let gain = sizes.filter(|(size, _)| **size == budget);
                let gain: f64 = gain.map(|(_, gain)| gain).sum();
                self.chain[self.chain.len() - 1] + self.misses * gain
            }
        }
    }
}

/// Expected tokens of no draft, one, two and so on, from how likely each is accepted.
fn sums(reach: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut tokens = vec![1.0];
    add_up(reach, &mut tokens);
    tokens
}

/// The same behind what is there.
pub(super) fn add_up(reach: impl Iterator<Item = f64>, sums: &mut Vec<f64>) {
    let mut tokens = sums.last().copied().unwrap_or_default();
    sums.extend(reach.map(|reach| {
        tokens += reach;
        tokens
    }));
}

/// What models and the text itself promise.
pub(super) struct Expected<'a> {
    pub models: &'a Models,
    /// Tokens by drafts of a lookup.
    pub repeat: &'a [f64],
    /// Whether the last token of the lookup ends the text, so nothing gives more if it is right. That one
    /// need not be drafted: it comes out behind the last right draft.
    pub ends: bool,
}

impl Expected<'_> {
    /// How likely so many drafts of a lookup, one at least, are all right.
    pub fn right(&self, drafts: usize) -> f64 {
        self.repeat[drafts] - self.repeat[drafts - 1]
    }

    pub fn tokens(&self, choice: Choice) -> f64 {
        let (tokens, most) = match choice {
            Choice::Lookup(drafts) => (self.repeat[drafts], 1.0 + drafts as f64),
            model => {
                let tokens = self.models.tokens(model);
                (tokens, tokens)
            }
        };
        if !self.ends {
            return tokens;
        }
        let all = self.repeat.len() - 1;
        tokens - self.right(all) * (most - all as f64).max(0.0)
    }
}
