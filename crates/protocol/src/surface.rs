//! The surfaces, and a request of any of them.

use serde_json::{Map, Value};

use crate::ApiError;
use crate::anthropic::{MessagesBuilder, MessagesRequest};
use crate::completions::{CompletionBuilder, CompletionRequest};
use crate::fields::parse_body;
use crate::reply::Reply;
use crate::request::{Features, GenerationRequest};
use crate::responses::{ResponsesBuilder, ResponsesRequest};
use crate::stream::{ChatBuilder, ResponseMeta};

/// A way to ask for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
    /// `/v1/responses`.
    Responses,
    /// `/v1/messages`.
    Messages,
}

/// A text that names no [`Surface`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an API is one of chat, completions, responses, messages, but not {0:?}")]
pub struct UnknownSurface(String);

impl std::str::FromStr for Surface {
    type Err = UnknownSurface;

    fn from_str(text: &str) -> Result<Self, UnknownSurface> {
        match text {
            "chat" => Ok(Self::Chat),
            "completions" => Ok(Self::Completions),
            "responses" => Ok(Self::Responses),
            "messages" => Ok(Self::Messages),
            other => Err(UnknownSurface(other.to_owned())),
        }
    }
}

impl Surface {
    /// Start of a response's id.
    pub fn id_prefix(self) -> &'static str {
        match self {
            Self::Chat => "chatcmpl-",
            Self::Completions => "cmpl-",
            Self::Responses => "resp_",
            Self::Messages => "msg_",
        }
    }

    /// Start of a call's id.
    pub fn call_id_prefix(self) -> &'static str {
        match self {
            Self::Messages => "toolu_",
            _ => "call_",
        }
    }

    /// Body of an error on this surface. `request_id` is the value of the header.
    pub fn error_body(self, error: &ApiError, request_id: Option<&str>) -> Value {
        match self {
            Self::Messages => error.to_anthropic_json(request_id),
            _ => error.to_json(),
        }
    }

    /// Reads and checks a request body.
    ///
    /// # Errors
    /// 400 that names the field at fault.
    pub fn read(self, body: &[u8], features: &Features) -> Result<Incoming, ApiError> {
        self.read_body(&parse_body(body)?, features)
    }

    pub(crate) fn read_body(
        self,
        body: &Map<String, Value>,
        features: &Features,
    ) -> Result<Incoming, ApiError> {
        Ok(match self {
            Self::Chat => Incoming::Chat(GenerationRequest::from_body(body, features)?),
            Self::Completions => {
                Incoming::Completions(CompletionRequest::from_body(body, features)?)
            }
            Self::Responses => Incoming::Responses(ResponsesRequest::from_body(body, features)?),
            Self::Messages => Incoming::Messages(MessagesRequest::from_body(body, features)?),
        })
    }
}

/// A checked request of any surface.
#[derive(Clone, Debug, PartialEq)]
pub enum Incoming {
    /// Chat completions.
    Chat(GenerationRequest),
    /// Completions.
    Completions(CompletionRequest),
    /// Responses.
    Responses(ResponsesRequest),
    /// Messages.
    Messages(MessagesRequest),
}

impl Incoming {
    /// The request that all surfaces map to.
    pub fn generation(&self) -> &GenerationRequest {
        match self {
            Self::Chat(generation) => generation,
            Self::Completions(request) => &request.generation,
            Self::Responses(request) => &request.generation,
            Self::Messages(request) => &request.generation,
        }
    }

    /// Has the last chunk of a stream tell the usage, where the surface leaves that to the request.
    pub fn tell_usage(&mut self) {
        match self {
            Self::Chat(generation) => generation.stream_options.include_usage = true,
            Self::Completions(request) => request.generation.stream_options.include_usage = true,
            Self::Responses(_) | Self::Messages(_) => {}
        }
    }

    /// The writer of the response, streamed or not.
    pub fn reply(&self, meta: ResponseMeta) -> Reply {
        let choices = self.generation().choices();
        match self {
            Self::Chat(request) => Reply::new(ChatBuilder::new(request, meta), choices),
            Self::Completions(request) => {
                Reply::new(CompletionBuilder::new(request, meta), choices)
            }
            Self::Responses(request) => Reply::new(ResponsesBuilder::new(request, meta), choices),
            Self::Messages(request) => Reply::new(MessagesBuilder::new(request, meta), choices),
        }
    }
}
