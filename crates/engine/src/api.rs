//! What the server says to the engine and hears from it.

use std::sync::Arc;

use volley_cache::Miss;
use volley_speculate::{Method, SamplingParams, TokenLogprob};

use crate::DraftStats;
use crate::control::{ClosedBy, Control};

/// One generation.
#[derive(Clone, Debug)]
pub struct Request {
    /// Prompt tokens, at least one.
    pub prompt: Vec<u32>,
    /// Sampling parameters.
    pub sampling: SamplingParams,
    /// Most tokens to generate; the engine also ends at the context limit.
    pub max_tokens: usize,
    /// Stop ids are not sampled before this many tokens are out, unless a constraint is at its end.
    pub min_tokens: usize,
    /// Tokens that end the generation (end-of-sequence ids unless ignored, and the user's own).
    pub stop_ids: Vec<u32>,
    /// Speculation for this request.
    pub speculate: SpeculateOptions,
    /// Lengths of the prompt's beginning that other prompts may share or go on from, such as that
    /// before the last turn's header: their states are kept.
    pub checkpoints: Vec<usize>,
    /// Only requests of the same salt share kept prefixes.
    pub cache_salt: Arc<str>,
    /// Lower values go first; the same value goes by arrival. A unit is worth 10 seconds of
    /// waiting, up to 5 minutes, so that nobody waits for ever.
    pub priority: i32,
    /// Constraint, thoughts, repetition, logprobs.
    pub control: Control,
}

impl Request {
    /// A greedy request of nobody in particular, which keeps and bounds nothing.
    pub fn new(prompt: Vec<u32>, max_tokens: usize) -> Self {
        Self {
            prompt,
            sampling: SamplingParams::default(),
            max_tokens,
            min_tokens: 0,
            stop_ids: Vec::new(),
            speculate: SpeculateOptions::default(),
            checkpoints: Vec::new(),
            cache_salt: "".into(),
            priority: 0,
            control: Control::default(),
        }
    }
}

/// Per-request choice of speculation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpeculateOptions {
    /// How to draft; as the engine is set up when `None`.
    pub method: Option<Method>,
    /// Most drafts per step; 0 switches speculation off.
    pub max_drafts: usize,
    /// Most nodes of a tree per step.
    pub tree_budget: usize,
}

impl Default for SpeculateOptions {
    fn default() -> Self {
        Self {
            method: None,
            max_drafts: usize::MAX,
            tree_budget: usize::MAX,
        }
    }
}

/// What one step did for one request. After a terminal nothing more comes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestUpdate {
    /// Tokens of this step in order: accepted drafts, then the bonus token. A stop token is
    /// included as the last one.
    pub tokens: Vec<u32>,
    /// How this step drafted.
    pub method: Method,
    /// Drafts verified in this step.
    pub drafted: usize,
    /// Of these, accepted (also when cut off by a stop).
    pub accepted: usize,
    /// One for each token, if the request wants them.
    pub logprobs: Vec<TokenLogprob>,
    /// Indices of the tokens that were the only ones allowed.
    pub forced: Vec<usize>,
    /// Set when the thoughts were closed with the tokens of this update.
    pub closed_by: Option<ClosedBy>,
    /// Totals up to and with this update, for those who stop listening before the end; on the last
    /// update the terminal has them.
    pub so_far: Option<Usage>,
    /// Set on the last update.
    pub terminal: Option<Terminal>,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Terminal {
    /// Why.
    pub stop: Stop,
    /// Totals.
    pub usage: Usage,
}

/// Why a request ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    /// A stop id was generated: the last token of the update.
    Token(u32),
    /// `max_tokens` or the context limit is reached.
    Length,
    /// The answer repeats itself without end.
    Repetition,
    /// The receiver was dropped.
    Cancelled,
    /// The step failed.
    Failed(String),
    /// The constraint of the request has become too complex to go on.
    Unfollowed(String),
}

/// Token counts of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Prompt tokens.
    pub prompt_tokens: usize,
    /// Prompt tokens that were not computed again.
    pub cached_tokens: usize,
    /// Where and why the prompt had to be computed. `None` without prefix cache.
    pub cache_miss: Option<CacheMiss>,
    /// Generated tokens, the stop token included.
    pub completion_tokens: usize,
    /// Drafts verified.
    pub drafted_tokens: usize,
    /// Drafts accepted.
    pub accepted_tokens: usize,
    /// How drafts did.
    pub speculation: DraftStats,
    /// Target passes after the prompt.
    pub steps: usize,
    /// Time before admission, in milliseconds.
    pub queue_ms: f64,
    /// Time from admission to the first token, in milliseconds.
    pub prefill_ms: f64,
    /// Time from the first to the last token, in milliseconds.
    pub decode_ms: f64,
}

