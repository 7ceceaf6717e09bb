//! How a server behaves.

use std::time::Duration;

use axum::http::HeaderValue;
use volley_protocol::stream::ReasoningField;

use crate::body::BodyLimits;
use crate::keys::Keys;
use crate::record::Records;

/// Limits and switches of a server.
#[derive(Debug)]
pub struct ServerOptions {
    /// Who may ask; everyone if there are no keys.
    pub keys: Keys,
    /// Most requests of one key at once.
    pub max_per_key: Option<usize>,
    /// `/metrics` and `/load` need no key.
    pub open_metrics: bool,
    /// Streams tell their usage whether asked to or not.
    pub force_usage: bool,
    /// Body of `/tokenizer_info`; that path is not there without.
    pub tokenizer_info: Option<String>,
    /// Web pages of these origins may ask; an entry `*` stands for all.
    pub allowed_origins: Vec<HeaderValue>,
    /// Requests that wait for their turn when the server says that it is not ready.
    pub max_waiting: usize,
    /// Largest request body.
    pub max_body_bytes: usize,
    /// Most messages of a request.
    pub max_messages: usize,
    /// Longest time from a request to the end of its answer.
    pub request_timeout: Option<Duration>,
    /// Longest wait for the head of a request, also between two of one connection.
    pub head_timeout: Duration,
    /// Longest wait for more of a body; for all of it there is a second more for each KiB.
    pub body_timeout: Duration,
    /// A client that takes nothing of its answer for so long has left.
    pub write_timeout: Duration,
    /// Longest silence of a stream.
    pub heartbeat: Duration,
    /// Names under which thoughts go out.
    pub reasoning_field: ReasoningField,
    /// Responses kept for `previous_response_id`.
    pub max_stored_responses: usize,
    /// Where outputs are recorded.
    pub records: Option<Records>,
    /// Time for running answers to end after the first signal.
    pub drain_limit: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            keys: Keys::default(),
            max_per_key: None,
            open_metrics: false,
            force_usage: false,
            tokenizer_info: None,
            allowed_origins: Vec::new(),
            max_waiting: 256,
            max_body_bytes: 64 << 20,
            max_messages: 10_000,
            request_timeout: None,
            head_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(60),
            heartbeat: Duration::from_secs(10),
            reasoning_field: ReasoningField::default(),
            max_stored_responses: 256,
            records: None,
            drain_limit: Duration::from_secs(10),
        }
    }
}

impl ServerOptions {
    pub(crate) fn body_limits(&self) -> BodyLimits {
        BodyLimits {
            bytes: self.max_body_bytes,
            pause: self.body_timeout,
        }
    }
}
