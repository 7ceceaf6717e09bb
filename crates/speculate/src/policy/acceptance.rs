/// How drafts did lately, by method.
#[derive(Clone, Debug, Default)]
pub struct Acceptance {
    chain: Positions,
    mtp: Positions,
    trees: Rate,
    repeats: [Positions; REPEATS.len()],
    scope: Scope,
}

/// Whose drafts are counted, which says how soon they are forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// One sequence, which may come to a passage of another kind.
    #[default]
    Sequence,
    /// All that an engine ran.
    Engine,
}

impl Scope {
    /// What an observation still counts for after the next one.
    fn keep(self) -> f64 {
        match self {
            Self::Sequence => 0.95,
            Self::Engine => 0.995,
        }
    }
}

/// Least lengths of classes of repeats, and how often each token behind them is right before
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
/// Tokens that a tree of endless size gains where its chain misses, before one was tried.
const TREE: f64 = 2.0;
/// Nodes beyond the chain that bring half of that; as many more bring half of the rest.
const HALF: f64 = 16.0;
/// Observations that what is known of all sequences counts for.
const TRUST: f64 = 3.0;

/// A mean that forgets: the last observations count most.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    sum: f64,
    count: f64,
}

impl Rate {
    fn add(&mut self, scope: Scope, sum: f64, count: f64) {
        let keep = scope.keep();
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
    /// Of a chain's first `judged` drafts the first `accepted` were right, and no more.
    fn take(&mut self, scope: Scope, judged: usize, accepted: usize) {
        let judged = judged.min(accepted + 1);
        if self.rates.len() < judged {
            self.rates.resize(judged, Rate::default());
        }
        for (index, rate) in self.rates[..judged].iter_mut().enumerate() {
            rate.add(scope, f64::from(index < accepted), 1.0);
        }
    }

    fn rate(&self, index: usize, prior: f64) -> f64 {
        match self.rates.get(index) {
            Some(rate) => rate.mean(prior),
            None => prior,
        }
    }

    /// For each of `drafts` positions how likely it is reached and accepted.
    fn reach(&self, all: &Self, drafts: usize, prior: f64) -> impl Iterator<Item = f64> {
        (0..drafts).scan(1.0, move |reach, index| {
            *reach *= self.rate(index, all.rate(index, prior));
            Some(*reach)
        })
    }

    /// Expected tokens of a step with `drafts` drafts, the bonus token included.
    fn tokens(&self, all: &Self, drafts: usize, prior: f64) -> f64 {
        1.0 + self.reach(all, drafts, prior).sum::<f64>()
    }
}

impl Acceptance {
    /// Nothing known yet.
    pub fn new(scope: Scope) -> Self {
        Self {
            scope,
            ..Self::default()
        }
    }

    pub(super) fn take_chain(&mut self, drafted: usize, accepted: usize) {
        self.chain.take(self.scope, drafted, accepted);
    }

    pub(super) fn take_mtp(&mut self, drafted: usize, accepted: usize) {
        self.mtp.take(self.scope, drafted, accepted);
    }

    /// A tree teaches what a chain would have done, and where that misses, what its other nodes
    /// are for.
    pub(super) fn take_tree(&mut self, budget: usize, depth: usize, accepted: usize, spine: usize) {
        self.take_chain(depth, spine);
        if spine < depth {
            let gain = accepted.saturating_sub(spine) as f64;
            self.trees.add(self.scope, gain, spread(budget, depth));
        }
    }

    /// Compares what a lookup drafted, or would have, with what came out.
    pub(super) fn take_repeat(&mut self, repeated: usize, drafts: &[u32], tokens: &[u32]) {
        let pairs = drafts.iter().zip(tokens);
        let judged = pairs.len();
        let right = pairs.take_while(|(draft, token)| draft == token).count();
        if let Some(class) = class(repeated) {
            self.repeats[class].take(self.scope, judged, right);
        }
    }

    pub(super) fn chain_tokens(&self, all: &Self, drafts: usize) -> f64 {
        self.chain.tokens(&all.chain, drafts, DRAFT)
    }

    pub(super) fn mtp_tokens(&self, all: &Self, drafts: usize) -> f64 {
        self.mtp.tokens(&all.mtp, drafts, DRAFT)
    }

