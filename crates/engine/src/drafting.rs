//! What each request drafts with, step by step.

use volley_speculate::policy::{Choices, Outcome, Policy, SequencePolicy, StepKind};
use volley_speculate::{DraftPlan, Lookup, Method, Rule, TreeShape};

use crate::step::{DecodeStep, SlotUpdate};
use crate::{Request, Speculation};

/// What an engine can draft with, and how much of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DraftLimits {
    /// How requests draft that do not choose.
    pub method: Method,
    /// Most drafts of a chain.
    pub max_drafts: usize,
    /// Most drafts of the DFlash block; 0 without a drafter.
    pub block_drafts: usize,
    /// Most nodes of a tree; 0 offers none.
    pub tree_budget: usize,
    /// Whether trees begin with a chain.
    pub seeded: bool,
    /// Whether the MTP head is there.
    pub mtp: bool,
    /// Shortest repeat that goes before the models.
    pub lookup_min: Option<usize>,
}

/// Shortest repeat that lookup goes on from, if nobody says.
const LOOKUP_MIN: usize = 3;

impl DraftLimits {
    /// For a drafter's block of so many rows (0 without one).
    pub(crate) fn new(spec: &Speculation, block: usize, mtp: bool) -> Self {
        let block_drafts = block.saturating_sub(1);
        let most = match spec.method {
            Method::None => 0,
            Method::Dflash | Method::Ddtree => block_drafts,
            Method::Mtp => Speculation::MOST_MTP_DRAFTS,
            Method::Ngram | Method::Auto => Speculation::MOST_DRAFTS,
        };
        let trees = block_drafts > 0 && spec.rule == Rule::Match;
        Self {
            method: spec.method,
            max_drafts: spec.max_drafts.min(most),
            block_drafts,
            tree_budget: match trees {
                true => spec.tree_budget.min(Speculation::MOST_DRAFTS),
                false => 0,
            },
            seeded: spec.seeded,
            mtp,
            lookup_min: spec.lookup_min,
        }
    }

    /// What requests may choose from.
    pub(crate) fn methods(&self) -> Vec<Method> {
        let there = |method: &Method| match method {
            Method::None => true,
            _ if self.method == Method::None => false,
            Method::Ngram | Method::Auto => true,
            Method::Mtp => self.mtp,
            Method::Dflash => self.block_drafts > 0,
            Method::Ddtree => self.tree_budget > 0,
        };
        Method::ALL.into_iter().filter(there).collect()
    }

    /// Whether the MTP head is there beside a drafter, for requests that choose it.
    pub(crate) fn head_apart(&self) -> bool {
        self.mtp && self.block_drafts > 0
    }

    /// Most drafts of any step.
    pub(crate) fn most_drafts(&self) -> usize {
        self.max_drafts.max(self.tree_budget)
    }
}

/// How one request drafts.
pub(crate) struct RequestDrafter {
    limits: DraftLimits,
    method: Method,
    /// Its own bounds, within the engine's.
    max_drafts: usize,
    tree_budget: usize,
    /// Most drafts of a lookup.
    max_lookup: usize,
    /// Prompt and output so far, for methods that look repeats up.
    lookup: Option<Lookup>,
    policy: SequencePolicy,
    /// The plan of the step that runs, without its tokens.
    plan: DraftPlan,
}

impl RequestDrafter {
    pub(crate) fn new(request: &Request, limits: DraftLimits) -> Self {
        let method = match request.speculate.method.unwrap_or(limits.method) {
            _ if request.speculate.max_drafts == 0 => Method::None,
            method => method,
        };
        let looks = match method {
            Method::None => false,
            Method::Ngram | Method::Auto => true,
            Method::Mtp | Method::Dflash | Method::Ddtree => limits.lookup_min.is_some(),
        };
        Self {
            limits,
            method,
            max_drafts: limits.max_drafts.min(request.speculate.max_drafts),
            tree_budget: limits.tree_budget.min(request.speculate.tree_budget),
            // Where rows are measured, there is a use for all that a step has room for.
            max_lookup: match method {
                Method::Auto => limits.most_drafts().min(request.speculate.max_drafts),
                _ => limits.max_drafts.min(request.speculate.max_drafts),
            },
            lookup: looks.then(|| {
                let mut lookup = Lookup::ending_with(&request.stop_ids);
                lookup.append(&request.prompt);
                lookup.begin_answer();
                lookup
            }),
            policy: SequencePolicy::default(),
            plan: DraftPlan::None,
        }
    }

    /// How it drafts, as the ranks have to know from the start.
    pub(crate) fn method(&self) -> Method {
        self.method
    }

    /// The next step's drafts; at most `left` tokens, the bonus token included, are still wanted,
    /// and `running` requests are decoded in the step.
    pub(crate) fn plan(&mut self, policy: &mut Policy, running: usize, left: usize) -> DraftPlan {
        // With its bonus token a path must fit what is left to generate.
        let most = left.saturating_sub(1);
        let plan = match (self.method, &self.lookup) {
            _ if most == 0 => DraftPlan::None,
            (Method::Auto, Some(lookup)) => {
                let choices = self.choices(most);
                self.policy.plan(policy, choices, running, lookup)
            }
            _ => self.fixed(most),
        };
        self.plan = plan.outline();
        plan
    }

    fn fixed(&self, most: usize) -> DraftPlan {
        if let Some(drafts) = self.look_up(most.min(self.max_lookup)) {
            return DraftPlan::Given(drafts);
        }
        let most = most.min(self.max_drafts);
        let depth = most.min(self.limits.block_drafts);
        match self.method {
            Method::None | Method::Ngram | Method::Auto => DraftPlan::None,
            Method::Mtp => DraftPlan::Mtp {
                depth: most.min(Speculation::MOST_MTP_DRAFTS),
            },
            Method::Dflash => DraftPlan::Chain { depth },
            Method::Ddtree => DraftPlan::Tree(TreeShape {
                budget: self.tree_budget,
                depth,
                seeded: self.limits.seeded,
            }),
        }
    }

