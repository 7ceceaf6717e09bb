//! What steps cost, timed before the first request.

use std::time::{Duration, Instant};

use volley_speculate::policy::{BUDGETS, LOOKUPS, Policy, StepKind};
use volley_speculate::{DraftPlan, TreeShape};

use crate::Speculation;
use crate::drafting::DraftLimits;
use crate::layout::Layout;
use crate::ranks::{RankGroup, StepFailure};
use crate::trial::Trial;

/// Tokens of a text that is timed alone, and of each of several.
const PROMPT: usize = 16;
const SHORT: usize = 4;
/// Steps of each kind that are timed: of one text so many at least and at most, as long as it does not
/// take too long, of several texts few.
const ROUNDS: [usize; 2] = [5, 25];
const FEW_ROUNDS: [usize; 2] = [2, 2];
const ENOUGH: Duration = Duration::from_millis(600);
/// Steps of each kind before: devices prepare for what they have not run yet.
const WARM: usize = 2;
/// After so long the steps of more texts are left to be learned from requests.
const PATIENCE: Duration = Duration::from_millis(1500);

/// A step to be timed, alike for all texts.
struct Timed {
    kind: StepKind,
    /// Of each text.
    rows: usize,
    draft: DraftPlan,
}

/// Times steps of many sizes on texts of no meaning in slots where nothing runs yet: one text
/// first, then several at once. An engine too small for it learns from its requests alone.
pub(crate) fn calibrate(
    ranks: &mut RankGroup,
    layout: &Layout,
    block_size: usize,
) -> Result<Policy, StepFailure> {
    let begun = Instant::now();
    let drafts = layout.scheduler.drafts;
    let running = layout.scheduler.cache.sequences;
    let mut policy = Policy::default();
    // Powers of four, and as many as can run.
    let powers = (0..).map(|power| 4usize.pow(power));
    let batches = powers.take_while(|&texts| texts < running);
    for texts in batches.chain([running]) {
        let (steps, rounds, prompt) = match texts {
            1 => (alone(drafts), ROUNDS, PROMPT),
            _ => (side_by_side(drafts), FEW_ROUNDS, SHORT),
        };
        // Every step may be accepted whole.
        let once: usize = steps.iter().map(Timed::most_tokens).sum();
        let again = steps.iter().map(Timed::most_tokens).max().unwrap_or(0);
        let most_rows = steps.iter().map(|step| step.rows).max().unwrap_or(0);
        let most_tokens = prompt + once + again + most_rows + layout.scheduler.draft_rows;
        let blocks = most_tokens.div_ceil(block_size);
        let fits = texts * blocks <= layout.target.blocks
            && texts * prompt <= layout.target.max_rows
            && most_tokens <= layout.scheduler.max_model_len;
        if !fits || begun.elapsed() > PATIENCE {
            break;
        }
        let mut trial = Trial::of(ranks, texts, blocks);
        let times = time(&mut trial, layout, &steps, prompt, rounds)?;
        for (step, ms) in steps.iter().zip(times) {
            let rows = texts * step.rows;
            policy.costs.calibrate(step.kind, texts, rows, ms);
        }
    }
    tracing::debug!("costs of steps: {:?}", policy.costs);
    Ok(policy)
}

/// Every size that a request alone may choose.
fn alone(drafts: DraftLimits) -> Vec<Timed> {
    let most = 1 + drafts.most_drafts();
    let block = match drafts.block_drafts > 0 {
        true => 1 + drafts.block_drafts.min(drafts.max_drafts),
        false => 1,
    };
    let sizes = LOOKUPS.into_iter().chain(BUDGETS).map(|drafts| 1 + drafts);
    let mut rows: Vec<usize> = sizes.chain([1, block]).filter(|&n| n <= most).collect();
    rows.sort_unstable();
    rows.dedup();
    let mut steps: Vec<Timed> = rows.into_iter().map(given).collect();
    steps.extend(drafted(drafts));
    if drafts.block_drafts > 0 {
        let budgets = BUDGETS.into_iter();
        let offered = budgets.filter(|&budget| (block..=drafts.tree_budget).contains(&budget));
        steps.extend(offered.map(|budget| Timed {
            kind: StepKind::Tree,
            rows: 1 + budget,
            draft: DraftPlan::Tree(TreeShape {
                budget,
                depth: block - 1,
                seeded: drafts.seeded,
            }),
        }));
    }
    steps
}

