use std::time::{Duration, Instant};

use async_channel::Sender;
use volley_cache::{BlockTable, Prefix};
use volley_speculate::DraftPlan;
use volley_speculate::policy::Policy;

use crate::drafting::RequestDrafter;
use crate::step::SlotUpdate;
use crate::{Request, RequestUpdate, Usage};

/// Waiting that a unit of priority is worth.
const UNIT_MS: i64 = 10_000;
/// Waiting that any priority is worth at most, either way.
const MOST_MS: i64 = 300_000;

/// Order of requests: as they came, earlier or later by their priority. The one in front goes
/// first. Nobody is passed over by what comes later than twice the most a priority is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    /// When it would have come without a priority, in milliseconds after the engine's start.
    due_ms: i64,
    arrival: u64,
}

impl Turn {
    /// The turn of the `arrival`th request, which came at `now`.
    pub fn new(priority: i32, now: Duration, arrival: u64) -> Self {
        let worth = (i64::from(priority) * UNIT_MS).clamp(-MOST_MS, MOST_MS);
        Self {
            due_ms: now.as_millis() as i64 + worth,
            arrival,
        }
    }
}

/// One request in a slot.
pub(crate) struct Running {
    pub turn: Turn,
    pub request: Request,
    pub drafter: RequestDrafter,
    pub updates: Sender<RequestUpdate>,
    pub slot: usize,
    pub table: BlockTable,
    /// Prompt and output.
    pub text: Vec<u32>,
    /// Tokens that the target has taken in.
    pub committed: usize,
    /// Tokens to be taken in before the next one can be sampled.
    pub goal: usize,
    /// Ends of prefill chunks where the states are kept, rising.
    pub marks: Vec<usize>,
    /// Whether blocks and states were given up: it is to be entered again.
    pub lost: bool,
    pub usage: Usage,
    pub admitted: Instant,
    pub first_token: Option<Instant>,
}

impl Running {
    /// Its first `len` tokens, as they are kept.
    pub fn prefix(&self, len: usize) -> Prefix<'_> {
        Prefix {
            salt: &self.request.cache_salt,
            tokens: &self.text[..len],
        }
    }

    /// Tokens that are still to be computed before the next one can be sampled.
    pub fn left(&self) -> usize {
        self.goal.saturating_sub(self.committed)
    }

    /// Whether its next step drafts and verifies.
    pub fn decodes(&self) -> bool {
        !self.lost && self.left() == 0
    }

    /// Drafts of the next step, one of `decoding`; none if it does not decode.
    pub fn draft(&mut self, policy: &mut Policy, decoding: usize) -> Option<DraftPlan> {
        let left = self.request.max_tokens - self.usage.completion_tokens;
        self.decodes()
            .then(|| self.drafter.plan(policy, decoding, left))
    }

    /// Most tokens of the next prefill chunk: to the next mark or the end.
    pub fn chunk(&self) -> usize {
        if self.lost {
            return 0;
        }
        let mut marks = self.marks.iter().copied();
        let end = marks.find(|&mark| mark > self.committed);
        end.map_or(self.left(), |mark| (mark - self.committed).min(self.left()))
    }

    /// A chunk of at most `len` tokens, which ends with a block if it ends neither at a mark nor
    /// the text.
    pub fn align(&self, len: usize, block_size: usize) -> usize {
        let end = (self.committed + len) / block_size * block_size;
        match len < self.chunk() && end > self.committed {
            true => end - self.committed,
            false => len,
        }
    }

    /// Gives up what was computed. The caller takes the blocks.
    pub fn lose(&mut self) -> BlockTable {
        self.lost = true;
        self.committed = 0;
        std::mem::take(&mut self.table)
    }

    /// Counts a step.
    pub fn take(&mut self, policy: &mut Policy, update: &SlotUpdate) {
        if self.left() == 0 {
            self.usage.steps += 1;
            self.usage.speculation.take(update);
        }
        self.drafter.take(policy, update);
        self.committed += update.committed;
        self.text.extend(&update.tokens);
        self.usage.completion_tokens += update.tokens.len();
        self.usage.drafted_tokens += update.drafted;
        self.usage.accepted_tokens += update.accepted;
        if !update.tokens.is_empty() {
            self.first_token.get_or_insert_with(Instant::now);
        }
        self.goal = self.goal.max(self.committed);
    }

    /// Counts and times up to now.
    pub fn totals(&self) -> Usage {
        Usage {
            prefill_ms: ms(self.admitted, self.first_token),
            decode_ms: self.first_token.map_or(0.0, |first| ms(first, None)),
            ..self.usage.clone()
        }
    }
}

/// Milliseconds from `start` to `end`, or to now.
fn ms(start: Instant, end: Option<Instant>) -> f64 {
    let end = end.unwrap_or_else(Instant::now);
    end.saturating_duration_since(start).as_secs_f64() * 1e3
}
