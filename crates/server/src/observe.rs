//! What is noted about a request: one line of log at its end, and the metrics on the way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use volley_protocol::ApiError;
use volley_protocol::parser::Delta;

use crate::answer::{Answer, Progress};
use crate::http::Caller;
use crate::metrics::{Ended, Metrics};

/// Follows one request to its end, whichever it is.
pub struct Observer {
    caller: Caller,
    metrics: Arc<Metrics>,
    start: Instant,
    first: Option<Duration>,
    last: Instant,
    ended: bool,
}

impl Observer {
    /// The request has come.
    pub fn new(caller: Caller, metrics: Arc<Metrics>) -> Self {
        let start = Instant::now();
        Self {
            caller,
            metrics,
            start,
            first: None,
            last: start,
            ended: false,
        }
    }

    /// A step has come.
    pub fn step(&mut self, progress: &Progress) {
        for delta in &progress.step.deltas {
            match delta {
                Delta::ToolCallEnd { .. } => self.metrics.tool_call(),
                Delta::Finish(reason) => self.metrics.ended((*reason).into()),
                _ => {}
            }
        }
        if progress.tokens == 0 {
            return;
        }
        let now = Instant::now();
        if self.first.is_none() {
            let after = now - self.start;
            self.first = Some(after);
            self.metrics.first_token(after);
        } else {
            self.metrics.more_tokens(now - self.last, progress.tokens);
        }
        self.last = now;
    }

    /// The answer is complete.
    pub fn finished(&mut self, answer: &Answer) {
        self.ended = true;
        let usage = answer.usage();
        let seconds = self.start.elapsed();
        self.metrics.answered(&usage, seconds);
        for totals in answer.totals() {
            let first = self.first.unwrap_or(seconds);
            self.metrics.engine_times(totals, first);
        }
        let details = usage.completion_tokens_details;
        tracing::info!(
            id = self.caller.id,
            key = self.caller.key_name(),
            prompt_tokens = usage.prompt_tokens,
            cached_tokens = usage.prompt_tokens_details.cached_tokens,
            completion_tokens = usage.completion_tokens,
            accepted = details.accepted_prediction_tokens,
            rejected = details.rejected_prediction_tokens,
            seconds = seconds.as_secs_f32(),
            "answered"
        );
    }

    /// The request is at fault, or comes at a bad time.
    pub fn refused(&mut self, error: &ApiError) {
        self.ended = true;
        let (id, key) = (&self.caller.id, self.caller.key_name());
        tracing::info!(id, key, status = error.status, "refused: {error}");
    }

    /// The engine failed, the time is up, or the format has become too complex.
    pub fn failed(&mut self, error: &ApiError) {
        self.ended = true;
        self.metrics.ended(Ended::Error);
        let (id, key) = (&self.caller.id, self.caller.key_name());
        match error.status {
            500.. => tracing::error!(id, key, status = error.status, "failed: {error}"),
            status => tracing::warn!(id, key, status, "failed: {error}"),
        }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        if !self.ended {
            self.metrics.ended(Ended::Abort);
            let (id, key) = (&self.caller.id, self.caller.key_name());
            let seconds = self.start.elapsed().as_secs_f32();
            tracing::info!(id, key, seconds, "the client went away");
        }
    }
}
