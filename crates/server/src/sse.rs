//! Streaming a generation as server-sent events (API section 1.5).

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use volley_protocol::ApiError;
use volley_protocol::openai::{ChatChunk, StreamOptions};
use volley_protocol::stream::ChunkBuilder;

use crate::routes::chat::Running;

/// Comments keep proxies and clients from giving up during a long prefill.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The response whose body follows the generation. A client that goes away drops it, and with it
/// the generation.
pub fn stream(running: Running, options: StreamOptions) -> Response {
    let events = stream::unfold(ChatStream::new(running, options), |mut chat| async {
        let event = chat.next().await?;
        Some((Ok::<_, Infallible>(Event::default().data(event)), chat))
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE).text("keep-alive");
    let mut response = Sse::new(events).keep_alive(keep_alive).into_response();
    response
        .headers_mut()
        .insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

struct ChatStream {
    running: Running,
    options: StreamOptions,
    builder: ChunkBuilder,
    ready: VecDeque<String>,
    ended: bool,
}

impl ChatStream {
    fn new(running: Running, options: StreamOptions) -> Self {
        let builder = ChunkBuilder::new(running.meta.clone());
        let mut chat = Self {
            running,
            options,
            builder,
            ready: VecDeque::new(),
            ended: false,
        };
        chat.push(chat.builder.start());
        chat
    }

    /// Data of the next event.
    async fn next(&mut self) -> Option<String> {
        while self.ready.is_empty() && !self.ended {
            match self.running.generation.next().await {
                Some(Ok(deltas)) => {
                    for chunk in deltas.into_iter().filter_map(|d| self.builder.delta(d)) {
                        self.ready.push_back(self.data(chunk));
                    }
                }
                Some(Err(error)) => self.fail(&error),
                None => self.end(),
            }
        }
        self.ready.pop_front()
    }

    fn end(&mut self) {
        self.ended = true;
        self.running.log.finished(&self.running.generation);
        if self.options.include_usage {
            let usage = self.running.generation.usage();
            self.push(self.builder.usage(usage));
        }
        self.ready.push_back("[DONE]".into());
    }

    /// A closed connection alone would not be noticed by clients.
    fn fail(&mut self, error: &ApiError) {
        self.ended = true;
        self.running.log.failed(error);
        self.ready.push_back(error.to_json().to_string());
    }

    fn push(&mut self, chunk: ChatChunk) {
        let data = self.data(chunk);
        self.ready.push_back(data);
    }

    fn data(&self, mut chunk: ChatChunk) -> String {
        if self.options.continuous_usage_stats {
            chunk.usage = Some(self.running.generation.usage());
        }
        serde_json::to_string(&chunk).expect("a chunk has only string keys: this is a bug")
    }
}
