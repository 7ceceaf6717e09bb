use crate::{Guess, Lookup, Proposal, Repeat, best_first};

/// A way to draft from known marginals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Simulated {
    /// One token per step.
    None,
    /// The chain of the first guesses.
    Chain(usize),
    /// A best-first tree of so many nodes.
    Tree {
        /// Nodes.
        budget: usize,
        /// Whether it begins with the chain.
        seeded: bool,
    },
    /// What followed the longest repeat, of so many tokens at least.
    Lookup {
        /// Most drafts.
        drafts: usize,
        /// Shortest repeat.
        least: usize,
    },
}

/// Steps that a way to draft takes to say `output` behind `prompt`, each from where the last one
/// ended: an exact count, because greedy verification follows the output whatever is drafted.
/// `marginals[i]` are the guesses by depth behind `output[i]`; the first token of the output comes
/// with the prompt.
pub fn simulate(
    how: Simulated,
    prompt: &[u32],
    output: &[u32],
    marginals: &[Vec<Vec<Guess>>],
) -> usize {
    let mut lookup = Lookup::default();
    lookup.extend(prompt);
    let mut steps = 0;
    let mut said = 1;
    lookup.extend(&output[..said.min(output.len())]);
    while said < output.len() {
        // Nobody knows where the output ends: drafts go on behind it.
        let rows = marginals.get(said - 1).map_or(&[][..], Vec::as_slice);
        let proposal = match how {
            Simulated::None => Proposal::default(),
            Simulated::Chain(depth) => {
                let depth = depth.min(rows.len());
                best_first(&rows[..depth], depth, true)
            }
            Simulated::Tree { budget, seeded } => best_first(rows, budget, seeded),
            Simulated::Lookup { drafts, least } => {
                let repeat = lookup
                    .repeat()
                    .filter(|repeat: &Repeat| repeat.len >= least);
                let tokens = repeat.map(|at| lookup.continuation(at, drafts));
                Proposal {
                    tokens: tokens.unwrap_or_default(),
                    ..Proposal::default()
                }
            }
        };
        let accepted = follow(&proposal, &output[said..]);
        let next = (said + accepted + 1).min(output.len());
        lookup.extend(&output[said..next]);
        said = next;
        steps += 1;
    }
    steps
}

/// Drafts on the path that `text` takes through a proposal.
pub(crate) fn follow(proposal: &Proposal, text: &[u32]) -> usize {
    let mut row = 0;
    for (depth, token) in text.iter().enumerate() {
        let child = proposal.tokens.iter().enumerate().position(|(draft, at)| {
            let parent = match &proposal.parents {
                None => draft,
                Some(parents) => parents[draft] as usize,
            };
            parent == row && at == token
        });
        match child {
            Some(draft) => row = draft + 1,
            None => return depth,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guesses(tokens: &[u32]) -> Vec<Guess> {
        let guess = |(rank, &token): (usize, &u32)| Guess {
            token,
            score: -(rank as f64) - 0.1,
        };
        tokens.iter().enumerate().map(guess).collect()
    }

    /// Every position's block is right but for its third token, whose second guess is right.
    #[test]
    fn steps_are_counted_from_where_the_last_one_ended() {
        let output: Vec<u32> = (10..31).collect();
        let marginals: Vec<Vec<Vec<Guess>>> = (0..output.len())
            .map(|at| {
                let right = |depth: usize| output.get(at + depth).copied().unwrap_or(0);
                (1..=4)
                    .map(|depth| match depth {
                        3 => guesses(&[99, right(3)]),
                        _ => guesses(&[right(depth), 98]),
                    })
                    .collect()
            })
            .collect();
        let steps = |how| simulate(how, &[1, 2], &output, &marginals);
        assert_eq!(steps(Simulated::None), 20);
        // Two drafts and a bonus token, 3 at a time.
        assert_eq!(steps(Simulated::Chain(4)), 7);
        assert_eq!(steps(Simulated::Chain(1)), 10);
        // The second guess and what follows it: 5 at a time.
        let tree = |budget, seeded| steps(Simulated::Tree { budget, seeded });
        assert_eq!(tree(30, true), 4);
        assert!(tree(5, true) <= 7);
        assert!(tree(30, false) <= tree(4, false));
        let lookup = Simulated::Lookup {
            drafts: 15,
            least: 1,
        };
        assert_eq!(steps(lookup), 20);
    }

    /// At the end of an output there are fewer right guesses than the chain has drafts: it stays a
    /// chain, and a tree is no larger than its budget says.
    #[test]
    fn what_is_drafted_does_not_know_the_end() {
        let output = [1, 2, 3];
        // The second guess for the token 2 is right; behind it the drafter goes on.
        let behind = |first| vec![guesses(&[first, 2]), guesses(&[3, 50]), guesses(&[51, 52])];
        let marginals = [behind(9), vec![guesses(&[3]), guesses(&[51])], Vec::new()];
        let steps = |how| simulate(how, &[7], &output, &marginals);
        assert_eq!(steps(Simulated::Chain(15)), 2);
        let tree = |budget, seeded| steps(Simulated::Tree { budget, seeded });
        assert_eq!([3, 4, 5].map(|budget| tree(budget, true)), [2, 1, 1]);
        // An end token that is accepted has no bonus token behind it.
        assert_eq!(
            simulate(Simulated::Chain(15), &[7], &output, &[behind(2)]),
            1
        );
    }

    #[test]
    fn a_copy_takes_few_steps() {
        let text: Vec<u32> = (10..42).collect();
        let lookup = |least| Simulated::Lookup { drafts: 15, least };
        assert_eq!(simulate(lookup(1), &text, &text, &[]), 2);
        assert_eq!(simulate(lookup(40), &text, &text, &[]), 31);
        assert_eq!(simulate(lookup(1), &text, &[], &[]), 0);
    }
}
