use std::collections::BTreeMap;

use crate::policy::{Choices, Outcome, Policy, SequencePolicy, StepKind};
use crate::simulate::follow;
use crate::{DraftPlan, Guess, Lookup, best_first};

/// A recorded greedy answer, and how far drafts behind each of its tokens would have been right:
/// all that is needed to walk along it with any policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trajectory {
    /// Tokens before the answer.
    pub prompt: Vec<u32>,
    /// The answer; its first token comes with the prompt.
    pub output: Vec<u32>,
    /// Drafts of a whole chain.
    pub depth: usize,
    /// Right drafts of the whole chain behind each token of the answer, at most to its end.
    pub chain: Vec<usize>,
    /// The same for trees that begin with the chain, by nodes.
    pub trees: BTreeMap<usize, Vec<usize>>,
}

/// A walk along a trajectory, step by step.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    trajectory: &'a Trajectory,
    lookup: Lookup,
    said: usize,
}

impl Trajectory {
    /// From the guesses by depth behind each token of `output`, with trees of `budgets` nodes.
    pub fn record(
        prompt: &[u32],
        output: &[u32],
        marginals: &[Vec<Vec<Guess>>],
        budgets: &[usize],
    ) -> Self {
        let right = |budget: Option<usize>| {
            let behind = marginals.iter().take(output.len()).enumerate();
            behind
                .map(|(at, rows)| {
                    let tree = best_first(rows, budget.unwrap_or(rows.len()), true);
                    follow(&tree, &output[at + 1..])
                })
                .collect()
        };
        Self {
            prompt: prompt.to_vec(),
            output: output.to_vec(),
            depth: marginals.first().map_or(0, Vec::len),
            chain: right(None),
            trees: budgets.iter().map(|&n| (n, right(Some(n)))).collect(),
        }
    }

    /// At the beginning: the prompt has given the first token.
    pub fn walk(&self) -> Walk<'_> {
        let said = self.output.len().min(1);
        // Where an answer ends is known by its last token.
        let mut lookup = Lookup::ending_with(&self.output[self.output.len() - said..]);
        lookup.extend(&self.prompt);
        lookup.begin_answer();
        lookup.extend(&self.output[..said]);
        Walk {
            trajectory: self,
            lookup,
            said,
        }
    }

    /// Goes along the answer by a policy, on an engine that runs nothing else and whose steps of
    /// some kind and rows take `ms`. Comes to the plans and what they took.
    ///
    /// # Panics
    /// As [`Walk::step`].
    pub fn replay(
        &self,
        policy: &mut Policy,
        choices: Choices,
        mut ms: impl FnMut(StepKind, usize) -> f64,
    ) -> Vec<(DraftPlan, f64)> {
        let mut sequence = SequencePolicy::default();
        let mut walk = self.walk();
        let mut steps = Vec::new();
        while !walk.ended() {
            let plan = sequence.plan(policy, choices, 1, walk.lookup());
            // Beside the step, what it was too soon for before.
            walk.lookup.settle();
            sequence.settle(policy);
            let (kind, rows) = (StepKind::of(&plan), 1 + plan.most_drafts());
            let took = ms(kind, rows);
            let outcome = walk.advance(&plan);
            policy.costs.take(kind, 1, rows, took);
            sequence.take(policy, &plan, &outcome);
            if !policy.is_hurried() {
                walk.lookup.settle();
                sequence.settle(policy);
            } else if walk.lookup.has_left(&plan) {
                walk.lookup.settle();
            }
            steps.push((plan, took));
        }
        steps
    }
}

impl<'a> Walk<'a> {
    /// The text so far.
    pub fn lookup(&self) -> &Lookup {
        &self.lookup
    }

    /// Whether the answer is said.
    pub fn ended(&self) -> bool {
        self.said == self.trajectory.output.len()
    }

    /// Verifies a draft against the answer and goes on behind it.
    ///
    /// # Panics
    /// When a tree has a size that was not recorded.
    pub fn step(&mut self, plan: &DraftPlan) -> Outcome<'a> {
        let outcome = self.advance(plan);
        self.lookup.settle();
        outcome
    }

    /// The same, the lookup not settled.
    fn advance(&mut self, plan: &DraftPlan) -> Outcome<'a> {
        let Trajectory {
            output,
            chain,
            trees,
            depth,
            ..
        } = self.trajectory;
        let at = self.said - 1;
        let (depth, spine, accepted) = match plan {
            DraftPlan::None | DraftPlan::Mtp { .. } => (0, 0, 0),
            DraftPlan::Given(drafts) => {
                let pairs = drafts.iter().zip(&output[self.said..]);
                let right = pairs.take_while(|(draft, token)| draft == token).count();
                (drafts.len(), right, right)
            }
            DraftPlan::Chain { depth } => (*depth, chain[at].min(*depth), chain[at].min(*depth)),
            DraftPlan::Tree(shape) => (*depth, chain[at], trees[&shape.budget][at]),
        };
        let end = (self.said + accepted + 1).min(output.len());
        let tokens = &output[self.said..end];
        self.lookup.append(tokens);
        self.said = end;
        Outcome {
            depth,
            accepted,
            spine,
            tokens,
            ended: self.ended(),
        }
    }
}
