//! Which draft a step is worth: expected tokens over measured time.

mod acceptance;
mod costs;
mod curve;

pub use acceptance::{Acceptance, Outcome, Scope};
pub use costs::{Costs, StepKind};

use crate::{DraftPlan, Lookup, TreeShape};

/// What a policy may choose from for one sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// Most drafts of a DFlash block; 0 without one.
    pub chain: usize,
    /// Most nodes of a tree; 0 without.
    pub tree_budget: usize,
    /// Whether trees begin with a chain.
    pub seeded: bool,
    /// Most passes of the MTP head; 0 without.
    pub mtp: usize,
    /// Most drafts of a lookup.
    pub lookup: usize,
}

/// Costs of an engine, and how drafts did in it.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Time of steps.
    pub costs: Costs,
    /// Over all sequences: what a new one starts from.
    pub acceptance: Acceptance,
    tries: Tries,
    table: Table,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            costs: Costs::default(),
            acceptance: Acceptance::new(Scope::Engine),
            tries: Tries::default(),
            table: Table::default(),
        }
    }
}

/// Sizes of trees that are tried.
pub const BUDGETS: [usize; 3] = [22, 31, 63];
/// Sizes of lookups that are tried.
pub const LOOKUPS: [usize; 7] = [1, 2, 3, 7, 15, 31, 63];
/// Most drafts of a lookup that has as many as there are to copy. A device prepares for every number of rows
/// by itself, so longer ones have a multiple of `ROWS` of them.
const ANY: usize = 15;
const ROWS: usize = 4;
/// Steps without any drafts after which they get another try; doubles up to `PATIENCE_MOST`.
const PATIENCE: usize = 32;
const PATIENCE_MOST: usize = 512;
/// A choice other than what serves all sequences best must promise this much more for this one:
/// of many estimates the best is likely too good.
const MARGIN: f64 = 1.05;
/// Most tokens of a lookup behind a repeat of fewer than `TRUSTED` tokens: about as many as are
/// compared with what came out when another draft was chosen.
const SHADOW: usize = 16;
const TRUSTED: usize = 9;

/// What the choices cost, and which serves all sequences best; worked out anew now and then, as both
/// change slowly.
#[derive(Clone, Debug, Default)]
struct Table {
    choices: Choices,
    running: usize,
    /// Milliseconds of a step.
    costs: Vec<(Choice, f64)>,
    /// Lookup, which depends on the text, is not among them.
    best: Option<Choice>,
    /// Steps that it still holds for.
    fresh: usize,
}

/// Steps that a table holds for.
const FRESH: usize = 4;
/// Milliseconds of a step below which it is felt what is done between two.
const SHORT_MS: f64 = 1.0;

impl Policy {
    fn tabulate(&mut self, choices: Choices, running: usize) {
        let table = &self.table;
        if table.fresh > 0 && (table.choices, table.running) == (choices, running) {
            return;
        }
        let costs: Vec<(Choice, f64)> = options(choices)
            .map(|choice| (choice, self.step_ms(choice, running)))
            .collect();
        let all = Models::new(&Acceptance::default(), &self.acceptance, choices);
        let models = costs.iter().filter(|(choice, _)| !choice.looks_up());
        let best = best(models, |choice| all.tokens(choice));
        self.table = Table {
            choices,
            running,
            costs,
            best: Some(best),
            fresh: FRESH,
        };
    }

    /// Whether steps are so short that learning from one should wait until the next one runs.
    pub fn is_hurried(&self) -> bool {
        self.costs.step_ms(StepKind::Plain, 1, 1) < SHORT_MS
    }

    /// Of a step in which all that run choose the same.
    fn step_ms(&self, choice: Choice, running: usize) -> f64 {
        let (kind, drafts) = choice.step();
        self.costs.step_ms(kind, running, running * (1 + drafts))
    }
}

/// Steps in a row without drafts.
#[derive(Clone, Copy, Debug, Default)]
struct Idle {
    steps: usize,
    patience: usize,
}

impl Idle {
    /// Whether drafts are to be tried again, where so many sequences are counted.
    fn is_over(self, sequences: usize) -> bool {
        self.steps >= sequences * self.patience.max(PATIENCE)
    }

    fn take(&mut self, plan: &DraftPlan, accepted: usize) {
        if *plan == DraftPlan::None {
            self.steps += 1;
            return;
        }
        self.steps = 0;
        self.patience = match accepted {
            0 => (2 * self.patience.max(PATIENCE)).min(PATIENCE_MOST),
            _ => 0,
        };
    }
}

