//! `POST /v1/completions`: raw prompts, without template, thoughts or calls.

mod request;
mod response;

pub use request::CompletionRequest;
pub use response::{CompletionChoice, CompletionLogprobs, CompletionResponse};

pub(crate) use request::read_completion;
pub(crate) use response::CompletionBuilder;
