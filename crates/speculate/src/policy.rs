//! Which draft a step is worth: expected tokens over measured time.

mod acceptance;
mod costs;

pub use acceptance::{Acceptance, Scope};
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
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            costs: Costs::default(),
            acceptance: Acceptance::new(Scope::Engine),
        }
    }
}

/// Sizes of trees that are tried.
const BUDGETS: [usize; 5] = [16, 18, 22, 31, 63];
/// Sizes of lookups that are tried.
const LOOKUPS: [usize; 9] = [1, 2, 3, 5, 7, 11, 15, 31, 63];
/// Steps without any drafts after which they get another try; doubles up to `PATIENCE_MOST`.
const PATIENCE: usize = 32;
const PATIENCE_MOST: usize = 512;
/// A choice other than the last one must promise this much more, so that noise in the costs does
/// not make it swing.
const MARGIN: f64 = 1.02;

/// One sequence's side of the policy.
#[derive(Clone, Debug, Default)]
pub struct SequencePolicy {
    acceptance: Acceptance,
    /// Steps in a row without drafts.
    idle: usize,
    patience: usize,
    /// The last choice.
    last: Option<Choice>,
    /// What lookup would have drafted in this step.
    shadow: Option<(usize, Vec<u32>)>,
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
        policy: &Policy,
        choices: Choices,
        running: usize,
        lookup: &Lookup,
    ) -> DraftPlan {
        let repeat = lookup.repeat();
        self.shadow = repeat.map(|repeat| (repeat.len, lookup.continuation(repeat, SHADOW)));
        let mut best = (
            Choice::None,
            self.rate(policy, Choice::None, choices, running, 0),
        );
        let mut drafting: Option<(Choice, f64)> = None;
        let repeated = repeat.map_or(0, |repeat| repeat.len);
        for choice in options(choices, repeated) {
            let mut rate = self.rate(policy, choice, choices, running, repeated);
            if self.last == Some(choice) {
                rate *= MARGIN;
            }
            if rate > best.1 {
                best = (choice, rate);
            }
            if drafting.is_none_or(|(_, other)| rate > other) {
                drafting = Some((choice, rate));
            }
        }
        if best.0 == Choice::None {
            self.idle += 1;
            if let Some((choice, _)) = drafting
                && self.idle > self.patience.max(PATIENCE)
            {
                self.idle = 0;
                self.patience = (2 * self.patience.max(PATIENCE)).min(PATIENCE_MOST);
                best.0 = choice;
            }
        } else {
            self.idle = 0;
        }
        self.last = Some(best.0);
        match best.0 {
            Choice::None => DraftPlan::None,
            Choice::Lookup(count) => match repeat {
                Some(repeat) => DraftPlan::Given(lookup.continuation(repeat, count)),
                None => DraftPlan::None,
            },
            Choice::Chain(depth) => DraftPlan::Chain { depth },
            Choice::Mtp(depth) => DraftPlan::Mtp { depth },
            Choice::Tree(budget) => DraftPlan::Tree(TreeShape {
                budget,
                depth: choices.chain,
                seeded: choices.seeded,
            }),
        }
    }

    /// Expected tokens per millisecond.
    fn rate(
        &self,
        policy: &Policy,
        choice: Choice,
        choices: Choices,
        running: usize,
        repeated: usize,
    ) -> f64 {
        let (own, all) = (&self.acceptance, &policy.acceptance);
        let (tokens, kind, drafts) = match choice {
            Choice::None => (1.0, StepKind::Plain, 0),
            Choice::Lookup(n) => (own.repeat_tokens(all, repeated, n), StepKind::Plain, n),
            Choice::Chain(n) => (own.chain_tokens(all, n), StepKind::Block, n),
            Choice::Tree(budget) => {
                let tokens = own.tree_tokens(all, budget, choices.chain);
                (tokens, StepKind::Tree, budget)
            }
            Choice::Mtp(n) => (own.mtp_tokens(all, n), StepKind::Mtp(n), n),
        };
        tokens / policy.costs.step_ms(kind, running, running * (1 + drafts))
    }

    /// Takes in the outcome of a step: what was planned, how many drafts were accepted, how many
    /// of them on the path of first children, and the tokens that came out.
    pub fn take(
        &mut self,
        policy: &mut Policy,
        plan: &DraftPlan,
        depth: usize,
        accepted: usize,
        spine: usize,
        tokens: &[u32],
    ) {
        let shadow = self.shadow.take();
        for acceptance in [&mut self.acceptance, &mut policy.acceptance] {
            if let Some((repeated, drafts)) = &shadow {
                acceptance.take_repeat(*repeated, drafts, tokens);
            }
            match plan {
                DraftPlan::Chain { .. } => acceptance.take_chain(depth, accepted),
                DraftPlan::Mtp { .. } => acceptance.take_mtp(depth, accepted),
                DraftPlan::Tree(shape) => {
                    acceptance.take_tree(shape.budget, depth, accepted, spine);
                }
                DraftPlan::None | DraftPlan::Given(_) => {}
            }
        }
        if accepted > 0 {
            self.patience = 0;
        }
    }
}

/// Tokens of a lookup that are compared with what came out though another draft was chosen.
const SHADOW: usize = 15;

fn options(choices: Choices, repeated: usize) -> impl Iterator<Item = Choice> {
    let lookup = if repeated > 0 { choices.lookup } else { 0 };
    let lookups = LOOKUPS.into_iter().filter(move |&n| n <= lookup);
    let budgets = BUDGETS.into_iter();
    let trees = budgets.filter(move |&n| choices.chain < n && n <= choices.tree_budget);
    let chains = (1..=choices.chain).map(Choice::Chain);
    let chains = chains.chain((1..=choices.mtp).map(Choice::Mtp));
    chains
        .chain(lookups.map(Choice::Lookup))
        .chain(trees.map(Choice::Tree))
}

#[cfg(test)]
mod tests;
