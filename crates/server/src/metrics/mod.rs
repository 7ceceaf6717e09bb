//! Counts and times of requests, for Prometheus.

mod histogram;
mod text;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use volley_protocol::parser::FinishReason;

use self::histogram::Histogram;
pub use self::text::exposition;
use crate::answer::ChoiceTotals;

/// Bounds of times in seconds.
const SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    120.0, 300.0,
];
/// Bounds of token counts.
const TOKENS: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0,
    20_000.0, 50_000.0, 100_000.0,
];
/// Bounds of choices per request.
const CHOICES: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0];
/// Bounds of tokens per step.
const LENGTHS: &[f64] = &[
    1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0,
];

/// All that is counted since the start of the server. What vLLM has too means the same: its requests are
/// our choices.
pub struct Metrics {
    first_token_s: Histogram,
    between_steps_s: Histogram,
    per_token_s: Histogram,
    whole_s: Histogram,
    queue_s: Histogram,
    prefill_s: Histogram,
    decode_s: Histogram,
    inference_s: Histogram,
    prompt_tokens: Histogram,
    completion_tokens: Histogram,
    max_tokens: Histogram,
    choices: Histogram,
    longest_choice_tokens: Histogram,
    acceptance_length: Histogram,
    reasoning_tokens: AtomicU64,
    tool_calls: AtomicU64,
    ended: [AtomicU64; Ended::ALL.len()],
    responses: Mutex<BTreeMap<Route, u64>>,
    in_flight: AtomicUsize,
}

/// Path pattern, method and status of a response.
type Route = (String, String, u16);

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself, at a stop string or with a call.
    Stop,
    /// At the token limit.
    Length,
    /// The client went away.
    Abort,
    /// The engine failed, or the time was up.
    Error,
}

impl Ended {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Stop, "stop"),
        (Self::Length, "length"),
        (Self::Abort, "abort"),
        (Self::Error, "error"),
    ];
}

impl From<FinishReason> for Ended {
    fn from(reason: FinishReason) -> Self {
        match reason {
            FinishReason::Length => Self::Length,
            FinishReason::Stop | FinishReason::ToolCalls => Self::Stop,
        }
    }
}

impl Metrics {
    /// Nothing counted yet.
    pub fn new() -> Self {
        Self {
            first_token_s: Histogram::new(SECONDS),
            between_steps_s: Histogram::new(SECONDS),
            per_token_s: Histogram::new(SECONDS),
            whole_s: Histogram::new(SECONDS),
            queue_s: Histogram::new(SECONDS),
            prefill_s: Histogram::new(SECONDS),
            decode_s: Histogram::new(SECONDS),
            inference_s: Histogram::new(SECONDS),
            prompt_tokens: Histogram::new(TOKENS),
            completion_tokens: Histogram::new(TOKENS),
            max_tokens: Histogram::new(TOKENS),
            choices: Histogram::new(CHOICES),
            longest_choice_tokens: Histogram::new(TOKENS),
            acceptance_length: Histogram::new(LENGTHS),
            reasoning_tokens: AtomicU64::new(0),
            tool_calls: AtomicU64::new(0),
            ended: Default::default(),
            responses: Mutex::default(),
            in_flight: AtomicUsize::new(0),
        }
    }

    /// A request for an answer has come.
    pub fn comes(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// It has gone, whichever way it ended.
    pub fn goes(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Requests that have come and not gone.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// The first tokens of a choice came after this time.
    pub fn first_token(&self, after: Duration) {
        self.first_token_s.observe(after.as_secs_f64(), 1);
    }

    /// More tokens of a choice came, this time after the last ones.
    pub fn more_tokens(&self, after: Duration) {
        self.between_steps_s.observe(after.as_secs_f64(), 1);
    }

    /// A call is complete.
    pub fn tool_call(&self) {
        self.tool_calls.fetch_add(1, Ordering::Relaxed);
    }

    /// So many choices ended.
    pub fn ended(&self, how: Ended, choices: usize) {
        self.ended[how as usize].fetch_add(choices as u64, Ordering::Relaxed);
    }

    /// A choice is complete, this time after its request came.
    pub fn choice(&self, choice: &ChoiceTotals<'_>, after: Duration) {
        self.whole_s.observe(after.as_secs_f64(), 1);
        self.prompt_tokens.observe(choice.prompt_tokens as f64, 1);
        self.completion_tokens.observe(choice.tokens as f64, 1);
        self.max_tokens.observe(choice.max_tokens as f64, 1);
        let reasoning = choice.reasoning_tokens as u64;
        self.reasoning_tokens
            .fetch_add(reasoning, Ordering::Relaxed);
        let Some(usage) = choice.engine else {
            return;
        };
        let (prefill_s, decode_s) = (usage.prefill_ms / 1e3, usage.decode_ms / 1e3);
        self.queue_s.observe(usage.queue_ms / 1e3, 1);
        self.prefill_s.observe(prefill_s, 1);
        self.decode_s.observe(decode_s, 1);
        self.inference_s.observe(prefill_s + decode_s, 1);
        let gaps = usage.completion_tokens.saturating_sub(1);
        let per_token_s = if gaps > 0 {
            decode_s / gaps as f64
        } else {
            0.0
        };
        self.per_token_s.observe(per_token_s, 1);
        if usage.steps > 0 {
            let tokens = (usage.accepted_tokens + usage.steps) as f64;
            self.acceptance_length
                .observe(tokens / usage.steps as f64, 1);
        }
    }

    /// A response is complete with all of its choices.
    pub fn answered<'a>(&self, choices: impl ExactSizeIterator<Item = ChoiceTotals<'a>>) {
        self.choices.observe(choices.len() as f64, 1);
        let longest = choices.map(|choice| choice.tokens).max();
        self.longest_choice_tokens
            .observe(longest.unwrap_or_default() as f64, 1);
    }

    /// A response with this status went out on this path pattern.
    pub fn response(&self, path: &str, method: &str, status: u16) {
        let mut responses = self
            .responses
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let route = (path.to_owned(), method.to_owned(), status);
        *responses.entry(route).or_default() += 1;
    }
}
