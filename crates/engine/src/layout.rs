use volley_cache::CacheSizes;
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
    /// Cache blocks of one sequence of full length.
    pub(crate) fn longest_blocks(&self) -> usize {
        let limits = self.scheduler;
        (limits.max_model_len + limits.draft_rows).div_ceil(limits.cache.block_size)
    }

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
        let running = options.max_running;
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
        let longest = (max_model_len + draft_rows).div_ceil(block_size);
        let cache = CacheSizes {
            blocks: cache_blocks(options, longest)?,
            block_size,
            sequences: running,
            checkpoints: options.checkpoints,
        };
        let limits = |rows: usize| Limits {
            max_rows: prefill_chunk.max(running * rows),
            verify_rows: running * rows,
            slots: cache.slots(),
            blocks: cache.blocks,
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
                cache,
                checkpoint_interval: options.checkpoint_interval,
                max_model_len,
                prefill_chunk,
                max_drafts,
                draft_rows,
                max_itl: options.max_itl,
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

fn cache_blocks(options: &EngineOptions, longest: usize) -> Result<usize, EngineError> {
    match options.cache_blocks {
        None => Ok(longest * options.max_running.min(4)),
        Some(blocks) if blocks >= longest => Ok(blocks),
        Some(blocks) => Err(EngineError::Options(format!(
            "{blocks} cache blocks do not hold one sequence of full length, which takes {longest}"
        ))),
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
