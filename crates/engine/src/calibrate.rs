//! What steps cost, timed before the first request.

use std::time::Instant;

use volley_speculate::policy::{Policy, StepKind};
use volley_speculate::{DraftPlan, Method, SamplingParams};

use crate::control::Control;
use crate::drafting::DraftLimits;
use crate::layout::Layout;
use crate::ranks::{RankGroup, StepFailure};
use crate::step::{DecodeStep, Entry, PrefillChunk, SlotUpdate, StepPlan};
use crate::{Request, SpeculateOptions, Speculation};

/// Tokens of the text that is timed.
const PROMPT: usize = 16;
/// Steps of each kind; the fastest counts, as the first ones warm up.
const ROUNDS: usize = 3;
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
    let most_tokens = PROMPT + (ROWS.len() + 2) * ROUNDS * most_rows + block_rows;
    let blocks = most_tokens.div_ceil(block_size);
    if blocks > layout.target.blocks || most_tokens > layout.scheduler.max_model_len {
        return Ok(policy);
    }
    let mut text = Text {
        ranks,
        blocks: (0..blocks as u32).collect(),
        committed: 0,
    };
    text.enter(drafts)?;
    for rows in ROWS.into_iter().filter(|&rows| rows <= most_rows) {
        let ms = text.time(&DraftPlan::Given(vec![0; rows - 1]))?;
        policy.costs.take(StepKind::Plain, 1, rows, ms);
    }
    if drafts.block_drafts > 0 {
        let depth = drafts.block_drafts.min(drafts.max_drafts);
        let ms = text.time(&DraftPlan::Chain { depth })?;
        policy.costs.take(StepKind::Block, 1, 1 + depth, ms);
    } else if drafts.mtp {
        let depth = drafts.max_drafts.min(Speculation::MOST_MTP_DRAFTS);
        let ms = text.time(&DraftPlan::Mtp { depth })?;
        policy.costs.take(StepKind::Mtp(depth), 1, 1 + depth, ms);
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
        self.step(plan)
    }

    /// Milliseconds of the fastest of a few such steps.
    fn time(&mut self, draft: &DraftPlan) -> Result<f64, StepFailure> {
        let mut fastest = f64::INFINITY;
        for _ in 0..ROUNDS {
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
            fastest = fastest.min(start.elapsed().as_secs_f64() * 1e3);
        }
        Ok(fastest)
    }

    fn step(&mut self, plan: StepPlan) -> Result<(), StepFailure> {
        let updates = self.ranks.step(plan)?.updates;
        let committed = updates.iter().map(|update: &SlotUpdate| update.committed);
        self.committed += committed.sum::<usize>();
        Ok(())
    }
}
