//! OpenAI's chat completions surface: request, response, stream chunks, model list.

mod models;
mod request;
mod response;

pub use models::{ModelInfo, ModelList};
pub use request::ChatRequest;
pub use response::{
    AssistantMessage, ChatChunk, ChatResponse, Choice, ChunkChoice, ChunkDelta,
    CompletionTokensDetails, FunctionCall, FunctionDelta, PromptTokensDetails, SpeculationUsage,
    ToolCallDelta, ToolCallOut, Usage,
};

pub use crate::request::{
    IGNORED_FIELDS, SamplingFields, StreamOptions, Tool, ToolChoice, UNSUPPORTED_FIELDS,
};

pub(crate) use request::read_chat;
