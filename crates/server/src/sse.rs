//! Streaming a response as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::time::{Instant, timeout_at};
use volley_protocol::reply::Event;

use crate::job::Job;

const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The response whose body follows the job. A client that goes away drops it, and with it the
/// generation. After `heartbeat` without an event a comment goes out: it keeps proxies and clients
/// from giving up during a long prefill.
pub fn stream(job: Job, heartbeat: Duration) -> Response {
    let events = Events {
        job,
        heartbeat,
        stage: Stage::Start,
    };
    let bytes = stream::unfold(events, async |mut events| {
        let bytes = events.next().await?;
        Some((Ok::<_, Infallible>(bytes), events))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        (ACCEL_BUFFERING, "no"),
    ];
    (headers, Body::from_stream(bytes)).into_response()
}

struct Events {
    job: Job,
    heartbeat: Duration,
    stage: Stage,
}

#[derive(PartialEq)]
enum Stage {
    Start,
    Running,
    Over,
}

impl Events {
    /// Bytes of the next events.
    async fn next(&mut self) -> Option<String> {
        let beat = Instant::now() + self.heartbeat;
        loop {
            let events = match self.stage {
                Stage::Start => self.start(),
                Stage::Running => match timeout_at(beat, self.step()).await {
                    Ok(events) => events,
                    Err(_) => return Some(self.job.reply.keep_alive()),
                },
                Stage::Over => return None,
            };
            // Text that may be the start of a tag or a stop string is held back.
            if !events.is_empty() {
                return Some(events.iter().map(Event::to_string).collect());
            }
        }
    }

    fn start(&mut self) -> Vec<Event> {
        self.stage = Stage::Running;
        let usage = self.job.usage();
        let mut events = self.job.reply.start(usage.clone());
        for (choice, step) in self.job.take_echo().iter().enumerate() {
            events.extend(self.job.reply.step(choice, step, usage.clone()));
        }
        events
    }

    async fn step(&mut self) -> Vec<Event> {
        let next = self.job.next().await;
        let usage = self.job.usage();
        match next {
            Some(Ok(progress)) => self.job.reply.step(progress.choice, &progress.step, usage),
            // A closed connection alone would not be noticed by clients.
            Some(Err(error)) => {
                self.stage = Stage::Over;
                self.job.reply.fail(&error)
            }
            None => {
                self.stage = Stage::Over;
                let last = usage.clone();
                self.job.finish(|job| job.reply.snapshot(last));
                self.job.reply.end(usage)
            }
        }
    }
}
