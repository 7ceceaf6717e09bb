//! Flags of `volley serve`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use volley_protocol::request::TemplateArguments;

use super::http::HttpArgs;
use super::ignored::IgnoredArgs;
use super::refused::RefusedArgs;
use crate::args::ModelArgs;
use crate::args::values::{count, positive, seconds};

/// `volley serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// Model and drafting.
    #[command(flatten)]
    pub model: ModelArgs,
    /// The same as MODEL, as vLLM's image has it.
    #[arg(
        long = "model",
        value_name = "MODEL",
        id = "model_flag",
        conflicts_with = "model"
    )]
    pub model_flag: Option<String>,
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// Port to listen on; 0 takes a free one and prints it.
    #[arg(long, default_value_t = 8000)]
    pub port: u16,
    /// Names that requests may use; answers carry the first [default: name of the folder].
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub served_model_name: Vec<String>,
    /// Take any name that requests give the model; without it, 404 to names that are not served.
    #[arg(long)]
    pub accept_any_model: bool,
    /// Requests that run at once, sharing the steps of the model.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = count)]
    pub max_num_seqs: usize,
    /// Most prompt tokens computed in one step [default: 256, on GPUs 2048].
    #[arg(long, value_name = "TOKENS", value_parser = count)]
    pub max_num_batched_tokens: Option<usize>,
    /// Ceiling for the time between two pieces of a running answer, in milliseconds: prompts of
    /// others are read as far as it allows.
    #[arg(long, value_name = "MS", default_value_t = 150, value_parser = positive)]
    pub max_itl_ms: usize,
    /// Beginnings of texts of which the states are kept, so that texts that share them need not
    /// compute them again.
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub max_prefix_checkpoints: usize,
    /// Prefix caching is on unless it is switched off.
    #[arg(long, overrides_with = "no_enable_prefix_caching")]
    pub enable_prefix_caching: bool,
    /// Keeps nothing of earlier texts.
    #[arg(long)]
    pub no_enable_prefix_caching: bool,
    /// Requests that may wait for their turn; more are refused with status 429.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = positive)]
    pub max_num_queued_reqs: usize,
    /// Longest step of the engine; while one takes longer, /health and new requests get 503.
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    pub stall_limit: Duration,
    /// Answer with these recordings, made by --record, in place of what the model would say: files,
    /// or folders in the order of names. Requests with tools take those made with tools.
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub replay: Vec<PathBuf>,
    /// Arguments of the chat template for requests that leave them open, as a JSON object:
    /// {"enable_thinking": false}.
    #[arg(long, value_name = "JSON", value_parser = TemplateArguments::from_json)]
    pub default_chat_template_kwargs: Option<TemplateArguments>,
    /// The last chunk of every stream of chats and completions tells the usage, asked for or not.
    #[arg(long)]
    pub enable_force_include_usage: bool,
    /// /tokenizer_info gives the model's tokenizer_config.json and its chat template.
    #[arg(long)]
    pub enable_tokenizer_info_endpoint: bool,
    /// Who may ask, and how much.
    #[command(flatten)]
    pub http: HttpArgs,
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
    /// Flags of vLLM that ask for what is not there.
    #[command(flatten)]
    pub refused: RefusedArgs,
}

impl ServeArgs {
    /// The model, whichever way it is named, and how it drafts.
    pub fn chosen(&self) -> ModelArgs {
        let mut chosen = self.model.clone();
        if let Some(model) = &self.model_flag {
            chosen.model.clone_from(model);
        }
        chosen
    }
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
