//! From parser deltas to what goes over the wire.

use crate::ApiError;
use crate::logprobs::{ChoiceLogprobs, TokenLogprob};
use crate::openai::{
    AssistantMessage, ChatChunk, ChatResponse, Choice, ChunkChoice, ChunkDelta, FunctionCall,
    FunctionDelta, ToolCallDelta, ToolCallOut, Usage,
};
use crate::parser::{Aggregate, AggregatedCall, Delta, FinishReason};
use crate::reply::{Answer, Builder, Event, Step};
use crate::request::{GenerationRequest, StreamOptions};

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
    /// Not at all: the request wants no thoughts.
    Hidden,
}

impl ReasoningField {
    /// Values of `reasoning_content` and `reasoning`.
    fn split(self, text: String) -> (Option<String>, Option<String>) {
        match self {
            Self::Both => (Some(text.clone()), Some(text)),
            Self::ReasoningContent => (Some(text), None),
            Self::Reasoning => (None, Some(text)),
            Self::Hidden => (None, None),
        }
    }
}

/// What all parts of one response share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseMeta {
    /// `chatcmpl-…`, or with the prefix of another surface.
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

/// Builds the chunks of one choice: [`start`](Self::start), then one per delta, and at the end of
/// the stream [`usage`](Self::usage) if asked for. `[DONE]` is not its business.
#[derive(Clone, Debug)]
pub struct ChunkBuilder {
    meta: ResponseMeta,
    index: usize,
}

impl ChunkBuilder {
    /// A builder for the first or only choice of a response.
    pub fn new(meta: ResponseMeta) -> Self {
        Self { meta, index: 0 }
    }

    /// The builder for the choice at `index` of the same response.
    pub fn choice(&self, index: usize) -> Self {
        Self {
            meta: self.meta.clone(),
            index,
        }
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
            Delta::Reasoning(_) if self.meta.reasoning_field == ReasoningField::Hidden => {
                return None;
            }
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

    /// The chunk for a content delta with the logprobs of its tokens.
    pub fn content(&self, text: String, logprobs: &[TokenLogprob]) -> ChatChunk {
        let mut chunk = self.chunk(ChunkDelta {
            content: Some(text),
            ..ChunkDelta::default()
        });
        chunk.choices[0].logprobs = Some(ChoiceLogprobs::new(logprobs));
        chunk
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
                index: self.index,
                delta,
                logprobs: None,
                finish_reason: None,
                origin: None,
                stop_reason: None,
                closed_by: None,
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

/// The body of a response with one choice, not streamed.
pub fn response(meta: ResponseMeta, answer: Aggregate, usage: Usage) -> ChatResponse {
    let answer = Answer {
        aggregate: answer,
        ..Answer::default()
    };
    chat_response(meta, vec![answer], false, usage)
}

/// The body of a response that is not streamed, one choice per answer.
pub fn chat_response(
    meta: ResponseMeta,
    answers: Vec<Answer>,
    with_logprobs: bool,
    usage: Usage,
) -> ChatResponse {
    let field = meta.reasoning_field;
    let choices = answers.into_iter().enumerate().map(|(index, answer)| {
        let logprobs = with_logprobs.then(|| ChoiceLogprobs::new(&answer.logprobs));
        let (finish_reason, stop_reason) = (answer.finish_reason(), answer.stop_reason());
        Choice {
            index,
            message: message(answer.aggregate, field),
            logprobs,
            finish_reason,
            stop_reason,
            closed_by: answer.closed_by,
        }
    });
    ChatResponse {
        id: meta.id,
        object: "chat.completion",
        created: meta.created,
        model: meta.model,
        system_fingerprint: meta.system_fingerprint,
        choices: choices.collect(),
        usage,
    }
}

/// Content is null when there is none but thoughts or calls, and "" for an answer that is empty
/// altogether.
fn message(answer: Aggregate, field: ReasoningField) -> AssistantMessage {
    let no_text = answer.content.is_empty();
    let has_other = !answer.reasoning.is_empty() || !answer.tool_calls.is_empty();
    let (reasoning_content, reasoning) = match answer.reasoning.is_empty() {
        true => (None, None),
        false => field.split(answer.reasoning),
    };
    AssistantMessage {
        role: "assistant",
        content: (!(no_text && has_other)).then_some(answer.content),
        reasoning_content,
        reasoning,
        refusal: None,
        annotations: [],
        tool_calls: answer.tool_calls.into_iter().map(complete_call).collect(),
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

/// Chat completions on the wire.
#[derive(Debug)]
pub(crate) struct ChatBuilder {
    meta: ResponseMeta,
    chunks: Vec<ChunkBuilder>,
    options: StreamOptions,
    logprobs: bool,
}

impl ChatBuilder {
    pub(crate) fn new(request: &GenerationRequest, mut meta: ResponseMeta) -> Self {
        if !request.include_reasoning {
            meta.reasoning_field = ReasoningField::Hidden;
        }
        let chunks = ChunkBuilder::new(meta.clone());
        Self {
            chunks: (0..request.n).map(|index| chunks.choice(index)).collect(),
            meta,
            options: request.stream_options,
            logprobs: request.logprobs.is_some(),
        }
    }

    fn event(&self, mut chunk: ChatChunk, usage: Usage) -> Event {
        if self.options.continuous_usage_stats {
            chunk.usage = Some(usage);
        }
        Event::data(&chunk)
    }
}

impl Builder for ChatBuilder {
    fn start(&mut self, usage: Usage) -> Vec<Event> {
        let starts = self.chunks.iter().map(ChunkBuilder::start);
        starts
            .map(|chunk| self.event(chunk, usage.clone()))
            .collect()
    }

    fn step(&mut self, choice: usize, step: &Step, answer: &Answer, usage: Usage) -> Vec<Event> {
        let builder = &self.chunks[choice];
        let mut logprobs = step.logprobs.as_slice();
        let chunks = step.deltas.iter().enumerate().filter_map(|(i, delta)| {
            let mut chunk = match delta {
                // All tokens of the step go with its first text.
                Delta::Content(text) if self.logprobs => {
                    builder.content(text.clone(), std::mem::take(&mut logprobs))
                }
                Delta::Finish(reason) => {
                    let mut chunk = builder.finish(*reason);
                    chunk.choices[0].stop_reason = answer.stop_reason();
                    chunk.choices[0].closed_by = answer.closed_by;
                    chunk
                }
                delta => builder.delta(delta.clone())?,
            };
            if let Some(choice) = chunk.choices.first_mut() {
                choice.origin = step.origins.get(i).copied();
            }
            Some(chunk)
        });
        chunks
            .map(|chunk| self.event(chunk, usage.clone()))
            .collect()
    }

    fn end(&mut self, _: &[Answer], usage: Usage) -> Vec<Event> {
        let with_usage = self.options.include_usage;
        let usage =
            with_usage.then(|| Event::data(&ChunkBuilder::new(self.meta.clone()).usage(usage)));
        usage.into_iter().chain([Event::done()]).collect()
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        vec![Event::data(&error.to_json())]
    }

    fn whole(&self, answers: Vec<Answer>, usage: Usage) -> String {
        let body = chat_response(self.meta.clone(), answers, self.logprobs, usage);
        crate::reply::to_text(&body)
    }
}
