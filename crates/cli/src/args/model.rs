//! Flags of every command that loads a model.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use volley_speculate::Method;

use super::values::positive;

/// Which model runs and how it drafts.
#[derive(Args, Clone, Debug)]
pub struct ModelArgs {
    /// Folder of a checkpoint in Hugging Face format, or "demo" for the embedded pair.
    #[arg(default_value = "demo")]
    pub model: String,
    /// Ranks that share the weights.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive)]
    pub tensor_parallel_size: usize,
    /// Where to compute; "cuda" needs a build with the feature of that name.
    #[arg(long, value_enum, default_value_t = Device::Cpu)]
    pub device: Device,
    /// Longest sequence, prompt and output together, in tokens [default: the model's own limit,
    /// at most 32768].
    #[arg(long, value_name = "TOKENS", value_parser = positive)]
    pub max_model_len: Option<usize>,
    /// Speculative decoding: short form of --speculative-config.
    #[arg(long, value_name = "METHOD", conflicts_with = "speculative_config",
        value_parser = PossibleValuesParser::new(Method::ALL.map(Method::name)).try_map(|name| name.parse::<Method>()))]
    pub spec: Option<Method>,
    /// Folder or .safetensors file of the DFlash drafter.
    #[arg(long, value_name = "PATH", conflicts_with = "speculative_config")]
    pub drafter: Option<PathBuf>,
    /// Drafts verified per step [default: all of the drafter's block].
    #[arg(long, value_name = "N", value_parser = positive, conflicts_with = "speculative_config")]
    pub num_speculative_tokens: Option<usize>,
    /// As JSON: {"method": "dflash", "model": PATH, "num_speculative_tokens": N}; methods are none,
    /// ngram, mtp, dflash, ddtree and auto, further keys "tree_budget", "tree_seeded" and
    /// "prompt_lookup_min".
    #[arg(long, value_name = "JSON")]
    pub speculative_config: Option<String>,
    /// Sampling defaults: "auto" (the model's generation_config.json), "vllm" (neutral, temperature
    /// 1), "greedy", or a folder with a generation_config.json.
    #[arg(long, value_name = "CHOICE", default_value = "auto")]
    pub generation_config: String,
    /// Seed of requests that bring none [default: random for each].
    #[arg(long)]
    pub seed: Option<u64>,
    /// Let answers repeat themselves without end, up to their token limit.
    #[arg(long)]
    pub no_repetition_limit: bool,
}

/// Where to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Device {
    /// The processor, in f32.
    Cpu,
    /// NVIDIA GPUs, in bf16.
    Cuda,
}
