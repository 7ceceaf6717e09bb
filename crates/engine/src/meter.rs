//! Steps measured as they are served: through the ranks, with all that the host does between them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::start_ranks;
use crate::layout::Layout;
use crate::ranks::{RankGroup, StepFailure};
use crate::step::{DecodeStep, Entry, PrefillChunk, StepPlan};
use crate::{EngineError, EngineOptions, Request, Sources};
use volley_speculate::{DraftPlan, SamplingParams, TreeShape};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterCase {
    /// Sequences that run at once.
    pub sequences: usize,
    /// Prompt tokens of each.
    pub context: usize,
    /// Drafts per step.
    pub drafts: usize,
    /// Where they come from.
    pub source: MeterSource,
    /// Steps before those that are timed: new shapes are prepared in them.
    pub warm_steps: usize,
    /// Steps that are timed.
    pub steps: usize,
}

/// Where the drafts of a step come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterSource {
    /// Nowhere: they are given, and no drafter runs. What their rows cost alone.
    Given,
    /// A chain from a DFlash block.
    Chain,
    /// A tree from a DFlash block, begun with the chain.
    Tree,
    /// A chain of the MTP head.
    Mtp,
}

/// Times of one case.
#[derive(Clone, Debug)]
pub struct Metered {
    /// From the first prompt chunk to the first tokens of all sequences, milliseconds.
    pub prefill_ms: f64,
    /// Each timed step, milliseconds.
    pub step_ms: Vec<f64>,
    /// Between the first rank to begin each timed step and the last one, microseconds.
    pub skew_us: Vec<f64>,
    /// In which a device waited for its host between a read and the next launch, microseconds.
    pub idle_us: Vec<f64>,
    /// Rows of the target per step, all sequences.
    pub rows: usize,
    /// Tokens that came out of the timed steps, all sequences.
    pub tokens: usize,
}

/// Ranks with a model, driven by plans of fixed shape.
pub struct Meter {
    /// Taken when it is dropped.
    ranks: Option<RankGroup>,
    layout: Arc<Layout>,
    block_size: usize,
}

impl Meter {
    /// Loads the models, as an engine does.
    pub fn start(options: &EngineOptions, sources: Sources) -> Result<Self, EngineError> {
        let (ranks, layout, block_size) = start_ranks(options, sources)?;
        Ok(Self {
            ranks: Some(ranks),
            layout,
            block_size,
        })
    }

    /// Most drafts per step that the models allow.
    pub fn max_drafts(&self) -> usize {
        self.layout.scheduler.drafts.max_drafts
    }

    /// Runs prompts of random tokens, then steps, sampled so, each sequence with a seed of its own.
    /// `tell` is called after every step.
    pub fn measure(
        &mut self,
        case: MeterCase,
        sampling: &SamplingParams,
        tell: &mut dyn FnMut(),
    ) -> Result<Metered, EngineError> {
        self.check(case)?;
        let begun = Instant::now();
        for plan in self.prompts(case, sampling) {
            self.step(plan)?;
            tell();
        }
        let prefill_ms = begun.elapsed().as_secs_f64() * 1e3;
        let mut past = vec![case.context; case.sequences];
        let mut metered = Metered {
            prefill_ms,
            step_ms: Vec::with_capacity(case.steps),
            skew_us: Vec::with_capacity(case.steps),
            idle_us: Vec::with_capacity(case.steps),
            rows: case.sequences * (1 + case.drafts),
            tokens: 0,
        };
        for step in 0..case.warm_steps + case.steps {
            let plan = StepPlan {
                decode: (0..case.sequences)
                    .map(|slot| DecodeStep {
                        slot,
                        past: past[slot],
                        draft: self.plan(case),
                        blocks: self.blocks(slot),
                    })
                    .collect(),
                ..StepPlan::default()
            };
            let begun = Instant::now();
            let updates = self.step(plan)?.updates;
            let ms = begun.elapsed().as_secs_f64() * 1e3;
            for update in &updates {
                past[update.slot] += update.committed;
            }
            if step >= case.warm_steps {
                metered.step_ms.push(ms);
                metered.skew_us.push(self.us(RankGroup::skew));
                metered.idle_us.push(self.us(RankGroup::idle));
                metered.tokens += updates.iter().map(|u| u.tokens.len()).sum::<usize>();
            }
            tell();
        }
        Ok(metered)
    }

