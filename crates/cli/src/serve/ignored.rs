//! Flags that are read and change nothing.

use clap::Args;

/// Flags of vLLM that change nothing here. They are accepted so that its command lines work.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Accepted for vLLM's sake, without effect")]
pub struct IgnoredArgs {
    /// Tool calls are always parsed.
    #[arg(long)]
    enable_auto_tool_choice: bool,
    /// The vision tower is never loaded.
    #[arg(long)]
    language_model_only: bool,
    /// No code of a checkpoint is run.
    #[arg(long)]
    trust_remote_code: bool,
    /// The device decides.
    #[arg(long, value_parser = ["auto", "bfloat16", "float16", "half", "float32", "float"])]
    dtype: Option<String>,
    /// Prompts are always read in chunks.
    #[arg(long)]
    enable_chunked_prefill: bool,
    /// There are no graphs to switch off.
    #[arg(long)]
    enforce_eager: bool,
    /// The cache has the type of the activations.
    #[arg(long, value_parser = ["auto"])]
    kv_cache_dtype: Option<String>,
    /// Prompts are never logged.
    #[arg(long)]
    disable_log_requests: bool,
    /// There are no periodic statistics.
    #[arg(long)]
    disable_log_stats: bool,
}

impl IgnoredArgs {
    /// The flags that were given, as they are written.
    pub fn given(&self) -> Vec<&'static str> {
        [
            (self.enable_auto_tool_choice, "--enable-auto-tool-choice"),
            (self.language_model_only, "--language-model-only"),
            (self.trust_remote_code, "--trust-remote-code"),
            (self.dtype.is_some(), "--dtype"),
            (self.enable_chunked_prefill, "--enable-chunked-prefill"),
            (self.enforce_eager, "--enforce-eager"),
            (self.kv_cache_dtype.is_some(), "--kv-cache-dtype"),
            (self.disable_log_requests, "--disable-log-requests"),
            (self.disable_log_stats, "--disable-log-stats"),
        ]
        .into_iter()
        .filter_map(|(given, flag)| given.then_some(flag))
        .collect()
    }
}
