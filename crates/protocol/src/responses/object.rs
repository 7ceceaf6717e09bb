//! The response object and its output items.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::logprobs::LogprobEntry;
use crate::openai::Usage;

/// A response, finished or not.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ResponseObject {
    /// `resp_…`.
    pub id: String,
    /// Always `response`.
    pub object: &'static str,
    /// Unix time in seconds.
    pub created_at: u64,
    /// How far it is.
    pub status: Status,
    /// Set if it has failed.
    pub error: Option<ResponseError>,
    /// Set if it was cut off.
    pub incomplete_details: Option<IncompleteDetails>,
    /// Served model.
    pub model: String,
    /// Thoughts, messages and calls in the order in which they came.
    pub output: Vec<OutputItem>,
    /// Set at the end.
    pub usage: Option<ResponseUsage>,
    /// Fields of the request, repeated.
    #[serde(flatten)]
    pub request: Map<String, Value>,
}

/// State of a response or of an item of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Under way.
    InProgress,
    /// Ended by itself.
    Completed,
    /// Cut off.
    Incomplete,
    /// The server failed.
    Failed,
}

/// Why a response failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ResponseError {
    /// Word for programs.
    pub code: &'static str,
    /// Text for people.
    pub message: String,
}

/// Why a response was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct IncompleteDetails {
    /// Always `max_output_tokens`.
    pub reason: &'static str,
}

/// One item of the output.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutputItem {
    /// Thoughts.
    Reasoning {
        /// Unique within the response.
        id: String,
        /// Always empty: the thoughts themselves are there.
        summary: [(); 0],
        /// The thoughts.
        content: Vec<ReasoningText>,
        /// Always null.
        encrypted_content: Option<()>,
        /// How far the item is.
        status: Status,
    },
    /// Text.
    Message {
        /// Unique within the response.
        id: String,
        /// Always `assistant`.
        role: &'static str,
        /// How far the item is.
        status: Status,
        /// One part, none at first.
        content: Vec<ContentPart>,
    },
    /// A call of a function.
    FunctionCall {
        /// Unique within the response.
        id: String,
        /// What the client refers to with its output.
        call_id: String,
        /// Name of the function.
        name: String,
        /// Namespace in which the request declared it.
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
        /// A JSON object as text.
        arguments: String,
        /// How far the item is.
        status: Status,
    },
    /// A call of a custom tool, which takes text.
    CustomToolCall {
        /// Unique within the response.
        id: String,
        /// What the client refers to with its output.
        call_id: String,
        /// Name of the tool.
        name: String,
        /// The text.
        input: String,
        /// How far the item is.
        status: Status,
    },
}

/// Thoughts in an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReasoningText {
    /// Always `reasoning_text`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The thoughts.
    pub text: String,
}

/// Text in a message.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ContentPart {
    /// Always `output_text`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The text.
    pub text: String,
    /// Always empty.
    pub annotations: [(); 0],
    /// Logprobs of the text, if asked for.
    pub logprobs: Vec<LogprobEntry>,
}

impl ContentPart {
    pub(super) fn new(text: String, logprobs: Vec<LogprobEntry>) -> Self {
        Self {
            kind: "output_text",
            text,
            annotations: [],
            logprobs,
        }
    }
}

/// Body of `/v1/responses/input_tokens`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct InputTokenCount {
    /// `response.input_tokens`.
    pub object: &'static str,
    /// Tokens of the rendered prompt.
    pub input_tokens: usize,
}

impl InputTokenCount {
    /// A count.
    pub fn new(input_tokens: usize) -> Self {
        Self {
            object: "response.input_tokens",
            input_tokens,
        }
    }
}

/// Token counts of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ResponseUsage {
    /// Tokens of the rendered prompt.
    pub input_tokens: usize,
    /// About the prompt.
    pub input_tokens_details: InputTokensDetails,
    /// Generated tokens, the end token included.
    pub output_tokens: usize,
    /// About the output.
    pub output_tokens_details: OutputTokensDetails,
    /// Sum of both.
    pub total_tokens: usize,
}

/// Part of [`ResponseUsage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct InputTokensDetails {
    /// Prompt tokens taken from the cache.
    pub cached_tokens: usize,
    /// Always 0: writing to the cache is not counted.
    pub cache_write_tokens: usize,
}

/// Part of [`ResponseUsage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OutputTokensDetails {
    /// Generated tokens before the end of thinking.
    pub reasoning_tokens: usize,
    /// Drafted tokens that the target accepted.
    pub accepted_prediction_tokens: usize,
    /// Drafted tokens that the target rejected.
    pub rejected_prediction_tokens: usize,
}

impl From<Usage> for ResponseUsage {
    fn from(usage: Usage) -> Self {
        let details = usage.completion_tokens_details;
        Self {
            input_tokens: usage.prompt_tokens,
            input_tokens_details: InputTokensDetails {
                cached_tokens: usage.prompt_tokens_details.cached_tokens,
                cache_write_tokens: 0,
            },
            output_tokens: usage.completion_tokens,
            output_tokens_details: OutputTokensDetails {
                reasoning_tokens: details.reasoning_tokens,
                accepted_prediction_tokens: details.accepted_prediction_tokens,
                rejected_prediction_tokens: details.rejected_prediction_tokens,
            },
            total_tokens: usage.total_tokens,
        }
    }
}