/// Tries of drafts that did not seem to pay: in a step one sequence at most, each in its turn, so that
/// many streams do not wait for a step in which all of them try.
#[derive(Clone, Copy, Debug, Default)]
struct Tries {
    /// Steps of any sequence.
    idle: Idle,
    /// Plans since the last try.
    plans: usize,
    /// Tries so far, which say whose turn it is, and sequences that were passed over.
    tries: usize,
    passed: usize,
}

impl Tries {
    /// Whether a sequence that would draft nothing is to try, as one of `running`. Where drafts serve
    /// most it goes by its own steps alone.
    fn take_turn(&mut self, own: Idle, running: usize, serve_most: bool) -> bool {
        if self.plans < running {
            return false;
        }
        if !own.is_over(if serve_most { 1 } else { running }) {
            if !self.idle.is_over(running) {
                return false;
            }
            if self.passed < self.tries % running.max(1) {
                self.passed += 1;
                return false;
            }
        }
        *self = Self {
            plans: 0,
            passed: 0,
            tries: self.tries + 1,
            ..*self
        };
        true
    }
}

/// One sequence's side of the policy.
#[derive(Clone, Debug, Default)]
pub struct SequencePolicy {
    acceptance: Acceptance,
    idle: Idle,
    /// The repeat before this step, and what lookup would have drafted.
    shadow: Option<(usize, Vec<u32>)>,
    /// The last step, until it is settled.
    taken: Option<Taken>,
    /// What the models' drafts should give, since the last step was settled.
    models: Option<Models>,
}

/// A step that ran as planned.
#[derive(Clone, Debug)]
struct Taken {
    plan: DraftPlan,
    shadow: Option<(usize, Vec<u32>)>,
    /// Its outcome, but for the tokens.
    outcome: Outcome<'static>,
    tokens: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    None,
    Lookup(usize),
    Chain(usize),
    Tree(usize),
    Mtp(usize),
}

impl SequencePolicy {
    /// The draft of most expected tokens per time, when `running` sequences share a step and all
    /// of them do the same. `lookup` holds the text so far.
    pub fn plan(
        &mut self,
        policy: &mut Policy,
        choices: Choices,
        running: usize,
        lookup: &Lookup,
    ) -> DraftPlan {
        policy.tabulate(choices, running);
        let mut tries = policy.tries;
        tries.plans += 1;
        let repeat = lookup.repeat();
        let repeated = repeat.map_or(0, |repeat| repeat.len);
        let most = match repeated {
            0..TRUSTED => choices.lookup.min(SHADOW),
            _ => choices.lookup,
        };
        let copy = repeat.map_or_else(Vec::new, |repeat| lookup.continuation(repeat, most));
        let models = match self.models.take() {
            Some(models) if models.are_of(choices) => models,
            _ => Models::new(&self.acceptance, &policy.acceptance, choices),
        };
        let repeat = self
            .acceptance
            .repeat(&policy.acceptance, repeated, copy.len());
        let mut own = Expected {
            models: &models,
            repeat: sums(repeat),
            end: (f64::INFINITY, 0.0),
        };
        // The token that ends the text need not be drafted: it comes out behind the last right draft.
        let ends = copy.last().is_some_and(|&token| lookup.is_end(token));
        if ends {
            own.ends_with_copy();
        }
        let all = match ends {
            true => copy.len() - 1,
            false => cut(copy.len()),
        };
        let fits = |(choice, _): &&(Choice, f64)| match *choice {
            Choice::Lookup(drafts) => drafts < all,
            _ => true,
        };
        let filled = filled(all).min(choices.lookup);
        let ms = policy.step_ms(Choice::Lookup(filled), running);
        let whole = [(Choice::Lookup(all), ms)];
        let costs = || policy.table.costs.iter().filter(fits).chain(&whole);
        let margin = |choice| match Some(choice) == policy.table.best {
            true => MARGIN,
            false => 1.0,
        };
        // Where the copy ends the text, a part of it leaves a step for the rest, if it is right.
        let tokens = |choice| match choice {
            Choice::Lookup(drafts) if ends && (1..all).contains(&drafts) => {
                let rest = Choice::Lookup(all - drafts - 1);
                let [ms, rest] = [choice, rest].map(|choice| policy.step_ms(choice, running));
                let to_the_end = ms / (ms + own.right(drafts) * rest);
                let whole = own.tokens(Choice::Lookup(all));
                own.tokens(choice).min(whole * to_the_end)
            }
            _ => own.tokens(choice),
        };
        let mut choice = best(costs(), |choice| tokens(choice) * margin(choice));
        let serve_most = policy.table.best != Some(Choice::None);
        if choice == Choice::None && tries.take_turn(self.idle, running, serve_most) {
            let drafting = costs().filter(|(choice, _)| choice.step().1 > 0);
            choice = best(drafting, |choice| own.tokens(choice));
        }
        let plan = match choice {
            Choice::None => DraftPlan::None,
            Choice::Lookup(0) => DraftPlan::None,
            Choice::Lookup(drafts) => {
                let mut drafted = copy[..drafts].to_vec();
                // What is behind the end of the text does not matter.
                if drafts == all {
                    drafted.resize(filled, copy[copy.len() - 1]);
                }
                DraftPlan::Given(drafted)
            }
            Choice::Chain(depth) => DraftPlan::Chain { depth },
            Choice::Mtp(depth) => DraftPlan::Mtp { depth },
            Choice::Tree(budget) => DraftPlan::Tree(TreeShape {
                budget,
                depth: choices.chain,
                seeded: choices.seeded,
            }),
        };
        policy.tries = tries;
        self.shadow = Some((repeated, copy));
        plan
    }

