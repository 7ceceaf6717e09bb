use std::time::Duration;

use volley_model::Checkpoint;
use volley_speculate::{Method, Rule, TreeOrder};

/// Weights an engine serves.
pub struct Sources {
    /// The target.
    pub target: Checkpoint,
    /// The DFlash drafter; needed by [`Method::Dflash`] and [`Method::Ddtree`].
    pub drafter: Option<Checkpoint>,
}

/// How an engine runs.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Where it computes.
    pub device: DeviceKind,
    /// Tensor-parallel ranks, each a thread with its shard of the weights.
    pub ranks: usize,
    /// Numbers of the ranks' GPUs, one for each; the first ones if empty.
    pub gpus: Vec<usize>,
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
    /// Whether the processor, too, is told what need not wait for the host before the host knows, as GPUs are.
    /// It gains nothing by that, but goes the same ways.
    pub ahead: bool,
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
            gpus: Vec::new(),
            max_model_len: None,
            prefill_chunk: 256,
            token_count: None,
            speculation: Speculation::none(),
            max_running: 1,
            cache_blocks: None,
            memory_fraction: 0.9,
            checkpoints: 32,
            checkpoint_interval: 4096,
            max_itl: None,
            ahead: false,
            max_waiting: 1024,
            stall_limit: Duration::from_secs(120),
        }
    }
}

impl DeviceKind {
    /// The GPU where this build and this machine have one, the CPU elsewhere; with the reason.
    pub fn found() -> (Self, String) {
        #[cfg(feature = "cuda")]
        return match crate::cuda::found() {
            Ok(name) => (Self::Cuda, name),
            Err(reason) => (Self::Cpu, reason),
        };
        #[cfg(not(feature = "cuda"))]
        (Self::Cpu, "this volley was built without CUDA".into())
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

/// Ways to draft that an engine offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speculation {
    /// How requests draft that do not choose. With [`Method::None`] nothing else is offered.
    pub method: Method,
    /// Most drafts of a chain per step; at most [`Speculation::MOST_DRAFTS`], of a block those it
    /// has, of the MTP head [`Speculation::MOST_MTP_DRAFTS`]. Lookups of [`Method::Auto`] may have as many
    /// as a tree has nodes.
    pub max_drafts: usize,
    /// Most nodes of a tree per step, the anchor not counted; at most
    /// [`Speculation::MOST_DRAFTS`]. 0 offers no trees.
    pub tree_budget: usize,
    /// Whether a tree begins with the whole chain of likeliest tokens.
    pub seeded: bool,
    /// What orders the nodes of trees when tokens are sampled.
    pub tree_order: TreeOrder,
    /// Shortest repeat that lookup goes on from. With a method other than lookup, such a repeat
    /// goes before the models; `None` leaves lookup to its own method and to [`Method::Auto`].
    pub lookup_min: Option<usize>,
    /// Whether the target's MTP head is loaded, if there is one, though the method does without: for
    /// requests that choose it. Their prefixes are kept apart from those of the others.
    pub mtp: bool,
    /// How sampled drafts are accepted; greedy ones do not depend on it. Trees and mixtures need
    /// [`Rule::Match`].
    pub rule: Rule,
}

impl Speculation {
    /// Most drafts of any step.
    pub const MOST_DRAFTS: usize = 63;
    /// Most passes of the MTP head per step.
    pub const MOST_MTP_DRAFTS: usize = 7;

    /// One token per target pass.
    pub fn none() -> Self {
        Self::of(Method::None)
    }

    /// Chains of at most `max_drafts` drafts of a DFlash drafter.
    pub fn dflash(max_drafts: usize) -> Self {
        Self {
            max_drafts,
            ..Self::of(Method::Dflash)
        }
    }

    /// A method with its usual sizes.
    pub fn of(method: Method) -> Self {
        Self {
            method,
            max_drafts: match method {
                Method::None => 0,
                Method::Mtp => 3,
                _ => 15,
            },
            tree_budget: match method {
                Method::Ddtree => 22,
                Method::Auto => 31,
                _ => 0,
            },
            seeded: true,
            tree_order: TreeOrder::default(),
            lookup_min: None,
            mtp: false,
            rule: Rule::default(),
        }
    }
}
