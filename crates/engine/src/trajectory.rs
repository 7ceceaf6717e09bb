//! Greedy continuations with what a drafter would have said at every position of them.

use volley_model::{Drafter, DrafterConfig, Limits, Target, TargetConfig, TopRow};
use volley_ops::{Batch, Ops, Segment};
use volley_speculate::Guess;

use crate::{EngineError, Sources, cpu};

/// Guesses for the tokens behind one position, by depth, likeliest first.
pub type Marginals = Vec<Vec<Guess>>;

/// Runs target and drafter over `prompt` and `output` (what the target itself said, greedily) and
/// gives the drafter's marginals behind each token of `output`. On the CPU.
///
/// # Errors
/// Without a drafter, or as the models fail.
pub fn marginals(
    sources: &Sources,
    prompt: &[u32],
    output: &[u32],
) -> Result<Vec<Marginals>, EngineError> {
    let Some(drafter) = &sources.drafter else {
        return Err(EngineError::Options("there is no drafter to ask".into()));
    };
    let ops = cpu::ops(1);
    let [ops] = ops.as_slice() else {
        return Err(EngineError::Options("one rank is enough".into()));
    };
    let target = TargetConfig::read(&sources.target)?;
    let config = DrafterConfig::read(drafter, Some(&target))?;
    let block = config.block_size;
    let text = [prompt, output].concat();
    let blocks = (text.len() + block).div_ceil(ops.block_size());
    let limits = Limits {
        max_rows: text.len().max(block),
        verify_rows: block,
        slots: 1,
        blocks,
    };
    let taps = config.target_layer_ids;
    let mut target = Target::load(ops, &sources.target, &taps, limits)?;
    let mut drafter = Drafter::load(ops, drafter, target.config(), limits)?;
    let batch = |past: usize, rows: usize| Batch {
        segments: vec![Segment {
            rows: 0..rows,
            slot: 0,
            past,
            blocks: (0..blocks as u32).collect(),
            parents: None,
        }],
    };
    target.prefill(ops, &text, &batch(0, text.len()))?;
    let all: Vec<u32> = (0..text.len() as u32).collect();
    let allowed = target.config().vocab_size;
    let mut marginals = Vec::with_capacity(output.len());
    for (anchor, past) in output.iter().zip(prompt.len()..) {
        // The context ends before the anchor.
        let taken = if past == prompt.len() { 0 } else { past - 1 };
        let rows = &all[taken..past];
        drafter.append(ops, target.taps(), rows, &batch(taken, rows.len()))?;
        let sizes = [block - 1, allowed];
        let batch = batch(past, block);
        let found = drafter.draft(ops, &mut target, &[*anchor], &batch, sizes, &[], &[])?;
        let top = found.tops;
        marginals.push(top.iter().map(guesses).collect());
    }
    Ok(marginals)
}

fn guesses(row: &TopRow) -> Vec<Guess> {
    let tokens = row.ids.iter().zip(&row.logits);
    tokens
        .map(|(&token, &logit)| Guess {
            token,
            score: f64::from(logit) - row.log_sum_exp,
        })
        .collect()
}
