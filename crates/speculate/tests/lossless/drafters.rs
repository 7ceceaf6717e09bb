//! Ways to draft in the toy language, and settings to sample with.

use volley_speculate::{
    History, Proposal, Rule, SamplingParams, TreeOrder, TreeShape, WholeRows, argmax, draft_chain,
    draft_tree,
};

use crate::common::{VOCAB, drafter_logits, random, uniform};

/// Every filter off, and all of them on, at both temperatures.
pub fn settings() -> Vec<SamplingParams> {
    let mut all = Vec::new();
    for temperature in [0.7, 1.0] {
        let plain = SamplingParams {
            temperature,
            ..SamplingParams::default()
        };
        let filtered = SamplingParams {
            top_k: 6,
            top_p: 0.95,
            min_p: 0.02,
            presence_penalty: 0.2,
            frequency_penalty: 0.3,
            repetition_penalty: 1.1,
            logit_bias: [(2, 0.4)].into(),
            ..plain.clone()
        };
        all.extend([plain, filtered]);
    }
    all
}

pub fn block(history: &History, depth: usize) -> Vec<Vec<f32>> {
    let path = history.output();
    (0..depth)
        .map(|index| drafter_logits(path, index))
        .collect()
}

/// Sampled drafts of the rule.
pub fn sampled(
    depth: usize,
    rule: Rule,
) -> impl Fn(&SamplingParams, &mut History, usize) -> Proposal {
    move |params, history, position| {
        let rows = block(history, depth);
        let rows = rows.concat();
        let logits = &mut WholeRows::new(&rows, VOCAB);
        draft_chain(logits, depth, params, history, VOCAB, position, rule).unwrap()
    }
}

/// The drafter's likeliest tokens.
pub fn greedy(depth: usize) -> impl Fn(&SamplingParams, &mut History, usize) -> Proposal {
    move |_, history, _| {
        let rows = block(history, depth);
        let tokens = rows.iter().map(|logits| argmax(logits, VOCAB).unwrap());
        Proposal {
            tokens: tokens.collect(),
            ..Proposal::default()
        }
    }
}

/// A random tree of up to 12 drafts, drawn afresh for every seed and position.
pub fn tree(params: &SamplingParams, _: &mut History, position: usize) -> Proposal {
    let mut random = random(1000 * params.seed + position as u64);
    let mut below = |bound: usize| (uniform(&mut random) * bound as f64) as u32;
    let size = below(13) as usize;
    Proposal {
        tokens: (0..size).map(|_| below(VOCAB)).collect(),
        parents: Some((0..size).map(|index| below(index + 1)).collect()),
        distributions: None,
    }
}

/// A best-first tree over the block's marginals.
pub fn best_first(
    shape: TreeShape,
    order: TreeOrder,
) -> impl Fn(&SamplingParams, &mut History, usize) -> Proposal {
    move |params, history, position| {
        let rows = block(history, shape.depth).concat();
        let logits = &mut WholeRows::new(&rows, VOCAB);
        draft_tree(logits, params, history, VOCAB, position, shape, order).unwrap()
    }
}

/// Trees of both orders, with and without a chain to begin with.
pub fn shapes() -> impl Iterator<Item = (TreeShape, TreeOrder)> {
    let shape = |budget, depth, seeded| TreeShape {
        budget,
        depth,
        seeded,
    };
    [
        (shape(9, 3, true), TreeOrder::Perturbed),
        (shape(9, 3, false), TreeOrder::Perturbed),
        (shape(4, 2, false), TreeOrder::Marginal),
        (shape(9, 3, true), TreeOrder::Marginal),
    ]
    .into_iter()
}
