//! What goes out: the response, the stream chunk and the usage they share.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::logprobs::ChoiceLogprobs;
use crate::parser::FinishReason;
use crate::reply::{ClosedBy, Origin};

/// Token counts of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Usage {
    /// Tokens of the rendered prompt.
    pub prompt_tokens: usize,
    /// Generated tokens, the end token included.
    pub completion_tokens: usize,
    /// Sum of both.
    pub total_tokens: usize,
    /// About the prompt.
    pub prompt_tokens_details: PromptTokensDetails,
    /// About the output.
    pub completion_tokens_details: CompletionTokensDetails,
    /// How drafts did, in complete responses that had any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speculation: Option<SpeculationUsage>,
}

/// Part of [`Usage`], an addition of ours: what `/metrics` tells of all requests, of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SpeculationUsage {
    /// Passes of the target after the prompt: tokens over steps is the acceptance length.
    pub steps: usize,
    /// Steps that verified drafts.
    pub drafts: u64,
    /// Drafts verified by their distance from the anchor, nearest first.
    pub drafted_per_pos: Vec<u64>,
    /// Drafts accepted by their distance from the anchor.
    pub accepted_per_pos: Vec<u64>,
    /// Steps by method of drafting, those of none that drafted nothing.
    pub methods: BTreeMap<String, u64>,
}

/// Part of [`Usage`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PromptTokensDetails {
    /// Prompt tokens taken from the cache.
    pub cached_tokens: usize,
    /// Tokens that the prompt shares with the nearest kept text, with `include_cache_details`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_miss_at: Option<usize>,
    /// What is there: `nothing_kept`, `differs`, `ends`, `no_states` or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_miss_reason: Option<&'static str>,
}

/// Part of [`Usage`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CompletionTokensDetails {
    /// Generated tokens before the end of thinking.
    pub reasoning_tokens: usize,
    /// Drafted tokens that the target accepted.
    pub accepted_prediction_tokens: usize,
    /// Drafted tokens that the target rejected.
    pub rejected_prediction_tokens: usize,
}

impl Usage {
    /// Usage of a request; the details start at zero.
    pub fn new(prompt_tokens: usize, completion_tokens: usize) -> Self {
        Self {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            ..Self::default()
        }
    }

    /// The same with cached prompt tokens.
    pub fn with_cached(mut self, cached_tokens: usize) -> Self {
        self.prompt_tokens_details.cached_tokens = cached_tokens;
        self
    }

    /// The same with where the prompt parts from all that was kept, and what is there.
    pub fn with_cache_miss(mut self, at: usize, reason: &'static str) -> Self {
        self.prompt_tokens_details.cache_miss_at = Some(at);
        self.prompt_tokens_details.cache_miss_reason = Some(reason);
        self
    }

    /// The same with reasoning tokens, at most all of the completion.
    pub fn with_reasoning(mut self, reasoning_tokens: usize) -> Self {
        self.completion_tokens_details.reasoning_tokens =
            reasoning_tokens.min(self.completion_tokens);
        self
    }

    /// The same with how drafts did step by step.
    pub fn with_speculation(mut self, speculation: Option<SpeculationUsage>) -> Self {
        self.speculation = speculation;
        self
    }

    /// The same with the fate of the drafts.
    pub fn with_predictions(mut self, accepted_tokens: usize, rejected_tokens: usize) -> Self {
        self.completion_tokens_details.accepted_prediction_tokens = accepted_tokens;
        self.completion_tokens_details.rejected_prediction_tokens = rejected_tokens;
        self
    }
}

/// Body of a chat completion that is not streamed.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ChatResponse {
    /// `chatcmpl-…`.
    pub id: String,
    /// Always `chat.completion`.
    pub object: &'static str,
    /// Unix time in seconds.
    pub created: u64,
    /// Served model.
    pub model: String,
    /// Build and weights that answered.
    pub system_fingerprint: String,
    /// One choice.
    pub choices: Vec<Choice>,
    /// Token counts.
    pub usage: Usage,
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Choice {
    /// Position among the choices.
    pub index: usize,
    /// The answer.
    pub message: AssistantMessage,
    /// Logprobs of the text, if asked for.
    pub logprobs: Option<ChoiceLogprobs>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// What ended it in more detail: the stop string, or `repetition`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// What closed the thoughts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_by: Option<ClosedBy>,
}

/// The message of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AssistantMessage {
    /// Always `assistant`.
    pub role: &'static str,
    /// Text, or null when there are only calls or thoughts.
    pub content: Option<String>,
    /// Thoughts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Thoughts, under the other name in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// Always null.
    pub refusal: Option<()>,
    /// Always empty.
    pub annotations: [(); 0],
    /// Calls; left out when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCallOut>,
}

/// A complete call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ToolCallOut {
    /// Unique within the response.
    pub id: String,
    /// Always `function`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// What to call.
    pub function: FunctionCall,
}

/// Name and arguments of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FunctionCall {
    /// Name of the function.
    pub name: String,
    /// A JSON object as text.
    pub arguments: String,
}

/// One event of a stream.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ChatChunk {
    /// `chatcmpl-…`, the same in all chunks.
    pub id: String,
    /// Always `chat.completion.chunk`.
    pub object: &'static str,
    /// Unix time in seconds, the same in all chunks.
    pub created: u64,
    /// Served model.
    pub model: String,
    /// Build and weights that answer.
    pub system_fingerprint: String,
    /// One choice, or none in the usage chunk.
    pub choices: Vec<ChunkChoice>,
    /// Token counts, in the usage chunk, or in all with `continuous_usage_stats`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// One choice of a chunk.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ChunkChoice {
    /// Position among the choices.
    pub index: usize,
    /// What is new.
    pub delta: ChunkDelta,
    /// Logprobs of the text, if asked for.
    pub logprobs: Option<ChoiceLogprobs>,
    /// Set in the last chunk of the choice.
    pub finish_reason: Option<FinishReason>,
    /// How the tokens of the delta came, with `include_token_origins`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// What ended it in more detail: the stop string, or `repetition`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// What closed the thoughts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_by: Option<ClosedBy>,
}

/// What a chunk adds; absent fields add nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ChunkDelta {
    /// `assistant`, in the first chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    /// More text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// More thoughts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// More thoughts, under the other name in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// A call's head, or more of its arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<[ToolCallDelta; 1]>,
}

/// A call in a chunk: id, type and name only in its first one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ToolCallDelta {
    /// Position among the calls of the answer.
    pub index: usize,
    /// Unique within the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `function`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    /// Name or arguments.
    pub function: FunctionDelta,
}

/// Part of [`ToolCallDelta`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FunctionDelta {
    /// Name of the function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// More of the arguments' JSON text.
    pub arguments: String,
}
