use super::{Choices, StepKind};

/// Sizes of trees that are tried.
pub const BUDGETS: [usize; 3] = [22, 31, 63];
/// Sizes of lookups that are tried.
pub const LOOKUPS: [usize; 7] = [1, 2, 3, 7, 15, 31, 63];
/// Chains of at most so many drafts are short.
pub(super) const SHORT: usize = 5;
/// Steps of each sequence that a table holds for.
const FRESH: usize = 4;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Choice {
    #[default]
    None,
    Lookup(usize),
    Chain(usize),
    Tree(usize),
    Mtp(usize),
}

impl Choice {
    /// How a step drafts for it, and the drafts.
    pub fn step(self) -> (StepKind, usize) {
        match self {
            Self::None => (StepKind::Plain, 0),
            Self::Lookup(drafts) => (StepKind::Plain, drafts),
            Self::Chain(drafts) => (StepKind::Block, drafts),
            Self::Tree(budget) => (StepKind::Tree, budget),
            Self::Mtp(drafts) => (StepKind::Mtp(drafts), drafts),
        }
    }

    /// What comes nearest to it for a sequence that has this to choose from.
    pub fn within(self, choices: Choices) -> Self {
        match self {
            Self::Chain(drafts) => Self::Chain(drafts.min(choices.chain)),
            Self::Mtp(drafts) => Self::Mtp(drafts.min(choices.mtp)),
            other => other,
        }
    }
}

impl Choices {
    /// Whether all of `other` is among it.
    fn cover(self, other: Self) -> bool {
        self.and(other)
            == Self {
                seeded: self.seeded || other.seeded,
                ..self
            }
    }

    /// The most of both.
    fn and(self, other: Self) -> Self {
        Self {
            chain: self.chain.max(other.chain),
            tree_budget: self.tree_budget.max(other.tree_budget),
            seeded: self.seeded || other.seeded,
            mtp: self.mtp.max(other.mtp),
            lookup: self.lookup.max(other.lookup),
        }
    }

    /// Drafts of models that there are to choose from, and none: every depth of short chains, every
    /// other one of longer ones, and all.
    pub(super) fn of_models(self) -> impl Iterator<Item = Choice> {
        let Self {
            chain,
            tree_budget,
            mtp,
            ..
        } = self;
        let depths =
            (1..=chain).filter(move |&depth| depth <= SHORT || (chain - depth).is_multiple_of(2));
        let trees = BUDGETS.into_iter();
        let trees = trees.filter(move |&n| chain > 0 && chain < n && n <= tree_budget);
        std::iter::once(Choice::None)
            .chain(depths.map(Choice::Chain))
            .chain((1..=mtp).map(Choice::Mtp))
            .chain(trees.map(Choice::Tree))
    }
}

/// What steps of all choices cost, and which of them serves all sequences best. Worked out anew now
/// and then, as both change slowly, and beside a step where steps are short.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// The most that any sequence had to choose from.
    pub choices: Choices,
    pub running: usize,
    /// Milliseconds of steps, by drafts.
    plain: Vec<f64>,
    chains: Vec<f64>,
    heads: Vec<f64>,
    trees: [f64; BUDGETS.len()],
    /// Lookup, which depends on the text, is not among it.
    pub best: Choice,
    /// Steps that it still holds for.
    fresh: usize,
}

impl Table {
    /// Whether it still tells what so many sequences that choose from these ask for.
    pub fn holds(&self, choices: Choices, running: usize) -> bool {
        self.fresh > 0 && self.running == running && self.choices.cover(choices)
    }

    /// Costs of all that was ever asked for and of these choices.
    pub fn fill(&mut self, choices: Choices, running: usize, ms: impl Fn(Choice) -> f64) {
        let all = self.choices.and(choices);
        let column = |column: &mut Vec<f64>, of: fn(usize) -> Choice, most: usize| {
            column.clear();
            column.extend((0..=most).map(|drafts| ms(of(drafts))));
        };
        column(&mut self.plain, Choice::Lookup, all.lookup);
        column(&mut self.chains, Choice::Chain, all.chain);
        column(&mut self.heads, Choice::Mtp, all.mtp);
        self.trees = BUDGETS.map(|budget| ms(Choice::Tree(budget)));
        self.choices = all;
        self.running = running;
        self.fresh = FRESH * running.max(1);
    }

    /// Milliseconds of a step in which all that run choose the same.
    pub fn ms(&self, choice: Choice) -> f64 {
        match choice {
            Choice::None => self.plain[0],
            Choice::Lookup(drafts) => self.plain[drafts],
            Choice::Chain(drafts) => self.chains[drafts],
            Choice::Mtp(drafts) => self.heads[drafts],
            Choice::Tree(budget) => {
                let index = BUDGETS.iter().position(|&size| size == budget);
                self.trees[index.expect("trees have one of the sizes: this is a bug")]
            }
        }
    }

    /// Counts a step.
    pub fn age(&mut self) {
        self.fresh = self.fresh.saturating_sub(1);
    }
}

/// The choice of most tokens per time, and these; of equals the first.
pub(super) fn best(
    choices: impl Iterator<Item = Choice>,
    rate: impl Fn(Choice) -> f64,
) -> (Choice, f64) {
    let mut best = (Choice::None, 0.0);
    for choice in choices {
        let rate = rate(choice);
        if rate > best.1 {
            best = (choice, rate);
        }
    }
    best
}
