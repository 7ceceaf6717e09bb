use volley_cache::CacheSizes;
use volley_model::{DrafterConfig, Limits, TargetConfig};
use volley_speculate::Method;

use crate::drafting::DraftLimits;
use crate::schedule::SchedulerLimits;
use crate::sequence::Sampling;
use crate::{EngineError, EngineInfo, EngineOptions, Sources, Speculation};

/// Most requests that run at once, and most prefixes that are kept: what no machine has memory for
/// is refused before it is asked for.
const MOST_RUNNING: usize = 4096;
const MOST_CHECKPOINTS: usize = 65_536;

/// Sizes of an engine, settled from options and configs before any weight is read.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub info: EngineInfo,
    pub scheduler: SchedulerLimits,
    pub sampling: Sampling,
    /// Rows per pass, slots and cache blocks of the target.
    pub target: Limits,
    pub drafter: Option<DrafterLayout>,
    /// Whether the target's MTP head is loaded.
    pub mtp: bool,
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
        for (what, value, range) in [
            ("prefill chunk", options.prefill_chunk, 1..=usize::MAX),
            (
                "number of running requests",
                options.max_running,
                1..=MOST_RUNNING,
            ),
            (
                "number of kept prefixes",
                options.checkpoints,
                0..=MOST_CHECKPOINTS,
            ),
        ] {
            if !range.contains(&value) {
                let (least, most) = range.into_inner();
                return Err(EngineError::Options(format!(
                    "the {what} is {value}, it must be between {least} and {most}"
                )));
            }
        }
        let running = options.max_running;
        let prefill_chunk = options.prefill_chunk.min(max_model_len);
        let spec = &options.speculation;
        let drafter = drafter(spec, sources, &target)?;
        let mtp = has_mtp(spec, sources, drafter.is_some())?;
        let block = drafter.as_ref().map_or(0, |config| config.block_size);
        let drafts = DraftLimits::new(spec, block, mtp);
        let draft_rows = block.max(if mtp { Speculation::MOST_MTP_DRAFTS } else { 0 });
        let most_rows = 1 + drafts.most_drafts();
        // A block or a tree may reach behind the end of the longest sequence.
        let longest = (max_model_len + draft_rows.max(most_rows)).div_ceil(block_size);
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
                block_size,
                prefix_cache: cache.checkpoints > 0,
                vocab_size: target.vocab_size,
                method: spec.method,
                methods: drafts.methods(),
                max_drafts: drafts.max_drafts,
                tree_budget: drafts.tree_budget,
            },
            scheduler: SchedulerLimits {
                cache,
                checkpoint_interval: options.checkpoint_interval,
                max_model_len,
                prefill_chunk,
                drafts,
                draft_rows,
                max_itl: options.max_itl,
            },
            sampling: Sampling {
                rule: spec.rule,
                order: spec.tree_order,
                allowed,
            },
            target: limits(most_rows),
            mtp,
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

/// Config of the DFlash drafter, if the method wants one.
fn drafter(
    spec: &Speculation,
    sources: &Sources,
    target: &TargetConfig,
) -> Result<Option<DrafterConfig>, EngineError> {
    match (spec.method, &sources.drafter) {
        (Method::None, _) => Ok(None),
        (_, Some(checkpoint)) => Ok(Some(DrafterConfig::read(checkpoint, Some(target))?)),
        (Method::Dflash | Method::Ddtree, None) => Err(EngineError::Options(
            "speculation by DFlash needs a drafter".into(),
        )),
        (Method::Ngram | Method::Mtp | Method::Auto, None) => Ok(None),
    }
}

/// Whether the MTP head is to be loaded.
fn has_mtp(spec: &Speculation, sources: &Sources, drafter: bool) -> Result<bool, EngineError> {
    let there = || {
        let mut tensors = sources.target.tensors();
        tensors.any(|tensor| tensor.name().contains("mtp."))
    };
    match spec.method {
        Method::None => Ok(false),
        Method::Auto if !drafter => Ok(there()),
        Method::Mtp if !there() => Err(EngineError::Options(
            "speculation by MTP needs the target's mtp.* tensors, and it has none".into(),
        )),
        method => Ok(method == Method::Mtp || (spec.mtp && there())),
    }
}
