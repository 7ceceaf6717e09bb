use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::str::FromStr;

use crate::draft::{Foreseen, foreseen};
use crate::noise::{Noise, Stream};
use crate::surprisal::surprisals;
use crate::{
    Allowed, Candidates, Choice, Distribution, Error, History, Logits, Proposal, Row,
    SamplingParams, TreeShape,
};

/// A token that may stand at some depth, with the logarithm of the probability that it does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guess {
    /// Token id.
    pub token: u32,
    /// The logarithm, the same multiple of it in all rows.
    pub score: f64,
}

/// What orders the nodes of a tree when tokens are sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TreeOrder {
    /// The drafter's probabilities. The noise is not looked at: the chain of likeliest tokens is
    /// not the chain that [`crate::draft_chain`] drafts.
    #[default]
    Marginal,
    /// The drafter's probabilities, each over the exponential noise that the target will choose
    /// with: the target's token is the one with the largest such ratio of its own. Worth it where
    /// the drafter is as sure as the target; a target that is surer hardly heeds the noise.
    Perturbed,
}

impl TreeOrder {
    /// Temperature and number of the candidates of a row whose softmax orders nodes, whatever their tokens
    /// are: then a tree needs nobody that sees them. None where bias, penalties, noise or a filter of mass
    /// have a say.
    pub fn softmax(self, params: &SamplingParams) -> Option<(f32, usize)> {
        let open = params.top_p == 1.0 && params.min_p == 0.0;
        match params.leaves_logits() {
            true if params.temperature == 0.0 => Some((1.0, usize::MAX)),
            true if open && self == Self::Marginal => match params.top_k {
                0 => Some((params.temperature, usize::MAX)),
                top_k => Some((params.temperature, top_k)),
            },
            _ => None,
        }
    }
}

impl FromStr for TreeOrder {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "marginal" => Ok(Self::Marginal),
            "perturbed" => Ok(Self::Perturbed),
            _ => Err(format!("it is \"marginal\" or \"perturbed\", not {name:?}")),
        }
    }
}

/// Tree of drafts over the rows of a block, the first row for `position`: the
/// prefixes of largest joint probability, as if positions were independent. The first child of
/// every node is what [`draft_chain`](crate::draft_chain) drafts under
/// [`Rule::Match`](crate::Rule::Match) (with [`TreeOrder::Perturbed`], or at temperature 0), so a
/// tree seeded with a chain keeps all that the chain would. The other children are candidates where these
/// do not decide a row.
///
/// Each draft of that chain counts as history of the rows behind it. `history` ends with the
/// anchor and is left as it was.
///
/// # Errors
/// As [`crate::distribution_of`].
pub fn draft_tree(
    logits: &mut dyn Logits,
    params: &SamplingParams,
    history: &mut History,
    allowed: usize,
    position: usize,
    shape: TreeShape,
    order: TreeOrder,
) -> Result<Proposal, Error> {
    params.validate()?;
    let softmax = order.softmax(params);
    let committed = history.output().len();
    let marginals = (0..shape.depth)
        .map(|row| {
            if let Some((temperature, count)) = softmax
                && let Row::Likeliest(candidates) = logits.row(row)?
                && candidates.log_sum_exp.is_finite()
            {
                return Ok(likeliest(&candidates, temperature, count));
            }
            let choice = Choice {
                params,
                history,
                allowed,
                next: &Allowed::All,
                position: position + row,
            };
            let known = marginal(logits, row, &choice, shape.budget)?;
            let noise = match order {
                TreeOrder::Perturbed if params.temperature > 0.0 => {
                    Some(Noise::new(params.seed, position + row, Stream::Token))
                }
                _ => None,
            };
            let chained = noise.is_some() || params.temperature == 0.0 || known.others;
            let mut guesses = ranked(&known.distribution, noise, shape.budget);
            if chained && !known.whole {
                put_first(&mut guesses, logits.draw(row, &choice)?);
            }
            history.push(guesses[0].token);
            Ok(guesses)
        })
        .collect::<Result<Vec<_>, Error>>();
    history.truncate(committed);
    Ok(best_first(&marginals?, shape.budget, shape.seeded))
}

/// The first `count` candidates of a row.
fn likeliest(candidates: &Candidates<'_>, temperature: f32, count: usize) -> Vec<Guess> {
    let logits = &candidates.logits[..candidates.logits.len().min(count)];
    let surprisals = surprisals(logits, temperature).into_iter();
    let guess = |(&token, surprisal): (&u32, u32)| Guess {
        token,
        score: -f64::from(surprisal),
    };
    candidates.ids.iter().zip(surprisals).map(guess).collect()
}

