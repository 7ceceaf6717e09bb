//! What steps cost, timed before the first request.

use std::time::Instant;

use volley_speculate::policy::{Policy, StepKind};
use volley_speculate::{DraftPlan, Method, SamplingParams, TreeShape};

use crate::control::Control;
use crate::drafting::DraftLimits;
use crate::layout::Layout;
use crate::ranks::{RankGroup, StepFailure};
use crate::step::{DecodeStep, Entry, PrefillChunk, SlotUpdate, StepPlan};
use crate::{Request, SpeculateOptions, Speculation};

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
    let mut text = Text {
        ranks,
        blocks: (0..blocks as u32).collect(),
        committed: 0,
    };
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
    for ((kind, rows, _), ms) in steps.iter().zip(text.time(drafts, &steps)?) {
        policy.costs.calibrate(*kind, *rows, ms);
    }
    tracing::debug!("costs of steps: {:?}", policy.costs);
    Ok(policy)
}

/// The text that is timed.
struct Text<'a> {
    ranks: &'a mut RankGroup,
    blocks: Vec<u32>,
    committed: usize,
}

impl Text<'_> {
    fn enter(&mut self, drafts: DraftLimits) -> Result<(), StepFailure> {
        let request = Request {
            prompt: vec![0; PROMPT],
            sampling: SamplingParams::default(),
            max_tokens: usize::MAX,
            min_tokens: 0,
            stop_ids: Vec::new(),
            speculate: SpeculateOptions {
                method: Some(drafts.method),
                ..SpeculateOptions::default()
            },
            checkpoints: Vec::new(),
            priority: 0,
            cache_salt: "".into(),
            control: Control::default(),
        };
        let plan = StepPlan {
            enter: vec![Entry {
                slot: 0,
                request: Some(request),
                method: Some(Method::Auto),
                from: None,
            }],
            prefill: vec![PrefillChunk {
                slot: 0,
                past: 0,
                len: PROMPT,
                blocks: self.blocks.clone(),
            }],
            ..StepPlan::default()
        };
        self.committed = 0;
        self.step(plan)
    }

    /// Milliseconds of each step, the median of some rounds. Each round takes all of them in turn,
    /// so that a machine that changes its speed changes it for all.
    fn time(
        &mut self,
        drafts: DraftLimits,
        steps: &[(StepKind, usize, DraftPlan)],
    ) -> Result<Vec<f64>, StepFailure> {
        let mut times = vec![Vec::with_capacity(ROUNDS); steps.len()];
        for round in 0..WARM + ROUNDS {
            self.enter(drafts)?;
            for ((_, _, draft), times) in steps.iter().zip(&mut times) {
                let plan = StepPlan {
                    decode: vec![DecodeStep {
                        slot: 0,
                        past: self.committed,
                        draft: draft.clone(),
                        blocks: self.blocks.clone(),
                    }],
                    ..StepPlan::default()
                };
                let start = Instant::now();
                self.step(plan)?;
                if round >= WARM {
                    times.push(start.elapsed().as_secs_f64() * 1e3);
                }
            }
        }
        let median = |mut times: Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[ROUNDS / 2]
        };
        Ok(times.into_iter().map(median).collect())
    }

    fn step(&mut self, plan: StepPlan) -> Result<(), StepFailure> {
        let updates = self.ranks.step(plan)?.updates;
        let committed = updates.iter().map(|update: &SlotUpdate| update.committed);
        self.committed += committed.sum::<usize>();
        Ok(())
    }
}
