//! From parser deltas to what goes over the wire (API sections 1.4 and 1.5).

use crate::openai::{
    AssistantMessage, ChatChunk, ChatResponse, Choice, ChunkChoice, ChunkDelta, FunctionCall,
    FunctionDelta, ToolCallDelta, ToolCallOut, Usage,
};
use crate::parser::{Aggregate, AggregatedCall, Delta, FinishReason};

/// Under which names thoughts go out; clients read one or the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReasoningField {
    /// `reasoning_content` and `reasoning`, with the same text.
    #[default]
    Both,
    /// `reasoning_content` only.
    ReasoningContent,
    /// `reasoning` only.
    Reasoning,
}

impl ReasoningField {
    /// Values of `reasoning_content` and `reasoning`.
    fn split(self, text: String) -> (Option<String>, Option<String>) {
        match self {
            Self::Both => (Some(text.clone()), Some(text)),
            Self::ReasoningContent => (Some(text), None),
            Self::Reasoning => (None, Some(text)),
        }
    }
}

/// What all parts of one response share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseMeta {
    /// `chatcmpl-…`.
    pub id: String,
    /// Unix time in seconds.
    pub created: u64,
    /// Served model.
    pub model: String,
    /// Build and weights that answer.
    pub system_fingerprint: String,
    /// Names for thoughts.
    pub reasoning_field: ReasoningField,
}

/// Builds the chunks of one stream: [`start`](Self::start), then one per delta, then
/// [`usage`](Self::usage) if asked for. `[DONE]` is the server's.
#[derive(Clone, Debug)]
pub struct ChunkBuilder {
    meta: ResponseMeta,
}

impl ChunkBuilder {
    /// A builder for one response.
    pub fn new(meta: ResponseMeta) -> Self {
        Self { meta }
    }

    /// The first chunk, with the role.
    pub fn start(&self) -> ChatChunk {
        self.chunk(ChunkDelta {
            role: Some("assistant"),
            content: Some(String::new()),
            ..ChunkDelta::default()
        })
    }

    /// The chunk for a delta; the end of a call needs none.
    pub fn delta(&self, delta: Delta) -> Option<ChatChunk> {
        let delta = match delta {
            Delta::Reasoning(text) => {
                let (reasoning_content, reasoning) = self.meta.reasoning_field.split(text);
                ChunkDelta {
                    reasoning_content,
                    reasoning,
                    ..ChunkDelta::default()
                }
            }
            Delta::Content(text) => ChunkDelta {
                content: Some(text),
                ..ChunkDelta::default()
            },
            Delta::ToolCallStart { index, id, name } => tool_call(ToolCallDelta {
                index,
                id: Some(id),
                kind: Some("function"),
                function: FunctionDelta {
                    name: Some(name),
                    arguments: String::new(),
                },
            }),
            Delta::ToolCallArguments { index, fragment } => tool_call(ToolCallDelta {
                index,
                id: None,
                kind: None,
                function: FunctionDelta {
                    name: None,
                    arguments: fragment,
                },
            }),
            Delta::ToolCallEnd { .. } => return None,
            Delta::Finish(reason) => return Some(self.finish(reason)),
        };
        Some(self.chunk(delta))
    }

    /// The chunk after the last: usage and no choice.
    pub fn usage(&self, usage: Usage) -> ChatChunk {
        ChatChunk {
            choices: Vec::new(),
            usage: Some(usage),
            ..self.chunk(ChunkDelta::default())
        }
    }

    fn finish(&self, reason: FinishReason) -> ChatChunk {
        let mut chunk = self.chunk(ChunkDelta::default());
        chunk.choices[0].finish_reason = Some(reason);
        chunk
    }

    fn chunk(&self, delta: ChunkDelta) -> ChatChunk {
        ChatChunk {
            id: self.meta.id.clone(),
            object: "chat.completion.chunk",
            created: self.meta.created,
            model: self.meta.model.clone(),
            system_fingerprint: self.meta.system_fingerprint.clone(),
            choices: vec![ChunkChoice {
                index: 0,
                delta,
                logprobs: None,
                finish_reason: None,
            }],
            usage: None,
        }
    }
}

fn tool_call(delta: ToolCallDelta) -> ChunkDelta {
    ChunkDelta {
        tool_calls: Some([delta]),
        ..ChunkDelta::default()
    }
}

/// The body of a response that is not streamed. Content is null when there is none but thoughts
/// or calls, and "" for an answer that is empty altogether.
pub fn response(meta: ResponseMeta, answer: Aggregate, usage: Usage) -> ChatResponse {
    let no_text = answer.content.is_empty();
    let has_other = !answer.reasoning.is_empty() || !answer.tool_calls.is_empty();
    let (reasoning_content, reasoning) = match answer.reasoning.is_empty() {
        true => (None, None),
        false => meta.reasoning_field.split(answer.reasoning),
    };
    let finish_reason = answer.finish_reason.unwrap_or(FinishReason::Stop);
    let message = AssistantMessage {
        role: "assistant",
        content: (!(no_text && has_other)).then_some(answer.content),
        reasoning_content,
        reasoning,
        refusal: None,
        annotations: [],
        tool_calls: answer.tool_calls.into_iter().map(complete_call).collect(),
    };
    ChatResponse {
        id: meta.id,
        object: "chat.completion",
        created: meta.created,
        model: meta.model,
        system_fingerprint: meta.system_fingerprint,
        choices: vec![Choice {
            index: 0,
            message,
            logprobs: None,
            finish_reason,
        }],
        usage,
    }
}

fn complete_call(call: AggregatedCall) -> ToolCallOut {
    ToolCallOut {
        id: call.id,
        kind: "function",
        function: FunctionCall {
            name: call.name,
            arguments: call.arguments,
        },
    }
}
