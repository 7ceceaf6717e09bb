//! `POST /v1/responses`.

mod items;
mod object;
mod request;
mod stream;

pub use object::{
    ContentPart, IncompleteDetails, InputTokenCount, InputTokensDetails, OutputItem,
    OutputTokensDetails, ReasoningText, ResponseError, ResponseObject, ResponseUsage, Status,
};
pub use request::{ResponsesRequest, StoredResponse};

pub(crate) use request::{definition, read_responses};
pub(crate) use stream::ResponsesBuilder;
