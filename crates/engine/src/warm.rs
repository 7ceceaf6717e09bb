//! Passes before the first request, in which a GPU chooses the algorithms of its products and records
//! what a step is.

use std::time::Instant;

use volley_speculate::DraftPlan;

use crate::layout::Layout;
use crate::ranks::{RankGroup, StepFailure};
use crate::trial::Trial;

/// Fewest rows of a prompt chunk that are prepared for; algorithms of fewer are chosen as they come.
const LEAST_ROWS: usize = 128;
/// Steps of each kind: one runs, one is recorded, one is repeated.
const STEPS: usize = 3;

/// Runs prompt chunks of every size class, the largest first, and steps behind the last one, in slot 0
/// where nothing runs yet.
pub(crate) fn warm_up(
    ranks: &mut RankGroup,
    layout: &Layout,
    block_size: usize,
) -> Result<(), StepFailure> {
    let begun = Instant::now();
    let limits = layout.scheduler;
    let drafts = limits.drafts;
    let depth = drafts.block_drafts.min(drafts.max_drafts);
    // Every step may be accepted whole.
    let behind = STEPS * (2 + depth) + limits.draft_rows;
    let most = limits.max_model_len.min(layout.target.blocks * block_size);
    let Some(longest) = most.checked_sub(behind).filter(|longest| *longest > 0) else {
        return Ok(());
    };
    let mut trial = Trial::new(
        ranks,
        (longest + behind)
            .div_ceil(block_size)
            .min(layout.target.blocks),
    );
    let mut rows = limits.prefill_chunk.min(longest);
    loop {
        trial.enter(rows, drafts.method)?;
        match rows / 2 {
            half if half < LEAST_ROWS => break,
            half => rows = half,
        }
    }
    let mut kinds = vec![DraftPlan::None];
    if depth > 0 {
        kinds.push(DraftPlan::Chain { depth });
    }
    for kind in kinds {
        for _ in 0..STEPS {
            trial.decode(&kind)?;
        }
    }
    tracing::info!("first passes: {:.2} s", begun.elapsed().as_secs_f64());
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;

    use volley_model::Checkpoint;

    use super::warm_up;
    use crate::engine::start_ranks;
    use crate::{EngineOptions, Sources, Speculation};

    /// Whatever there is room for: chunks shorter than the longest text, as long, longer; a cache that
    /// holds nothing but one text.
    #[test]
    fn first_passes_fit_every_engine() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/golden");
        for (max_model_len, prefill_chunk, speculation) in [
            (400, 300, Speculation::dflash(15)),
            (130, 256, Speculation::none()),
            (20, 64, Speculation::dflash(3)),
            (2, 1, Speculation::none()),
        ] {
            let options = EngineOptions {
                max_model_len: Some(max_model_len),
                prefill_chunk,
                speculation,
                ..EngineOptions::default()
            };
            let sources = Sources {
                target: Checkpoint::open(&golden.join("target")).unwrap(),
                drafter: Some(Checkpoint::open(&golden.join("drafter")).unwrap()),
            };
            let (mut ranks, layout, block_size) = start_ranks(&options, sources).unwrap();
            warm_up(&mut ranks, &layout, block_size).unwrap();
            ranks.stop();
        }
    }
}