/// What the target's token at a row may be: the distribution it would be sampled from, or at
/// temperature 0 the `count` likeliest tokens.
fn marginal(
    logits: &mut dyn Logits,
    row: usize,
    choice: &Choice<'_>,
    count: usize,
) -> Result<Foreseen, Error> {
    if choice.params.temperature > 0.0 {
        return foreseen(logits, row, choice);
    }
    // What is left out has next to no mass, so the rest need not be normalised by all.
    let params = SamplingParams {
        temperature: 1.0,
        top_k: count.max(1),
        top_p: 1.0,
        min_p: 0.0,
        ..choice.params.clone()
    };
    let choice = Choice {
        params: &params,
        ..*choice
    };
    foreseen(logits, row, &choice)
}

/// At most `count` candidates, likeliest first, but one at least; given the noise, by what it
/// leaves likely.
fn ranked(marginal: &Distribution, noise: Option<Noise>, count: usize) -> Vec<Guess> {
    let mut weights: Vec<(u32, f64)> = match noise {
        None => marginal.iter().map(|(t, p)| (t, f64::from(p))).collect(),
        Some(mut noise) => {
            let ratio = |(token, p)| (token, f64::from(p) / -noise.uniform(token).ln());
            marginal.iter().map(ratio).collect()
        }
    };
    let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
    let by_rank = |a: &(u32, f64), b: &(u32, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    let count = count.clamp(1, weights.len());
    weights.select_nth_unstable_by(count - 1, by_rank);
    weights.truncate(count);
    weights.sort_unstable_by(by_rank);
    let candidate = |(token, weight): (u32, f64)| Guess {
        token,
        score: (weight / total).ln(),
    };
    weights.into_iter().map(candidate).collect()
}

/// Puts a token before all others, as likely as the first was.
fn put_first(guesses: &mut Vec<Guess>, token: u32) {
    let (first, most) = (guesses[0], guesses.len());
    guesses.retain(|guess| guess.token != token);
    guesses.insert(0, Guess { token, ..first });
    guesses.truncate(most);
}

/// The `budget` likeliest prefixes over independent `marginals` (one row per depth, likeliest
/// first), parents before children. `seeded` puts the chain of the first candidates in before
/// anything else.
pub fn best_first(marginals: &[Vec<Guess>], budget: usize, seeded: bool) -> Proposal {
    let mut tree = Tree {
        marginals,
        open: BinaryHeap::new(),
        tokens: Vec::new(),
        parents: Vec::new(),
        opened: 0,
    };
    tree.open(0, 0, 0, 0.0);
    if seeded {
        // The heap holds one node at a time here: its sibling waits until the chain is in.
        let mut siblings = Vec::new();
        while tree.tokens.len() < budget
            && let Some(node) = tree.open.pop()
        {
            tree.add_with_child(node);
            siblings.push(node);
        }
        for node in siblings {
            tree.open_sibling(node);
        }
    }
    while tree.tokens.len() < budget
        && let Some(node) = tree.open.pop()
    {
        tree.open_sibling(node);
        tree.add_with_child(node);
    }
    Proposal {
        tokens: tree.tokens,
        parents: Some(tree.parents),
        distributions: None,
    }
}

struct Tree<'a> {
    marginals: &'a [Vec<Guess>],
    open: BinaryHeap<Node>,
    tokens: Vec<u32>,
    parents: Vec<u32>,
    opened: usize,
}

/// A node that may be added.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// Log-probability of the path to it.
    score: f64,
    /// Order of opening, which breaks ties.
    order: usize,
    /// Row of its parent.
    parent: u32,
    depth: usize,
    rank: usize,
}

impl Tree<'_> {
    /// Makes the candidate `rank` at `depth` behind row `parent` of score `above` eligible.
    fn open(&mut self, parent: u32, depth: usize, rank: usize, above: f64) {
        let row = self.marginals.get(depth);
        if let Some(candidate) = row.and_then(|row| row.get(rank)) {
            self.open.push(Node {
                score: above + candidate.score,
                order: self.opened,
                parent,
                depth,
                rank,
            });
            self.opened += 1;
        }
    }

    fn open_sibling(&mut self, node: Node) {
        let above = node.score - self.marginals[node.depth][node.rank].score;
        self.open(node.parent, node.depth, node.rank + 1, above);
    }

    fn add_with_child(&mut self, node: Node) {
        self.tokens
            .push(self.marginals[node.depth][node.rank].token);
        self.parents.push(node.parent);
        self.open(self.tokens.len() as u32, node.depth + 1, 0, node.score);
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Node {}

impl PartialOrd for Node {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Node {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_score = self.score.total_cmp(&other.score);
        by_score.then(other.order.cmp(&self.order))
    }
}

#[cfg(test)]
mod tests;
