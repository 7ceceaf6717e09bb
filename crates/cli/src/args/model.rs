//! Flags of every command that loads a model.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use volley_speculate::Method;

use super::values::{Seed, length, positive, seed, share};

/// Which model runs and how it drafts.
#[derive(Args, Clone, Debug)]
pub struct ModelArgs {
    /// Folder of a checkpoint in Hugging Face format, "demo" for the embedded pair, or with
    /// --load-format dummy the name of a known model (qwen3.6-27b, qwen3.5-27b, qwen3.5-9b,
    /// qwen3.5-4b, qwen3.5-0.8b).
    #[arg(default_value = "demo")]
    pub model: String,
    /// Where weights come from: the files, or "dummy" for random numbers of the true shapes, to
    /// measure a model without its files; its text is noise.
    #[arg(long, value_enum, default_value_t = LoadFormat::Auto)]
    pub load_format: LoadFormat,
    /// Ranks that share the weights.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive)]
    pub tensor_parallel_size: usize,
    /// Numbers of the GPUs, one for each rank [default: the first ones].
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub gpus: Vec<usize>,
    /// Where to compute; "auto" takes the GPUs if this build has the feature "cuda" and there is
    /// one, else the processor.
    #[arg(long, value_enum, default_value_t = Device::Auto)]
    pub device: Device,
    /// Share of a GPU's memory to use; what models leave of it holds keys and values.
    #[arg(long, value_name = "FRACTION", default_value_t = 0.9, value_parser = share)]
    pub gpu_memory_utilization: f64,
    /// Longest sequence, prompt and output together, in tokens [default: the model's own limit,
    /// at most 32768].
    #[arg(long, value_name = "TOKENS", value_parser = length, allow_negative_numbers = true)]
    pub max_model_len: Option<usize>,
    /// Speculative decoding: short form of --speculative-config.
    #[arg(long, value_name = "METHOD", conflicts_with = "speculative_config",
        value_parser = PossibleValuesParser::new(Method::ALL.map(Method::name)).try_map(|name| name.parse::<Method>()))]
    pub spec: Option<Method>,
    /// Folder or .safetensors file of the DFlash drafter.
    #[arg(long, value_name = "PATH", conflicts_with = "speculative_config")]
    pub drafter: Option<String>,
    /// Drafts verified per step [default: all of the drafter's block].
    #[arg(long, value_name = "N", value_parser = positive, conflicts_with = "speculative_config")]
    pub num_speculative_tokens: Option<usize>,
    /// As JSON: {"method": "dflash", "model": PATH, "num_speculative_tokens": N}; methods are none,
    /// ngram, mtp, dflash, ddtree and auto, further keys "tree_budget", "tree_seeded",
    /// "tree_order", "prompt_lookup_min" and "mtp" (true: the target's MTP head is there for requests
    /// that choose it; it takes memory).
    #[arg(long, value_name = "JSON")]
    pub speculative_config: Option<String>,
    /// Sampling defaults: "auto" (the model's generation_config.json), "vllm" (neutral, temperature
    /// 1), "greedy", or a folder with a generation_config.json.
    #[arg(long, value_name = "CHOICE", default_value = "auto")]
    pub generation_config: String,
    /// Sampling defaults to change, as a JSON object with fields of a generation_config.json.
    #[arg(long, value_name = "JSON")]
    pub override_generation_config: Option<String>,
    /// Chat template in Jinja: a file, or the template itself [default: the model's own].
    #[arg(long, value_name = "FILE")]
    pub chat_template: Option<String>,
    /// Seed of requests that bring none; -1 is a random one for each [default: -1].
    #[arg(long, value_name = "N", value_parser = seed, allow_negative_numbers = true)]
    pub seed: Option<Seed>,
    /// Let answers repeat themselves without end, up to their token limit.
    #[arg(long)]
    pub no_repetition_limit: bool,
}

/// Where weights come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LoadFormat {
    /// The model's files.
    Auto,
    /// As auto.
    Safetensors,
    /// Random numbers.
    Dummy,
}

/// Where to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Device {
    /// NVIDIA GPUs if they can be used, else the processor.
    Auto,
    /// The processor, in f32.
    Cpu,
    /// NVIDIA GPUs, in bf16.
    Cuda,
}