    /// Takes in the outcome of a step that ran as planned; what it teaches is known when it is settled.
    pub fn take(&mut self, policy: &mut Policy, plan: &DraftPlan, outcome: &Outcome<'_>) {
        self.idle.take(plan, outcome.accepted);
        policy.tries.idle.take(plan, outcome.accepted);
        self.learn(policy);
        self.taken = Some(Taken {
            plan: plan.clone(),
            shadow: self.shadow.take(),
            tokens: outcome.tokens.to_vec(),
            outcome: Outcome {
                tokens: &[],
                ..*outcome
            },
        });
    }

    /// Learns from the last step, and works out what the next plan asks for.
    pub fn settle(&mut self, policy: &mut Policy) {
        self.learn(policy);
        if policy.table.best.is_some() {
            let (choices, running) = (policy.table.choices, policy.table.running);
            policy.tabulate(choices, running);
            let models = Models::new(&self.acceptance, &policy.acceptance, choices);
            self.models = Some(models);
        }
    }

    fn learn(&mut self, policy: &mut Policy) {
        if let Some(taken) = self.taken.take() {
            taken.teach(&mut self.acceptance, Some(&policy.acceptance));
            taken.teach(&mut policy.acceptance, None);
            policy.table.fresh = policy.table.fresh.saturating_sub(1);
        }
    }
}

impl Taken {
    /// Tells the acceptance of a sequence, which stands beside that of `all`, or of an engine.
    fn teach(&self, acceptance: &mut Acceptance, all: Option<&Acceptance>) {
        let outcome = &Outcome {
            tokens: &self.tokens,
            ..self.outcome
        };
        if let Some((repeated, drafts)) = &self.shadow {
            acceptance.take_repeat(all, *repeated, drafts, outcome.tokens);
        }
        match &self.plan {
            DraftPlan::Chain { .. } => acceptance.take_chain(all, outcome),
            DraftPlan::Mtp { .. } => acceptance.take_mtp(all, outcome),
            DraftPlan::Tree(shape) => acceptance.take_tree(all, shape.budget, outcome),
            DraftPlan::None | DraftPlan::Given(_) => {}
        }
    }
}

impl Choice {
    fn looks_up(self) -> bool {
        matches!(self, Self::Lookup(_))
    }

    /// How a step drafts for it, and the drafts.
    fn step(self) -> (StepKind, usize) {
        match self {
            Self::None => (StepKind::Plain, 0),
            Self::Lookup(drafts) => (StepKind::Plain, drafts),
            Self::Chain(drafts) => (StepKind::Block, drafts),
            Self::Tree(budget) => (StepKind::Tree, budget),
            Self::Mtp(drafts) => (StepKind::Mtp(drafts), drafts),
        }
    }
}

/// Drafts of a lookup that takes at most so many.
fn cut(drafts: usize) -> usize {
    match drafts {
        ..=ANY => drafts,
        _ => (1 + drafts) / ROWS * ROWS - 1,
    }
}

/// Drafts of a lookup of which so many mean something.
fn filled(drafts: usize) -> usize {
    match drafts {
        ..=ANY => drafts,
        _ => (1 + drafts).next_multiple_of(ROWS) - 1,
    }
}

