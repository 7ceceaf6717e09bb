//! Flags of access and limits.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use volley_protocol::stream::ReasoningField;
use volley_server::{HeaderValue, Keys, Records, ServerOptions};

use crate::args::values::{positive, seconds};
use crate::error::{Error, Result};

/// Who may ask, and how much.
#[derive(Args, Clone, Debug)]
pub struct HttpArgs {
    /// Keys that may ask, in a file of lines `name = key`; without any, everyone may.
    #[arg(long, value_name = "FILE", conflicts_with = "api_key")]
    pub api_key_file: Option<PathBuf>,
    /// Keys that may ask. Other users of the machine can see them; a file is better.
    #[arg(long, value_name = "KEY", num_args = 1..)]
    pub api_key: Vec<String>,
    /// Requests of one key that may run or wait at once; more are refused with status 429.
    #[arg(long, value_name = "N", value_parser = positive)]
    pub max_concurrent_per_key: Option<usize>,
    /// /metrics and /load need no key.
    #[arg(long)]
    pub open_metrics: bool,
    /// Web pages of these origins may ask; "*" is all of them.
    #[arg(long, value_name = "ORIGIN", num_args = 1..)]
    pub allowed_origins: Vec<String>,
    /// Largest request body, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20, value_parser = positive)]
    pub max_body_bytes: usize,
    /// Most messages of a request.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = positive)]
    pub max_messages: usize,
    /// Longest time from a request to the end of its answer [default: none].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub request_timeout: Option<Duration>,
    /// Longest wait for the head of a request, also between two requests of a connection.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub head_timeout: Duration,
    /// Longest wait for more of a request's body. All of it may take so long, and a second for each
    /// KiB.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub body_timeout: Duration,
    /// A client that takes nothing of its answer for so long has left: its request is cancelled.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub write_timeout: Duration,
    /// Time for running answers to end after the first SIGTERM or SIGINT; then they are cut off.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub shutdown_timeout: Duration,
    /// Longest silence of a stream; then a comment goes out.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub sse_heartbeat: Duration,
    /// Names under which thoughts go out in chats.
    #[arg(long, value_enum, default_value_t = Field::Both)]
    pub reasoning_field: Field,
    /// Responses kept for previous_response_id.
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub max_stored_responses: usize,
    /// Record every request and what the model said to it, for `volley replay`. The files hold
    /// the prompts.
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
}

/// Names of thoughts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Field {
    /// Under both names.
    Both,
    /// `reasoning_content`.
    ReasoningContent,
    /// `reasoning`.
    Reasoning,
}

impl HttpArgs {
    /// The options of the server.
    pub fn options(&self, max_waiting: usize) -> Result<ServerOptions> {
        Ok(ServerOptions {
            keys: self.keys()?,
            max_per_key: self.max_concurrent_per_key,
            open_metrics: self.open_metrics,
            tokenizer_info: None,
            force_usage: false,
            allowed_origins: self.origins()?,
            max_waiting,
            max_body_bytes: self.max_body_bytes,
            max_messages: self.max_messages,
            request_timeout: self.request_timeout,
            head_timeout: self.head_timeout,
            body_timeout: self.body_timeout,
            write_timeout: self.write_timeout,
            drain_limit: self.shutdown_timeout,
            heartbeat: self.sse_heartbeat,
            reasoning_field: match self.reasoning_field {
                Field::Both => ReasoningField::Both,
                Field::ReasoningContent => ReasoningField::ReasoningContent,
                Field::Reasoning => ReasoningField::Reasoning,
            },
            max_stored_responses: self.max_stored_responses,
            records: self.records()?,
        })
    }

    fn keys(&self) -> Result<Keys> {
        if let Some(path) = &self.api_key_file {
            let file = path.display().to_string();
            let text = std::fs::read_to_string(path)
                .map_err(|error| Error::Usage(format!("--api-key-file: {file}: {error}")))?;
            return Ok(Keys::parse(&file, &text)?);
        }
        let mut keys = Keys::default();
        for (index, key) in self.api_key.iter().enumerate() {
            keys.add(format!("key-{}", index + 1), key)
                .map_err(|message| Error::Usage(format!("--api-key: {message}")))?;
        }
        Ok(keys)
    }

    fn records(&self) -> Result<Option<Records>> {
        let open = |folder: &PathBuf| {
            let wrong = |error| Error::Usage(format!("--record {}: {error}", folder.display()));
            Records::open(folder.clone()).map_err(wrong)
        };
        self.record.as_ref().map(open).transpose()
    }

    /// One by one, or as vLLM has them: a JSON list.
    fn origins(&self) -> Result<Vec<HeaderValue>> {
        let wrong = |text: &str, why: &dyn std::fmt::Display| {
            Error::Usage(format!("--allowed-origins {text:?}: {why}"))
        };
        let mut origins = Vec::new();
        for text in &self.allowed_origins {
            match text.starts_with('[') {
                true => origins.extend(
                    serde_json::from_str::<Vec<String>>(text).map_err(|e| wrong(text, &e))?,
                ),
                false => origins.push(text.clone()),
            }
        }
        let origins = origins
            .iter()
            .map(|origin| HeaderValue::from_str(origin).map_err(|error| wrong(origin, &error)));
        origins.collect()
    }
}