    fn choices(&self, left: usize) -> Choices {
        let most = left.min(self.max_drafts);
        Choices {
            chain: most.min(self.limits.block_drafts),
            tree_budget: self.tree_budget,
            seeded: self.limits.seeded,
            // The head follows a sequence only where no drafter does.
            mtp: match self.limits.mtp && self.limits.block_drafts == 0 {
                true => most.min(Speculation::MOST_MTP_DRAFTS),
                false => 0,
            },
            lookup: left.min(self.max_lookup),
        }
    }

    /// What followed the end of the text before, if enough of it repeats.
    fn look_up(&self, most: usize) -> Option<Vec<u32>> {
        let lookup = self.lookup.as_ref()?;
        let least = self.limits.lookup_min.unwrap_or(LOOKUP_MIN);
        let repeat = lookup.repeat().filter(|repeat| repeat.len >= least)?;
        Some(lookup.continuation(repeat, most))
    }

    /// Takes in what a step gave, the first token of a prompt, too.
    pub(crate) fn take(&mut self, policy: &mut Policy, update: &SlotUpdate) {
        if self.method == Method::Auto {
            let outcome = Outcome {
                depth: update.depth,
                accepted: update.accepted,
                spine: update.spine,
                tokens: &update.tokens,
                ended: update.stop.is_some(),
            };
            self.policy.take(policy, &self.plan, &outcome);
        }
        let plan = std::mem::take(&mut self.plan);
        let hurried = self.method == Method::Auto && policy.is_hurried();
        if let Some(lookup) = &mut self.lookup {
            // The first token of an answer may tell that it was given before.
            let first = lookup.said() == 0;
            lookup.append(&update.tokens);
            if first || !hurried || lookup.has_left(&plan) {
                lookup.settle();
            }
        }
        if self.method == Method::Auto && !hurried {
            self.policy.settle(policy);
        }
    }

    /// Does what no plan waits for: it goes on beside the step.
    pub(crate) fn settle(&mut self, policy: &mut Policy) {
        if let Some(lookup) = &mut self.lookup {
            lookup.settle();
        }
        if self.method == Method::Auto {
            self.policy.settle(policy);
        }
    }
}

/// What a step of these plans teaches about costs, by the kind of those that take time for their drafts
/// and how many they are: nothing when they are of several kinds.
pub(crate) fn step_kind(steps: &[DecodeStep]) -> Option<(StepKind, usize)> {
    let kinds = steps.iter().map(|step| StepKind::of(&step.draft));
    let mut drafted = kinds.filter(|&kind| kind != StepKind::Plain);
    match drafted.next() {
        None if steps.is_empty() => None,
        None => Some((StepKind::Plain, steps.len())),
        Some(first) => {
            let mut count = 1;
            let same = drafted.inspect(|_| count += 1).all(|kind| kind == first);
            same.then_some((first, count))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A question that was asked before, on a device whose steps are short; the answer behind it may be
    /// looked up as far as a step has room.
    #[test]
    fn the_first_token_of_an_answer_tells_that_it_was_given_before() {
        let limits = DraftLimits {
            tree_budget: 47,
            ..DraftLimits::new(&Speculation::of(Method::Auto), 16, false)
        };
        let (question, answer): (Vec<u32>, Vec<u32>) = ((100..120).collect(), (200..260).collect());
        let prompt = [&question[..], &answer, &[7, 8], &question, &[1, 2, 3]].concat();
        for (method, drafts) in [(Method::Auto, 47), (Method::Ngram, 15)] {
            let mut policy = Policy::default();
            for (kind, rows, ms) in [
                (StepKind::Plain, 1, 0.2),
                (StepKind::Plain, 64, 0.3),
                (StepKind::Block, 16, 0.35),
            ] {
                policy.costs.calibrate(kind, 1, rows, ms);
            }
            let mut request = Request::new(prompt.clone(), 100);
            request.speculate.method = Some(method);
            let mut drafter = RequestDrafter::new(&request, limits);
            drafter.settle(&mut policy);
            let said = SlotUpdate {
                tokens: answer[..1].to_vec(),
                ..SlotUpdate::default()
            };
            drafter.take(&mut policy, &said);
            let plan = drafter.plan(&mut policy, 1, 99);
            assert_eq!(plan, DraftPlan::Given(answer[1..1 + drafts].to_vec()));
        }
    }

    #[test]
    fn steps_teach_what_those_that_draft_alike_cost() {
        let kind = |drafts: &[DraftPlan]| {
            let step = |draft: &DraftPlan| DecodeStep {
                slot: 0,
                past: 0,
                draft: draft.clone(),
                blocks: Vec::new(),
            };
            step_kind(&drafts.iter().map(step).collect::<Vec<_>>())
        };
        let (none, given) = (DraftPlan::None, DraftPlan::Given(vec![1]));
        let (chain, mtp) = (DraftPlan::Chain { depth: 3 }, DraftPlan::Mtp { depth: 3 });
        assert_eq!(kind(&[]), None);
        assert_eq!(
            kind(&[none.clone(), given.clone()]),
            Some((StepKind::Plain, 2))
        );
        let mixed = [none, chain.clone(), given, chain.clone()];
        assert_eq!(kind(&mixed), Some((StepKind::Block, 2)));
        assert_eq!(kind(&[chain, mtp]), None);
    }
}