/// The option of most tokens per time; of equals the first.
fn best<'a>(
    options: impl IntoIterator<Item = &'a (Choice, f64)>,
    tokens: impl Fn(Choice) -> f64,
) -> Choice {
    let mut best = (Choice::None, 0.0);
    for &(choice, ms) in options {
        let rate = tokens(choice) / ms;
        if rate > best.1 {
            best = (choice, rate);
        }
    }
    best.0
}

/// Tokens that steps of a sequence should give, bonus tokens included, by drafts of models.
#[derive(Clone, Debug)]
struct Models {
    chain: Vec<f64>,
    mtp: Vec<f64>,
    /// How likely the whole chain is not accepted, and what a tree gains then, by budget.
    misses: f64,
    gains: [f64; BUDGETS.len()],
}

impl Models {
    fn new(own: &Acceptance, all: &Acceptance, choices: Choices) -> Self {
        let mut whole = 1.0;
        let chain = sums(
            own.chain(all, choices.chain)
                .inspect(|&reach| whole = reach),
        );
        Self {
            chain,
            mtp: sums(own.mtp(all, choices.mtp)),
            misses: 1.0 - whole,
            gains: BUDGETS.map(|budget| own.tree_gain(all, budget, choices.chain)),
        }
    }

    /// Whether these are all that there is to choose from.
    fn are_of(&self, choices: Choices) -> bool {
        [self.chain.len(), self.mtp.len()] == [1 + choices.chain, 1 + choices.mtp]
    }

    /// Of a lookup only what is sure.
    fn tokens(&self, choice: Choice) -> f64 {
        match choice {
            Choice::None | Choice::Lookup(_) => 1.0,
            Choice::Chain(drafts) => self.chain[drafts],
            Choice::Mtp(drafts) => self.mtp[drafts],
            Choice::Tree(budget) => {
                let sizes = BUDGETS.iter().zip(self.gains);
                let gain = sizes
                    .filter(|(size, _)| **size == budget)
                    .map(|(_, gain)| gain);
                self.chain[self.chain.len() - 1] + self.misses * gain.sum::<f64>()
            }
        }
    }
}

/// The same with what the text itself says.
struct Expected<'a> {
    models: &'a Models,
    /// By drafts of a lookup.
    repeat: Vec<f64>,
    /// Tokens behind which the text ends if the whole lookup is right, and how likely that is.
    end: (f64, f64),
}

impl Expected<'_> {
    /// The last token of the lookup ends the text, so nothing gives more if it is right.
    fn ends_with_copy(&mut self) {
        if let [.., but_one, all] = self.repeat[..] {
            self.end = (self.repeat.len() as f64 - 1.0, all - but_one);
        }
    }

    /// How likely so many drafts of a lookup, one at least, are all right.
    fn right(&self, drafts: usize) -> f64 {
        self.repeat[drafts] - self.repeat[drafts - 1]
    }

    fn tokens(&self, choice: Choice) -> f64 {
        let (end, sure) = self.end;
        let (tokens, most) = match choice {
            Choice::Lookup(drafts) => (self.repeat[drafts], 1.0 + drafts as f64),
            model => {
                let tokens = self.models.tokens(model);
                (tokens, tokens)
            }
        };
        tokens - sure * (most - end).max(0.0)
    }
}

/// Expected tokens of no draft, one, two and so on, from how likely each is accepted.
fn sums(reach: impl Iterator<Item = f64>) -> Vec<f64> {
    let more = reach.scan(1.0, |tokens, reach| {
        *tokens += reach;
        Some(*tokens)
    });
    std::iter::once(1.0).chain(more).collect()
}

/// What there is to choose from.
fn options(choices: Choices) -> impl Iterator<Item = Choice> {
    let Choices {
        chain,
        tree_budget,
        mtp,
        lookup,
        ..
    } = choices;
    let lookups = LOOKUPS.into_iter().filter(move |&n| n <= lookup);
    let trees = BUDGETS.into_iter();
    let trees = trees.filter(move |&n| chain > 0 && chain < n && n <= tree_budget);
    std::iter::once(Choice::None)
        .chain(depths(chain).map(Choice::Chain))
        .chain((1..=mtp).map(Choice::Mtp))
        .chain(lookups.map(Choice::Lookup))
        .chain(trees.map(Choice::Tree))
}

/// Every depth of short chains, every other one of longer ones, and all.
fn depths(most: usize) -> impl Iterator<Item = usize> {
    const SHORT: usize = 5;
    (1..=most).filter(move |&depth| depth <= SHORT || (most - depth).is_multiple_of(2))
}

#[cfg(test)]
mod tests;
