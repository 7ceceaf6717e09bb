//! What clients say and hear: OpenAI types, the chat template, the parser of the model's output.
//! Pure: no input or output, no threads, no tensors.

pub mod error;
mod json_text;
pub mod messages;
pub mod openai;
pub mod parser;
pub mod stream;
pub mod template;

pub use error::{ApiError, TemplateError};
