//! What clients say and hear: OpenAI types, the chat template, the parser of the model's output.
//! Pure: no input or output, no threads, no tensors.
//!
//! The way of a request:
//!
//! ```
//! use volley_protocol::openai::{ChatRequest, Usage};
//! use volley_protocol::parser::{Aggregate, End, InitialState, OutputParser, ParserConfig};
//! use volley_protocol::stream::{ReasoningField, ResponseMeta, response};
//! use volley_protocol::{messages, template::ChatTemplate};
//!
//! # fn main() -> Result<(), volley_protocol::ApiError> {
//! let body = br#"{"messages": [{"role": "user", "content": "Hi"}]}"#;
//! let request = ChatRequest::from_json(body)?;
//! let options = request.render_options();
//! let tools = request.active_tools().to_vec();
//!
//! let template = ChatTemplate::new("{{ messages[0].content }}<think>\n")?;
//! let prompt = template.render(&messages::normalize(request.messages)?, &tools, options)?;
//!
//! let mut parser = OutputParser::new(ParserConfig {
//!     initial: InitialState::of_prompt(&prompt),
//!     tools,
//!     parallel_tool_calls: request.parallel_tool_calls,
//!     stop: request.stop,
//!     tag_ids: None,
//!     call_id_prefix: "call_7f3a_".to_owned(),
//! });
//! let mut answer = Aggregate::default();
//! for piece in ["A greet", "ing.</thi", "nk>\n\nHel", "lo!"] {
//!     answer.extend(&parser.push(piece.as_bytes(), None));
//! }
//! answer.extend(&parser.finish(End::Stop));
//! assert_eq!((answer.reasoning.as_str(), answer.content.as_str()), ("A greeting.", "Hello!"));
//!
//! let meta = ResponseMeta {
//!     id: "chatcmpl-7f3a".to_owned(),
//!     created: 1_750_000_000,
//!     model: "demo".to_owned(),
//!     system_fingerprint: "volley".to_owned(),
//!     reasoning_field: ReasoningField::Both,
//! };
//! let body = response(meta, answer, Usage::new(3, 7));
//! assert_eq!(body.choices[0].message.content.as_deref(), Some("Hello!"));
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
pub mod stream;
mod surface;
pub mod template;
pub mod tokenize;

pub use error::{ApiError, TemplateError};
pub use request::{Features, GenerationRequest};
pub use surface::{Incoming, Surface};
