//! Flags of `volley serve`.

use clap::{Args, ValueEnum};

use super::ignored::IgnoredArgs;
use crate::args::ModelArgs;
use crate::args::values::positive;

/// `volley serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// Model and drafting.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// Port to listen on; 0 takes a free one and prints it.
    #[arg(long, default_value_t = 8000)]
    pub port: u16,
    /// Names that requests may use; answers carry the first [default: name of the folder].
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub served_model_name: Vec<String>,
    /// Requests that run at once, sharing the steps of the model.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = positive)]
    pub max_num_seqs: usize,
    /// Requests that may wait for their turn; more are refused with status 429.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = positive)]
    pub max_num_queued_reqs: usize,
    /// Largest request body, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20, value_parser = positive)]
    pub max_body_bytes: usize,
    /// Least severe messages in the log on stderr.
    #[arg(long, value_enum, default_value_t = LogLevel::Info)]
    pub log_level: LogLevel,
    /// Parser that splits off the reasoning; always on.
    #[arg(long, value_parser = ["qwen3"])]
    pub reasoning_parser: Option<String>,
    /// Parser of tool calls; both names mean the same and it is always on.
    #[arg(long, value_parser = ["qwen3_coder", "qwen3_xml"])]
    pub tool_call_parser: Option<String>,
    /// Flags of vLLM that change nothing here.
    #[command(flatten)]
    pub ignored: IgnoredArgs,
}

/// Severities of log messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}
