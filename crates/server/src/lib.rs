//! HTTP server with OpenAI's and Anthropic's API over a running engine. Only this crate uses
//! tokio.

mod answer;
mod app;
mod body;
mod control;
mod defaults;
mod error;
mod generation;
mod http;
mod job;
mod keys;
mod loading;
mod metrics;
mod observe;
mod options;
mod output;
mod patience;
mod record;
mod replays;
mod routes;
mod serve;
mod served;
mod sse;
mod store;
mod tokenizer;
mod turns;

pub use axum::http::HeaderValue;
pub use control::Controls;
pub use defaults::GenerationDefaults;
pub use error::{Error, Result};
pub use generation::Generation;
pub use keys::Keys;
pub use options::ServerOptions;
pub use record::Records;
pub use replays::Replays;
pub use serve::Server;
pub use served::{FEATURES, Prepared, ServedModel};
pub use tokenizer::Tokenizer;