impl Timed {
    /// Tokens of a step that is accepted whole.
    fn most_tokens(&self) -> usize {
        match &self.draft {
            DraftPlan::Tree(shape) => 1 + shape.depth,
            draft => 1 + draft.most_drafts(),
        }
    }
}

/// No drafts, and a model's.
fn side_by_side(drafts: DraftLimits) -> Vec<Timed> {
    let mut steps = vec![given(1)];
    if let Some(drafted) = drafted(drafts) {
        steps.extend([given(drafted.rows), drafted]);
    }
    steps
}

fn given(rows: usize) -> Timed {
    Timed {
        kind: StepKind::Plain,
        rows,
        draft: DraftPlan::Given(vec![0; rows - 1]),
    }
}

/// The longest chain of the model that drafts.
fn drafted(drafts: DraftLimits) -> Option<Timed> {
    if drafts.block_drafts > 0 {
        let depth = drafts.block_drafts.min(drafts.max_drafts);
        return Some(Timed {
            kind: StepKind::Block,
            rows: 1 + depth,
            draft: DraftPlan::Chain { depth },
        });
    }
    let depth = drafts.max_drafts.min(Speculation::MOST_MTP_DRAFTS);
    drafts.mtp.then_some(Timed {
        kind: StepKind::Mtp(depth),
        rows: 1 + depth,
        draft: DraftPlan::Mtp { depth },
    })
}

/// Milliseconds of each step, the median of some rounds. Each round takes all of them in turn, so that
/// a machine that changes its speed changes it for all.
fn time(
    trial: &mut Trial,
    layout: &Layout,
    steps: &[Timed],
    prompt: usize,
    [least, most]: [usize; 2],
) -> Result<Vec<f64>, StepFailure> {
    let begun = Instant::now();
    let mut times = vec![Vec::with_capacity(most); steps.len()];
    for round in 0..WARM + most {
        if round >= WARM + least && begun.elapsed() > ENOUGH {
            break;
        }
        trial.enter(prompt, layout.scheduler.drafts.method)?;
        let mut kind = StepKind::Plain;
        for (step, times) in steps.iter().zip(&mut times) {
            // The first block behind copies takes these in, too.
            if kind == StepKind::Plain && step.kind != kind {
                trial.decode(&step.draft)?;
            }
            kind = step.kind;
            let ms = trial.decode(&step.draft)?;
            if round >= WARM {
                times.push(ms);
            }
        }
    }
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[(times.len() - 1) / 2]
    };
    Ok(times.into_iter().map(median).collect())
}

#[cfg(test)]
mod tests {
    use volley_speculate::Method;

    use super::*;

    /// A size that was not timed may look cheap for it.
    #[test]
    fn trees_of_every_size_that_may_be_chosen_are_timed() {
        for (tree_budget, sizes) in [(63, &[22, 31, 63][..]), (40, &[22, 31]), (15, &[])] {
            let limits = DraftLimits {
                tree_budget,
                ..DraftLimits::new(&Speculation::of(Method::Auto), 16, false)
            };
            let steps = alone(limits);
            let trees = steps.iter().filter(|step| step.kind == StepKind::Tree);
            let trees: Vec<usize> = trees
                .inspect(|step| assert_eq!(step.most_tokens(), 16))
                .map(|step| step.rows - 1)
                .collect();
            assert_eq!(trees, sizes);
            let blocks = steps.iter().filter(|step| step.kind == StepKind::Block);
            assert!(blocks.map(|step| step.rows).eq([16]));
        }
        let alone = alone(DraftLimits::new(&Speculation::of(Method::Ngram), 0, false));
        assert!(alone.iter().all(|step| step.kind == StepKind::Plain));
    }
}
