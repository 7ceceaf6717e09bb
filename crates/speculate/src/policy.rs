//! Which draft a step is worth: expected tokens over measured time.

mod acceptance;
mod costs;
mod curve;
mod expected;
mod table;
mod tries;

pub use acceptance::{Acceptance, Outcome, Scope};
use acceptance::{Repeated, Surety};
pub use costs::{Costs, StepKind};
use expected::{Expected, Models, add_up};
pub use table::{BUDGETS, LOOKUPS};
use table::{Choice, SHORT, Table, best};
use tries::{Idle, Tries};

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

/// Most drafts of a lookup that has as many as there are to copy. A device prepares for every number of rows
/// by itself, so longer ones have a multiple of `ROWS` of them.
const ANY: usize = 15;
const ROWS: usize = 4;
/// What serves all sequences best is chosen for one unless another choice promises this much more for it:
/// of many estimates the largest is likely too large.
const MARGIN: f64 = 1.05;
/// So much more than the whole chain one of nearly as many drafts must promise: what a few rows more cost is
/// not measured better.
const WHOLE: f64 = 1.03;
/// So much more than a model's drafts a phrase that occurs again must promise. Most of them end sooner than
/// by their mean, and with the answer's end near a step more is not made up for.
const PHRASE: f64 = 1.35;
/// Most tokens of a lookup behind a repeat of fewer than `TRUSTED` tokens: about as many as are
/// compared with what came out when another draft was chosen.
const SHADOW: usize = 16;
const TRUSTED: usize = 9;
/// Milliseconds of a step below which it is felt what is done between two.
const SHORT_MS: f64 = 1.0;

impl Policy {
    fn tabulate(&mut self, choices: Choices, running: usize) {
        if self.table.holds(choices, running) {
            return;
        }
        let costs = &self.costs;
        self.table.fill(choices, running, |choice| {
            let (kind, drafts) = choice.step();
            costs.step_ms(kind, running, running * (1 + drafts))
        });
        let choices = self.table.choices;
        let models = Models::new(&Acceptance::default(), &self.acceptance, choices);
        let rate = |choice| models.tokens(choice) / self.table.ms(choice);
        let (best, most) = best(choices.of_models(), rate);
        let whole = Choice::Chain(choices.chain);
        let nearly = matches!(best, Choice::Chain(drafts) if drafts > SHORT);
        self.table.best = match nearly && most < WHOLE * rate(whole) {
            true => whole,
            false => best,
        };
    }

    /// Whether steps are so short that learning from one should wait until the next one runs.
    pub fn is_hurried(&self) -> bool {
        self.costs.step_ms(StepKind::Plain, 1, 1) < SHORT_MS
    }
}

/// One sequence's side of the policy.
#[derive(Clone, Debug, Default)]
pub struct SequencePolicy {
    acceptance: Acceptance,
    idle: Idle,
    /// What it had to choose from, one of so many.
    asked: Option<(Choices, usize)>,
    /// What is known since the last step was settled.
    known: Option<Known>,
    /// The repeat before this step, what lookup would have drafted, and what that promised by drafts.
    shadow: Shadow,
    promised: Vec<f64>,
    taken: Taken,
}

/// What a lookup drafts, or would have.
#[derive(Clone, Debug, Default)]
struct Shadow {
    repeated: Repeated,
    drafts: Vec<u32>,
}