    /// Of a tree whose chains have up to `depth` drafts.
    pub(super) fn tree_tokens(&self, all: &Self, budget: usize, depth: usize) -> f64 {
        let chain = depth.min(budget);
        let whole = self.chain.reach(&all.chain, chain, DRAFT).last();
        let misses = 1.0 - whole.unwrap_or(1.0);
        let gain = self.trees.mean(all.trees.mean(TREE));
        self.chain_tokens(all, chain) + misses * gain * spread(budget, depth)
    }

    pub(super) fn repeat_tokens(&self, all: &Self, repeated: usize, drafts: usize) -> f64 {
        let Some(class) = class(repeated) else {
            return 1.0;
        };
        self.repeats[class].tokens(&all.repeats[class], drafts, REPEATS[class].1)
    }
}

/// Share of what nodes beyond the chain can gain that so many of them do: best first, so the
/// first ones bring most.
fn spread(budget: usize, depth: usize) -> f64 {
    1.0 - (-(budget.saturating_sub(depth) as f64) / HALF).exp2()
}

fn class(repeated: usize) -> Option<usize> {
    REPEATS.iter().rposition(|&(least, _)| repeated >= least)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both() -> (Acceptance, Acceptance) {
        (Acceptance::default(), Acceptance::new(Scope::Engine))
    }

    #[test]
    fn positions_are_judged_as_far_as_they_were_reached() {
        let (mut own, all) = both();
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
        let (own, mut all) = both();
        for _ in 0..200 {
            all.take_mtp(3, 0);
        }
        assert!(own.mtp_tokens(&all, 3) < 1.3);
    }

    #[test]
    fn an_engine_forgets_later_than_a_sequence() {
        let (mut own, mut all) = both();
        for acceptance in [&mut own, &mut all] {
            (0..100).for_each(|_| acceptance.take_chain(1, 1));
            (0..20).for_each(|_| acceptance.take_chain(1, 0));
        }
        let nobody = Acceptance::default();
        assert!(own.chain_tokens(&nobody, 1) < 1.5);
        assert!(all.chain_tokens(&nobody, 1) > 1.7);
    }

    #[test]
    fn a_tree_is_the_chain_and_its_gain() {
        let (mut own, all) = both();
        for _ in 0..200 {
            own.take_tree(22, 4, 3, 2);
        }
        let gain = |budget| own.tree_tokens(&all, budget, 4) - own.chain_tokens(&all, 4);
        assert!((gain(22) - 1.0).abs() < 0.1, "{}", gain(22));
        // What one size teaches holds for all: less for fewer nodes, not much for many more.
        assert!((0.0..0.1).contains(&gain(5)), "{}", gain(5));
        assert!((1.0..2.0).contains(&gain(63)), "{}", gain(63));
    }

    #[test]
    fn where_the_chain_never_misses_a_tree_gains_nothing() {
        let (mut own, all) = both();
        for _ in 0..200 {
            own.take_tree(22, 4, 4, 4);
        }
        let gain = own.tree_tokens(&all, 22, 4) - own.chain_tokens(&all, 4);
        assert!((0.0..0.15).contains(&gain), "{gain}");
    }

    #[test]
    fn repeats_are_judged_by_what_came_out() {
        let (mut own, all) = both();
        for _ in 0..100 {
            own.take_repeat(4, &[1, 2, 3, 4], &[1, 9]);
            own.take_repeat(40, &[1, 2, 3, 4], &[1, 2, 3]);
        }
        assert!((1.9..2.2).contains(&own.repeat_tokens(&all, 3, 15)));
        assert!(own.repeat_tokens(&all, 17, 15) > 10.0);
        assert_eq!(own.repeat_tokens(&all, 0, 15), 1.0);
        // No repeat, nothing to learn.
        own.take_repeat(0, &[], &[1]);
    }

    /// Most repeats end at once, and those that do not are long: a mean over all tokens would
    /// take their middle for the rule.
    #[test]
    fn repeats_that_go_on_do_not_speak_for_those_that_end() {
        let (mut own, all) = both();
        let copy: Vec<u32> = (0..15).collect();
        for round in 0..200 {
            match round % 5 {
                0 => own.take_repeat(4, &copy, &copy),
                _ => own.take_repeat(4, &copy, &[99]),
            }
        }
        let tokens = own.repeat_tokens(&all, 4, 15);
        assert!((3.2..4.6).contains(&tokens), "{tokens}");
    }
}
