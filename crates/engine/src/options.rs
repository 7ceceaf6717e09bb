use std::time::Duration;

use volley_model::Checkpoint;
use volley_speculate::Rule;

/// Weights an engine serves.
pub struct Sources {
    /// The target.
    pub target: Checkpoint,
    /// The drafter; needed by [`Speculation::Dflash`].
    pub drafter: Option<Checkpoint>,
}

/// How an engine runs.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Where it computes.
    pub device: DeviceKind,
    /// Tensor-parallel ranks, each a thread with its shard of the weights.
    pub ranks: usize,
    /// Longest sequence, prompt and output together; the model's own limit when `None`.
    pub max_model_len: Option<usize>,
    /// Most prompt tokens computed in one step.
    pub prefill_chunk: usize,
    /// Tokens of the tokenizer: ids at or above are never sampled. The whole vocabulary when `None`.
    pub token_count: Option<usize>,
    /// Method of drafting.
    pub speculation: Speculation,
    /// Requests that run at once; the others wait for their turn.
    pub max_running: usize,
    /// Cache blocks, at least for one sequence of full length. When `None`, on a GPU as many as its
    /// memory holds; elsewhere for as many as run, but no more than 4.
    pub cache_blocks: Option<usize>,
    /// Share of a GPU's memory that may be used.
    pub memory_fraction: f64,
    /// Prefixes of which the states are kept; 0 switches the prefix cache off.
    pub checkpoints: usize,
    /// A long prompt is kept at multiples of so many tokens too.
    pub checkpoint_interval: usize,
    /// Ceiling for the time between two updates of a stream: prompts of others are taken in as
    /// far as it allows.
    pub max_itl: Option<Duration>,
    /// Most requests waiting for their turn.
    pub max_waiting: usize,
    /// A step that takes longer counts as a dead engine.
    pub stall_limit: Duration,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            device: DeviceKind::Cpu,
            ranks: 1,
            max_model_len: None,
            prefill_chunk: 256,
            token_count: None,
            speculation: Speculation::None,
            max_running: 1,
            cache_blocks: None,
            memory_fraction: 0.9,
            checkpoints: 32,
            checkpoint_interval: 4096,
            max_itl: None,
            max_waiting: 1024,
            stall_limit: Duration::from_secs(120),
        }
    }
}

/// Where an engine computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceKind {
    /// The processor, in f32.
    #[default]
    Cpu,
    /// NVIDIA GPUs, in bf16; needs a build with the feature `cuda`.
    Cuda,
}

/// Method of drafting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Speculation {
    /// One token per target pass.
    #[default]
    None,
    /// Block diffusion by a DFlash drafter.
    Dflash {
        /// Most drafts to verify per step; at most the drafter's block less one.
        max_drafts: usize,
        /// How sampled drafts are accepted; greedy ones do not depend on it.
        rule: Rule,
    },
}