/// The last step, as far as it is not learned from yet.
#[derive(Clone, Debug, Default)]
struct Taken {
    /// None when all is learned.
    step: Option<(DraftPlan, Outcome<'static>)>,
    shadow: Shadow,
    tokens: Vec<u32>,
}

/// All that a choice depends on but the text.
#[derive(Clone, Debug)]
struct Known {
    choices: Choices,
    running: usize,
    models: Models,
    /// How sure lookups are.
    sure: Surety,
    /// The best choice without a lookup, and its tokens per time.
    best: (Choice, f64),
}

impl Known {
    fn new(own: &Acceptance, policy: &Policy, choices: Choices, running: usize) -> Self {
        let models = Models::new(own, &policy.acceptance, choices);
        let rate = |choice| policy.rate(choices, choice, models.tokens(choice));
        Self {
            choices,
            running,
            sure: own.surety(&policy.acceptance),
            best: best(choices.of_models(), rate),
            models,
        }
    }
}

impl Policy {
    /// Tokens per time of a choice for a sequence, with what speaks for it besides.
    fn rate(&self, choices: Choices, choice: Choice, tokens: f64) -> f64 {
        let rate = tokens / self.table.ms(choice);
        match choice == self.table.best.within(choices) {
            true => MARGIN * rate,
            false => rate,
        }
    }
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
        self.asked = Some((choices, running));
        policy.tries.plans += 1;
        let known = self.known.take();
        let known = known.filter(|known| (known.choices, known.running) == (choices, running));
        let known = known.unwrap_or_else(|| Known::new(&self.acceptance, policy, choices, running));
        self.look_up(lookup, choices.lookup, &known.sure);
        let own = Expected {
            models: &known.models,
            repeat: &self.promised,
            ends: self.shadow.ends(lookup),
        };
        let mut choice = match own.ends {
            true => {
                let rate = |choice| policy.rate(choices, choice, own.tokens(choice));
                best(choices.of_models(), rate)
            }
            false => known.best,
        };
        let copy = self.shadow.copy(choices.lookup, own.ends);
        let phrase = !self.shadow.repeated.again && choice.0 != Choice::None;
        let bar = if phrase { PHRASE } else { 1.0 };
        let (drafts, rate) = copy.best(&own, &policy.table);
        if drafts > 0 && rate > bar * choice.1 {
            choice.0 = Choice::Lookup(drafts);
        }
        let serve_most = policy.table.best != Choice::None;
        if choice.0 == Choice::None && policy.tries.take_turn(self.idle, running, serve_most) {
            let rate = |choice| own.tokens(choice) / policy.table.ms(choice);
            choice = best(choices.of_models().skip(1), rate);
            if drafts > 0 && copy.best(&own, &policy.table).1 > choice.1 {
                choice.0 = Choice::Lookup(drafts);
            }
        }
        match choice.0 {
            Choice::None => DraftPlan::None,
            Choice::Lookup(drafts) => DraftPlan::Given(copy.drafts(&self.shadow.drafts, drafts)),
            Choice::Chain(depth) => DraftPlan::Chain { depth },
            Choice::Mtp(depth) => DraftPlan::Mtp { depth },
            Choice::Tree(budget) => DraftPlan::Tree(TreeShape {
                budget,
                depth: choices.chain,
                seeded: choices.seeded,
            }),
        }
    }

    /// What lookup would draft of at most so many tokens, and what these promise.
    fn look_up(&mut self, lookup: &Lookup, most: usize, sure: &Surety) {
        self.promised.clear();
        self.promised.push(1.0);
        self.shadow.drafts.clear();
        let Some(repeat) = lookup.repeat() else {
            self.shadow.repeated = Repeated::default();
            return;
        };
        let repeated = Repeated {
            len: repeat.len,
            again: lookup.is_again(repeat),
        };
        let most = match repeated.len {
            0..TRUSTED => most.min(SHADOW),
            _ => most,
        };
        self.shadow.repeated = repeated;
        lookup.continue_into(repeat, most, &mut self.shadow.drafts);
        let drafts = self.shadow.drafts.len();
        add_up(sure.reach(repeated, drafts), &mut self.promised);
    }

    /// Takes in the outcome of a step that ran as planned; what it teaches is known when it is settled.
    pub fn take(&mut self, policy: &mut Policy, plan: &DraftPlan, outcome: &Outcome<'_>) {
        self.idle.take(plan, outcome.accepted);
        policy.tries.idle.take(plan, outcome.accepted);
        self.learn(policy);
        let taken = &mut self.taken;
        std::mem::swap(&mut taken.shadow, &mut self.shadow);
        taken.tokens.clear();
        taken.tokens.extend_from_slice(outcome.tokens);
        let outcome = Outcome {
            tokens: &[],
            ..*outcome
        };
        taken.step = Some((plan.outline(), outcome));
    }