    fn plan(&self, case: MeterCase) -> DraftPlan {
        let budget = case.drafts;
        match case.source {
            _ if budget == 0 => DraftPlan::None,
            MeterSource::Given => DraftPlan::Given(vec![0; budget]),
            MeterSource::Chain => DraftPlan::Chain { depth: budget },
            MeterSource::Mtp => DraftPlan::Mtp { depth: budget },
            MeterSource::Tree => DraftPlan::Tree(TreeShape {
                budget,
                depth: budget.min(self.layout.scheduler.drafts.block_drafts),
                seeded: true,
            }),
        }
    }

    /// Steps of a case, prompt chunks included.
    pub fn steps(&self, case: MeterCase) -> usize {
        let chunk = self.layout.scheduler.prefill_chunk;
        (case.sequences * case.context).div_ceil(chunk) + case.warm_steps + case.steps
    }

    fn check(&self, case: MeterCase) -> Result<(), EngineError> {
        let limits = self.layout.scheduler;
        let longest = case.context + (case.warm_steps + case.steps + 1) * (1 + case.drafts);
        let fits = (1..=limits.cache.sequences).contains(&case.sequences)
            && case.context > 0
            && longest <= limits.max_model_len
            && case.drafts <= limits.drafts.most_drafts();
        if fits {
            return Ok(());
        }
        Err(EngineError::Options(format!(
            "{} sequences of {longest} tokens with {} drafts do not fit {} sequences of {} tokens \
             with {} drafts",
            case.sequences,
            case.drafts,
            limits.cache.sequences,
            limits.max_model_len,
            limits.drafts.most_drafts()
        )))
    }

    fn step(&mut self, plan: StepPlan) -> Result<crate::step::StepOutputs, EngineError> {
        let ranks = self.ranks.as_mut();
        let ranks = ranks.expect("there until the drop: this is a bug");
        ranks.step(plan).map_err(StepFailure::error)
    }

    /// A time of the last step in microseconds.
    fn us(&self, time: impl Fn(&RankGroup) -> Duration) -> f64 {
        let time = self.ranks.as_ref().map(time);
        time.unwrap_or_default().as_secs_f64() * 1e6
    }

    /// Cache blocks of a slot: as many as the longest sequence has.
    fn blocks(&self, slot: usize) -> Vec<u32> {
        let limits = self.layout.scheduler;
        let share = (limits.max_model_len + limits.draft_rows).div_ceil(self.block_size);
        (slot * share..(slot + 1) * share)
            .map(|b| b as u32)
            .collect()
    }

    /// Plans that compute the prompts, chunk by chunk.
    fn prompts(&self, case: MeterCase, sampling: &SamplingParams) -> Vec<StepPlan> {
        let allowed = self.layout.sampling.allowed as u64;
        let entry = |slot: usize| {
            let prompt = random(slot as u64, case.context, allowed);
            let mut request = Request::new(prompt, usize::MAX / 2);
            request.sampling = SamplingParams {
                seed: slot as u64,
                ..sampling.clone()
            };
            Entry {
                slot,
                request: Some(request),
                method: None,
                from: None,
            }
        };
        let mut plans = vec![StepPlan {
            enter: (0..case.sequences).map(entry).collect(),
            ..StepPlan::default()
        }];
        let chunk = self.layout.scheduler.prefill_chunk;
        let mut room = chunk;
        for slot in 0..case.sequences {
            let mut past = 0;
            while past < case.context {
                if room == 0 {
                    plans.push(StepPlan::default());
                    room = chunk;
                }
                let len = room.min(case.context - past);
                if let Some(plan) = plans.last_mut() {
                    plan.prefill.push(PrefillChunk {
                        slot,
                        past,
                        len,
                        blocks: self.blocks(slot),
                    });
                }
                (past, room) = (past + len, room - len);
            }
        }
        plans
    }
}

impl Drop for Meter {
    /// Waits for the ranks, which give the device back.
    fn drop(&mut self) {
        if let Some(ranks) = self.ranks.take() {
            ranks.stop();
        }
    }
}

/// Token ids below `allowed`.
fn random(seed: u64, count: usize, allowed: u64) -> Vec<u32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % allowed.max(1)) as u32
    };
    std::iter::repeat_with(next).take(count).collect()
}
