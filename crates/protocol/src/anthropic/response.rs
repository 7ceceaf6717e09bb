//! The message object.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::openai::Usage;
use crate::parser::FinishReason;

/// Clients send it back with the thoughts; nothing here depends on it.
pub(super) const SIGNATURE: &str = "dm9sbGV5";

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MessageObject {
    /// `msg_…`.
    pub id: String,
    /// Always `message`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Always `assistant`.
    pub role: &'static str,
    /// Served model.
    pub model: String,
    /// Thoughts, text and calls in the order in which they came.
    pub content: Vec<ContentBlock>,
    /// Why it ended; null at the start of a stream.
    pub stop_reason: Option<StopReason>,
    /// The stop sequence that ended it.
    pub stop_sequence: Option<String>,
    /// Token counts.
    pub usage: MessageUsage,
}

/// One block of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentBlock {
    /// Thoughts.
    Thinking {
        /// The thoughts.
        thinking: String,
        /// Opaque; empty at the start of the block.
        signature: &'static str,
    },
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// A call.
    ToolUse {
        /// What the result refers to.
        id: String,
        /// Name of the function.
        name: String,
        /// The arguments, an object.
        input: Value,
    },
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// By itself.
    EndTurn,
    /// At the token limit.
    MaxTokens,
    /// At a stop sequence.
    StopSequence,
    /// With a call.
    ToolUse,
}

impl StopReason {
    pub(super) fn new(finish: FinishReason, stop_string: Option<&str>) -> Self {
        match (finish, stop_string) {
            (FinishReason::Length, _) => Self::MaxTokens,
            (FinishReason::ToolCalls, _) => Self::ToolUse,
            (FinishReason::Stop, Some(_)) => Self::StopSequence,
            (FinishReason::Stop, None) => Self::EndTurn,
        }
    }
}

/// Token counts; the prompt is the sum of the three input counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MessageUsage {
    /// Prompt tokens that were not in the cache.
    pub input_tokens: usize,
    /// Prompt tokens taken from the cache.
    pub cache_read_input_tokens: usize,
    /// Always 0: writing to the cache is not counted.
    pub cache_creation_input_tokens: usize,
    /// Generated tokens, the end token included.
    pub output_tokens: usize,
}

impl From<Usage> for MessageUsage {
    fn from(usage: Usage) -> Self {
        let cached = usage.prompt_tokens_details.cached_tokens;
        Self {
            input_tokens: usage.prompt_tokens.saturating_sub(cached),
            cache_read_input_tokens: cached,
            cache_creation_input_tokens: 0,
            output_tokens: usage.completion_tokens,
        }
    }
}

/// Body of `/v1/messages/count_tokens`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TokenCount {
    /// Tokens of the rendered prompt.
    pub input_tokens: usize,
}