    /// Learns from the last step, and works out what the next plan asks for.
    pub fn settle(&mut self, policy: &mut Policy) {
        self.learn(policy);
        let table = &policy.table;
        let (choices, running) = self.asked.unwrap_or((table.choices, table.running));
        if running > 0 {
            policy.tabulate(choices, running);
            self.known = Some(Known::new(&self.acceptance, policy, choices, running));
        }
    }

    fn learn(&mut self, policy: &mut Policy) {
        if let Some((plan, outcome)) = self.taken.step.take() {
            let outcome = Outcome {
                tokens: &self.taken.tokens,
                ..outcome
            };
            let shadow = &self.taken.shadow;
            teach(
                &mut self.acceptance,
                Some(&policy.acceptance),
                &plan,
                shadow,
                &outcome,
            );
            teach(&mut policy.acceptance, None, &plan, shadow, &outcome);
            policy.table.age();
        }
    }
}

/// Tells the acceptance of a sequence, which stands beside that of `all`, or of an engine.
fn teach(
    acceptance: &mut Acceptance,
    all: Option<&Acceptance>,
    plan: &DraftPlan,
    shadow: &Shadow,
    outcome: &Outcome<'_>,
) {
    acceptance.take_repeat(all, shadow.repeated, &shadow.drafts, outcome.tokens);
    match plan {
        DraftPlan::Chain { .. } => acceptance.take_chain(all, outcome),
        DraftPlan::Mtp { .. } => acceptance.take_mtp(all, outcome),
        DraftPlan::Tree(shape) => acceptance.take_tree(all, shape.budget, outcome),
        DraftPlan::None | DraftPlan::Given(_) => {}
    }
}

impl Shadow {
    /// Whether it ends the text.
    fn ends(&self, lookup: &Lookup) -> bool {
        self.drafts
            .last()
            .is_some_and(|&token| lookup.is_end(token))
    }

    /// As it may be drafted.
    fn copy(&self, room: usize, ends: bool) -> Copied {
        let all = match ends {
            true => self.drafts.len() - 1,
            false => cut(self.drafts.len()),
        };
        Copied {
            all,
            filled: filled(all).min(room),
        }
    }
}

/// Numbers of drafts of a lookup.
#[derive(Clone, Copy)]
struct Copied {
    /// All that mean something.
    all: usize,
    /// These and what fills them up to a number of rows that a device has.
    filled: usize,
}

impl Copied {
    /// The lookup of most tokens per time, and these.
    fn best(self, own: &Expected<'_>, table: &Table) -> (usize, f64) {
        let mut best = (0, 0.0);
        let parts = LOOKUPS.into_iter().take_while(|&drafts| drafts < self.all);
        for drafts in parts.chain([self.all]) {
            let rate = self.rate(drafts, own, table);
            if rate > best.1 {
                best = (drafts, rate);
            }
        }
        best
    }

    fn rate(self, drafts: usize, own: &Expected<'_>, table: &Table) -> f64 {
        let ms = |drafts| table.ms(Choice::Lookup(drafts));
        let tokens = own.tokens(Choice::Lookup(drafts));
        if drafts == self.all {
            return tokens / ms(self.filled);
        }
        if !own.ends {
            return tokens / ms(drafts);
        }
        // Where the copy ends the text, a part of it leaves a step for the rest, if it is right.
        let rest = own.right(drafts) * ms(self.all - drafts - 1);
        let whole = own.tokens(Choice::Lookup(self.all));
        (tokens / ms(drafts)).min(whole / (ms(drafts) + rest))
    }

    /// So many drafts of those that are copied.
    fn drafts(self, copied: &[u32], drafts: usize) -> Vec<u32> {
        let mut drafted = copied[..drafts].to_vec();
        // What is behind the end of the text does not matter.
        if drafts == self.all {
            drafted.resize(self.filled, copied[copied.len() - 1]);
        }
        drafted
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

#[cfg(test)]
mod tests;
