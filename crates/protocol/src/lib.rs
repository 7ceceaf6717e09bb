//! What clients say and hear: OpenAI types, the chat template, the parser of the model's output.
//! Pure: no input or output, no threads, no tensors.
//!
//! The way of a request, the same for all surfaces:
//!
//! ```
//! use volley_protocol::openai::Usage;
//! use volley_protocol::parser::{End, ParserConfig};
//! use volley_protocol::reply::{Step, StepParser};
//! use volley_protocol::stream::{ReasoningField, ResponseMeta};
//! use volley_protocol::{Features, Surface, messages, template::ChatTemplate};
//!
//! # fn main() -> Result<(), volley_protocol::ApiError> {
//! let body = br#"{"messages": [{"role": "user", "content": "Hi"}]}"#;
//! let incoming = Surface::Chat.read(body, &Features::default())?;
//! let request = incoming.generation();
//!
//! let template = ChatTemplate::new("{{ messages[0].content }}<think>\n")?;
//! let list = messages::normalize(request.messages.clone())?;
//! let prompt = template.render(&list, request.active_tools(), request.render_options())?;
//!
//! let mut parser = StepParser::new(ParserConfig {
//!     initial: request.initial_state(&prompt),
//!     tools: request.active_tools().to_vec(),
//!     parallel_tool_calls: request.parallel_tool_calls,
//!     stop: request.stop.clone(),
//!     tag_ids: None,
//!     call_id_prefix: "call_7f3a_".to_owned(),
//! });
//! let mut reply = incoming.reply(ResponseMeta {
//!     id: "chatcmpl-7f3a".to_owned(),
//!     created: 1_750_000_000,
//!     model: "demo".to_owned(),
//!     system_fingerprint: "volley".to_owned(),
//!     reasoning_field: ReasoningField::Both,
//! });
//! for piece in ["A greet", "ing.</thi", "nk>\n\nHel", "lo!"] {
//!     let mut step = Step::default();
//!     parser.push(piece.as_bytes(), None, None, &mut step);
//!     // For a stream, `reply.step` gives the events to send.
//!     reply.collect(0, &step);
//! }
//! let mut step = Step::default();
//! parser.end(End::Stop, &mut step);
//! reply.collect(0, &step);
//! let body = reply.whole(Usage::new(3, 7));
//! assert!(body.contains(r#""content":"Hello!","reasoning_content":"A greeting.""#));
//! # Ok(())
//! # }
//! ```

pub mod anthropic;
pub mod completions;
pub mod error;
mod fields;
mod json_text;
pub mod logprobs;
pub mod messages;
pub mod openai;
pub mod openapi;
pub mod parser;
mod recorder;
pub mod replay;
pub mod reply;
pub mod request;
pub mod responses;
mod step;
pub mod stream;
mod surface;
pub mod template;
pub mod tokenize;
mod volatile;

pub use error::{ApiError, TemplateError};
pub use request::{Features, GenerationRequest};
pub use surface::{Incoming, Surface, UnknownSurface};
