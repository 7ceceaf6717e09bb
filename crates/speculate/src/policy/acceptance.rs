/// How drafts did lately, by method.
#[derive(Clone, Debug, Default)]
pub struct Acceptance {
    chain: Positions,
    mtp: Positions,
    /// Tokens that a tree of a budget had beyond its first path, per step.
    trees: Vec<(usize, Rate)>,
    repeats: Repeats,
}

/// How lookups did, by length of the repeat.
#[derive(Clone, Debug, Default)]
pub struct Repeats {
    rates: [Rate; REPEATS.len()],
}

/// Least lengths of classes of repeats, and the share of drafts behind them that is right before
/// anything is known.
const REPEATS: [(usize, f64); 6] = [
    (1, 0.2),
    (2, 0.4),
    (3, 0.55),
    (5, 0.7),
    (9, 0.85),
    (17, 0.93),
];
/// Acceptance of a draft behind accepted ones before anything is known.
const DRAFT: f64 = 0.8;
/// Tokens that a tree is expected to gain before it was tried.
const TREE: f64 = 0.8;
/// Observations that what is known of all sequences counts for.
const TRUST: f64 = 3.0;

/// A mean that forgets: the last observations count most.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    sum: f64,
    count: f64,
}

impl Rate {
    const KEEP: f64 = 0.95;

    fn add(&mut self, sum: f64, count: f64) {
        let keep = Self::KEEP.powf(count.max(1.0));
        self.sum = self.sum * keep + sum;
        self.count = self.count * keep + count;
    }

    /// The mean, drawn to `prior` as long as little is known.
    fn mean(&self, prior: f64) -> f64 {
        (self.sum + TRUST * prior) / (self.count + TRUST)
    }
}

/// For each position of a chain: how often its draft is accepted when those before it are.
#[derive(Clone, Debug, Default)]
struct Positions {
    rates: Vec<Rate>,
}

impl Positions {
    fn take(&mut self, drafted: usize, accepted: usize) {
        let judged = drafted.min(accepted + 1);
        if self.rates.len() < judged {
            self.rates.resize(judged, Rate::default());
        }
        for (index, rate) in self.rates[..judged].iter_mut().enumerate() {
            rate.add(f64::from(index < accepted), 1.0);
        }
    }

    fn rate(&self, index: usize, prior: f64) -> f64 {
        match self.rates.get(index) {
            Some(rate) => rate.mean(prior),
            None => prior,
        }
    }

    /// Expected tokens of a step with `drafts` drafts, the bonus token included.
    fn tokens(&self, all: &Self, drafts: usize) -> f64 {
        let mut reach = 1.0;
        let mut tokens = 1.0;
        for index in 0..drafts {
            reach *= self.rate(index, all.rate(index, DRAFT));
            tokens += reach;
        }
        tokens
    }
}

impl Acceptance {
    pub(super) fn take_chain(&mut self, drafted: usize, accepted: usize) {
        self.chain.take(drafted, accepted);
    }

    pub(super) fn take_mtp(&mut self, drafted: usize, accepted: usize) {
        self.mtp.take(drafted, accepted);
    }

    pub(super) fn take_tree(&mut self, budget: usize, depth: usize, accepted: usize, spine: usize) {
        self.chain.take(depth, spine);
        let gain = (accepted - spine) as f64;
        match self.trees.iter_mut().find(|(of, _)| *of == budget) {
            Some((_, rate)) => rate.add(gain, 1.0),
            None => self.trees.push((
                budget,
                Rate {
                    sum: gain,
                    count: 1.0,
                },
            )),
        }
    }

    /// Compares what a lookup drafted, or would have, with what came out.
    pub(super) fn take_repeat(&mut self, repeated: usize, drafts: &[u32], tokens: &[u32]) {
        let pairs = drafts.iter().zip(tokens);
        let right = pairs.take_while(|(draft, token)| draft == token).count();
        let judged = (right + 1).min(drafts.len()).min(tokens.len());
        if let Some(class) = class(repeated) {
            self.repeats.rates[class].add(right as f64, judged as f64);
        }
    }

    pub(super) fn chain_tokens(&self, all: &Self, drafts: usize) -> f64 {
        self.chain.tokens(&all.chain, drafts)
    }

    pub(super) fn mtp_tokens(&self, all: &Self, drafts: usize) -> f64 {
        self.mtp.tokens(&all.mtp, drafts)
    }

    pub(super) fn tree_tokens(&self, all: &Self, budget: usize) -> f64 {
        let depth = self.chain.rates.len().max(all.chain.rates.len());
        let prior = all.tree(budget).map_or(TREE, |rate| rate.mean(TREE));
        let gain = self.tree(budget).map_or(prior, |rate| rate.mean(prior));
        self.chain_tokens(all, depth.min(budget)) + gain
    }

    fn tree(&self, budget: usize) -> Option<&Rate> {
        let found = self.trees.iter().find(|(of, _)| *of == budget);
        found.map(|(_, rate)| rate)
    }

    pub(super) fn repeat_tokens(&self, all: &Self, repeated: usize, drafts: usize) -> f64 {
        let Some(class) = class(repeated) else {
            return 1.0;
        };
        let prior = all.repeats.rates[class].mean(REPEATS[class].1);
        let right = self.repeats.rates[class].mean(prior);
        (0..=drafts as i32).map(|n| right.powi(n)).sum()
    }
}

fn class(repeated: usize) -> Option<usize> {
    REPEATS.iter().rposition(|&(least, _)| repeated >= least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_judged_as_far_as_they_were_reached() {
        let mut own = Acceptance::default();
        let all = Acceptance::default();
        assert!((own.chain_tokens(&all, 2) - (1.0 + 0.8 + 0.64)).abs() < 1e-9);
        for _ in 0..200 {
            own.take_chain(4, 2);
        }
        // The third draft is always wrong; of the fourth nothing is known, and nothing follows it.
        let tokens = own.chain_tokens(&all, 4);
        assert!((2.7..3.2).contains(&tokens), "{tokens}");
        assert_eq!(own.chain.rates.len(), 3);
    }

    #[test]
    fn what_others_saw_is_where_a_sequence_starts() {
        let mut all = Acceptance::default();
        for _ in 0..200 {
            all.take_mtp(3, 0);
        }
        assert!(Acceptance::default().mtp_tokens(&all, 3) < 1.3);
    }

    #[test]
    fn a_tree_is_the_chain_and_its_gain() {
        let (mut own, all) = (Acceptance::default(), Acceptance::default());
        for _ in 0..200 {
            own.take_tree(22, 4, 3, 2);
        }
        let gain = own.tree_tokens(&all, 22) - own.chain_tokens(&all, 3);
        assert!((gain - 1.0).abs() < 0.1, "{gain}");
    }

    #[test]
    fn repeats_are_judged_by_what_came_out() {
        let (mut own, all) = (Acceptance::default(), Acceptance::default());
        for _ in 0..100 {
            own.take_repeat(4, &[1, 2, 3, 4], &[1, 9]);
            own.take_repeat(40, &[1, 2, 3, 4], &[1, 2, 3]);
        }
        assert!((1.9..2.2).contains(&own.repeat_tokens(&all, 3, 15)));
        assert!(own.repeat_tokens(&all, 17, 15) > 13.0);
        assert_eq!(own.repeat_tokens(&all, 0, 15), 1.0);
        // No repeat, nothing to learn.
        own.take_repeat(0, &[], &[1]);
    }
}
