//! What steps cost, timed before the first request.

use volley_speculate::policy::{Policy, StepKind};
use volley_speculate::{DraftPlan, Method, TreeShape};

use crate::Speculation;
use crate::layout::Layout;
use crate::ranks::{RankGroup, StepFailure};
use crate::trial::Trial;

/// Tokens of the text that is timed.
const PROMPT: usize = 16;
/// Steps of each kind that are timed.
const ROUNDS: usize = 5;
/// Steps of each kind before: devices prepare for what they have not run yet.
const WARM: usize = 2;
/// Rows of the passes that are timed.
const ROWS: [usize; 8] = [1, 2, 4, 8, 16, 24, 32, 64];

/// Times steps of many sizes on a text of no meaning in slot 0, where nothing runs yet. An engine
/// too small for it learns from its requests alone.
pub(crate) fn calibrate(
    ranks: &mut RankGroup,
    layout: &Layout,
    block_size: usize,
) -> Result<Policy, StepFailure> {
    let drafts = layout.scheduler.drafts;
    let mut policy = Policy::default();
    let block_rows = layout.scheduler.draft_rows;
    let most_rows = 1 + drafts.most_drafts();
    // Every step may be accepted whole.
    let most_tokens = PROMPT + (ROWS.len() + 2) * most_rows + block_rows;
    let blocks = most_tokens.div_ceil(block_size);
    if blocks > layout.target.blocks || most_tokens > layout.scheduler.max_model_len {
        return Ok(policy);
    }
    let mut trial = Trial::new(ranks, blocks);
    let rows = ROWS.into_iter().filter(|&rows| rows <= most_rows);
    let given = |rows: usize| (StepKind::Plain, rows, DraftPlan::Given(vec![0; rows - 1]));
    let mut steps: Vec<(StepKind, usize, DraftPlan)> = rows.map(given).collect();
    if drafts.block_drafts > 0 {
        let depth = drafts.block_drafts.min(drafts.max_drafts);
        steps.push((StepKind::Block, 1 + depth, DraftPlan::Chain { depth }));
        if drafts.tree_budget > depth {
            let shape = TreeShape {
                budget: drafts.tree_budget,
                depth,
                seeded: drafts.seeded,
            };
            steps.push((StepKind::Tree, 1 + shape.budget, DraftPlan::Tree(shape)));
        }
    } else if drafts.mtp {
        let depth = drafts.max_drafts.min(Speculation::MOST_MTP_DRAFTS);
        steps.push((StepKind::Mtp(depth), 1 + depth, DraftPlan::Mtp { depth }));
    }
    for ((kind, rows, _), ms) in steps.iter().zip(time(&mut trial, drafts.method, &steps)?) {
        policy.costs.calibrate(*kind, *rows, ms);
    }
    tracing::debug!("costs of steps: {:?}", policy.costs);
    Ok(policy)
}

/// Milliseconds of each step, the median of some rounds. Each round takes all of them in turn, so that
/// a machine that changes its speed changes it for all.
fn time(
    trial: &mut Trial,
    method: Method,
    steps: &[(StepKind, usize, DraftPlan)],
) -> Result<Vec<f64>, StepFailure> {
    let mut times = vec![Vec::with_capacity(ROUNDS); steps.len()];
    for round in 0..WARM + ROUNDS {
        trial.enter(PROMPT, method)?;
        for ((_, _, draft), times) in steps.iter().zip(&mut times) {
            let ms = trial.decode(draft)?;
            if round >= WARM {
                times.push(ms);
            }
        }
    }
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[ROUNDS / 2]
    };
    Ok(times.into_iter().map(median).collect())
}
