//! What is noted about a request: one line of log at its end, and the metrics on the way.

use std::sync::Arc;
use std::time::Instant;

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
    /// When the last tokens of each choice came.
    last: Vec<Option<Instant>>,
    /// Choices that have not ended.
    open: usize,
    ended: bool,
}

impl Observer {
    /// The request has come.
    pub fn new(caller: Caller, metrics: Arc<Metrics>) -> Self {
        metrics.comes();
        Self {
            caller,
            metrics,
            start: Instant::now(),
            last: Vec::new(),
            open: 1,
            ended: false,
        }
    }

    /// The engine has it, as so many choices.
    pub fn starts(&mut self, choices: usize) {
        self.last = vec![None; choices];
        self.open = choices;
    }

    /// A step has come.
    pub fn step(&mut self, progress: &Progress, answer: &Answer) {
        if progress.tokens > 0 {
            let now = Instant::now();
            match self.last[progress.choice].replace(now) {
                None => self.metrics.first_token(now - self.start),
                Some(last) => self.metrics.more_tokens(now - last),
            }
        }
        for delta in &progress.step.deltas {
            match delta {
                Delta::ToolCallEnd { .. } => self.metrics.tool_call(),
                Delta::Finish(reason) => {
                    self.open -= 1;
                    self.metrics.ended((*reason).into(), 1);
                    let choice = answer.choices().nth(progress.choice);
                    let choice = choice.expect("a step comes from a choice: this is a bug");
                    self.metrics.choice(&choice, self.start.elapsed());
                }
                _ => {}
            }
        }
    }

    /// The answer is complete.
    pub fn finished(&mut self, answer: &Answer) {
        self.ended = true;
        self.metrics.answered(answer.choices());
        let usage = answer.usage();
        let details = usage.completion_tokens_details;
        tracing::info!(
            id = self.caller.id,
            key = self.caller.key_name(),
            prompt_tokens = usage.prompt_tokens,
            cached_tokens = usage.prompt_tokens_details.cached_tokens,
            completion_tokens = usage.completion_tokens,
            accepted = details.accepted_prediction_tokens,
            rejected = details.rejected_prediction_tokens,
            seconds = self.start.elapsed().as_secs_f32(),
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
        self.metrics.ended(Ended::Error, self.open);
        let (id, key) = (&self.caller.id, self.caller.key_name());
        match error.status {
            500.. => tracing::error!(id, key, status = error.status, "failed: {error}"),
            status => tracing::warn!(id, key, status, "failed: {error}"),
        }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.metrics.goes();
        if !self.ended {
            self.metrics.ended(Ended::Abort, self.open);
            let (id, key) = (&self.caller.id, self.caller.key_name());
            let seconds = self.start.elapsed().as_secs_f32();
            tracing::info!(id, key, seconds, "the client went away");
        }
    }
}
