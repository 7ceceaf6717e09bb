//! HTTP server with OpenAI's API over a running engine. Only this crate uses tokio.

mod app;
mod defaults;
mod error;
mod generation;
mod http;
mod routes;
mod serve;
mod served;
mod sse;
mod tokenizer;
mod turns;

pub use defaults::GenerationDefaults;
pub use error::{Error, Result};
pub use generation::Generation;
pub use serve::{Server, ServerOptions};
pub use served::{Prepared, ServedModel};
pub use tokenizer::Tokenizer;
