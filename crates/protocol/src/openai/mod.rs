//! OpenAI's chat completions surface: request, response, stream chunks, model list.

pub(crate) mod fields;
mod models;
mod policy;
mod request;
mod response;
mod sampling;
mod tools;

pub use models::{ModelInfo, ModelList};
pub use policy::{IGNORED_FIELDS, UNSUPPORTED_FIELDS};
pub use request::{ChatRequest, StreamOptions};
pub use response::{
    AssistantMessage, ChatChunk, ChatResponse, Choice, ChunkChoice, ChunkDelta,
    CompletionTokensDetails, FunctionCall, FunctionDelta, PromptTokensDetails, ToolCallDelta,
    ToolCallOut, Usage,
};
pub use sampling::SamplingFields;
pub use tools::{Tool, ToolChoice};
