//! `POST /v1/messages` and `/v1/messages/count_tokens`.

mod content;
mod document;
mod request;
mod response;
mod stream;

pub use request::MessagesRequest;
pub use response::{ContentBlock, MessageObject, MessageUsage, StopReason, TokenCount};

pub(crate) use request::read_messages;
pub(crate) use stream::MessagesBuilder;