/// Where a prompt parts from all that was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheMiss {
    /// Tokens that it shares with the nearest kept text.
    pub at: usize,
    /// What is there.
    pub why: Miss,
}

/// Facts about a running engine.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineInfo {
    /// Longest sequence, prompt and output together, in tokens.
    pub max_model_len: usize,
    /// Tokens per cache block.
    pub block_size: usize,
    /// Whether what was computed is kept for others.
    pub prefix_cache: bool,
    /// Rows of logits; ids at or above are refused.
    pub vocab_size: usize,
    /// How requests draft that do not choose.
    pub method: Method,
    /// What requests may choose from.
    pub methods: Vec<Method>,
    /// Most drafts of a chain per step.
    pub max_drafts: usize,
    /// Most nodes of a tree per step.
    pub tree_budget: usize,
}

/// Refusals and failures of the engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Prompt that leaves no room for a token.
    #[error(
        "the prompt has {prompt} tokens, and this model's maximum context length is {limit} tokens"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Context limit.
        limit: usize,
    },
    /// Prompt without tokens.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// Token id outside the vocabulary.
    #[error("token id {id} is outside the vocabulary of {vocab_size}")]
    UnknownToken {
        /// Offending id.
        id: u32,
        /// Size of the vocabulary.
        vocab_size: usize,
    },
    /// A way to draft that is not loaded.
    #[error(
        "speculation by {method} is not offered here; there are {}",
        names(offered)
    )]
    Method {
        /// What was asked for.
        method: Method,
        /// What there is.
        offered: Vec<Method>,
    },
    /// Models that do not fit the memory of their device.
    #[error("the model needs {needed} of memory: {plan}")]
    Memory {
        /// What it needs, with its unit.
        needed: String,
        /// What for, and what is there.
        plan: String,
    },
    /// The engine thread has ended.
    #[error("the engine has stopped: {0}")]
    Stopped(String),
    /// Too many requests wait already.
    #[error("{limit} requests wait already")]
    QueueFull {
        /// Most requests that may wait.
        limit: usize,
    },
    /// Options that do not fit each other or the model.
    #[error("{0}")]
    Options(String),
    /// The model refused to load or to run.
    #[error(transparent)]
    Model(#[from] volley_model::Error),
    /// The GPU does not start.
    #[error(transparent)]
    Gpu(#[from] volley_kernels::Error),
    /// An operation failed outside the model.
    #[error(transparent)]
    Ops(#[from] volley_ops::Error),
    /// Sampling or verification failed.
    #[error(transparent)]
    Speculate(#[from] volley_speculate::Error),
    /// The constraint cannot be followed.
    #[error(transparent)]
    Constrain(#[from] volley_constrain::Error),
    /// The proposer and the target differ in what they have taken in.
    #[error("slot {slot}: the drafter holds {context} tokens, the target {committed}")]
    DraftContext {
        /// Slot of the sequence.
        slot: usize,
        /// Tokens in the drafter's context.
        context: usize,
        /// Tokens committed by the target.
        committed: usize,
    },
    /// Ranks that should hold equal bits came to different tokens.
    #[error("rank {rank} and rank 0 came to different tokens")]
    RanksDiffer {
        /// The rank that differs.
        rank: usize,
    },
    /// The device kept other rows of its drafts than the host would have.
    #[error("slot {slot}: the device has gone on by other tokens than those that were accepted")]
    Walked {
        /// The sequence.
        slot: usize,
    },
    /// A step ran into a bug.
    #[error("the step panicked: {0}")]
    Panicked(String),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
}

impl EngineError {
    /// Whether a rank waited in vain for another: no further step can work.
    pub(crate) fn is_rank_lost(&self) -> bool {
        use volley_ops::Error::RankLost;
        matches!(
            self,
            Self::Ops(RankLost { .. }) | Self::Model(volley_model::Error::Ops(RankLost { .. }))
        )
    }
}

fn names(methods: &[Method]) -> String {
    let names: Vec<&str> = methods.iter().map(|method| method.name()).collect();
    names.join(", ")
}
