use volley_model::{DrafterConfig, Limits, TargetConfig};
use volley_speculate::Rule;

use crate::scheduler::SchedulerLimits;
use crate::sequence::Sampling;
use crate::{EngineError, EngineInfo, EngineOptions, Sources, Speculation};

/// Sizes of an engine, settled from options and configs before any weight is read.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub info: EngineInfo,
    pub scheduler: SchedulerLimits,
    pub sampling: Sampling,
    /// Rows per pass, slots and cache blocks of the target.
    pub target: Limits,
    pub drafter: Option<DrafterLayout>,
}

#[derive(Clone, Debug)]
pub(crate) struct DrafterLayout {
    /// Target layers whose outputs the drafter sees.
    pub taps: Vec<usize>,
    /// Rows per pass, slots and cache blocks.
    pub limits: Limits,
}

impl Layout {
    pub(crate) fn new(
        options: &EngineOptions,
        sources: &Sources,
        block_size: usize,
    ) -> Result<Self, EngineError> {
        let target = TargetConfig::read(&sources.target)?;
        let max_model_len = max_model_len(options, &target)?;
        for (what, value) in [
            ("prefill chunk", options.prefill_chunk),
            ("number of running requests", options.max_running),
        ] {
            if value == 0 {
                return Err(EngineError::Options(format!(
                    "the {what} must be at least 1"
                )));
            }
        }
        let slots = options.max_running;
        let prefill_chunk = options.prefill_chunk.min(max_model_len);
        let (drafter, max_drafts, rule) = match options.speculation {
            Speculation::None => (None, 0, Rule::default()),
            Speculation::Dflash { max_drafts, rule } => {
                let checkpoint = sources.drafter.as_ref().ok_or_else(|| {
                    EngineError::Options("speculation by DFlash needs a drafter".into())
                })?;
                let config = DrafterConfig::read(checkpoint, Some(&target))?;
                let max_drafts = max_drafts.min(config.block_size - 1);
                (Some(config), max_drafts, rule)
            }
        };
        let draft_rows = drafter.as_ref().map_or(0, |config| config.block_size);
        // The drafter's block may reach behind the end of the longest sequence.
        let blocks = slots * (max_model_len + draft_rows).div_ceil(block_size);
        let limits = |rows: usize| Limits {
            max_rows: prefill_chunk.max(slots * rows),
            verify_rows: slots * rows,
            slots,
            blocks,
        };
        let allowed = options.token_count.unwrap_or(target.vocab_size);
        Ok(Self {
            info: EngineInfo {
                max_model_len,
                vocab_size: target.vocab_size,
                method: drafter.as_ref().map_or("none", |_| "dflash").to_string(),
                max_drafts,
            },
            scheduler: SchedulerLimits {
                slots,
                max_model_len,
                prefill_chunk,
                max_drafts,
                draft_rows,
            },
            sampling: Sampling { rule, allowed },
            target: limits(1 + max_drafts),
            drafter: drafter.map(|config| DrafterLayout {
                taps: config.target_layer_ids,
                limits: limits(draft_rows),
            }),
        })
    }
}

fn max_model_len(options: &EngineOptions, target: &TargetConfig) -> Result<usize, EngineError> {
    let most = target.max_position_embeddings;
    match options.max_model_len {
        None => Ok(most),
        Some(len) if (2..=most).contains(&len) => Ok(len),
        Some(len) => Err(EngineError::Options(format!(
            "the maximum model length is {len} tokens, it must be between 2 and the model's {most}"
        ))),
    }
}
