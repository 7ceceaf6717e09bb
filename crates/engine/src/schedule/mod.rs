//! Who runs, who waits, who holds what: all that is decided between steps, without a device.
//!
//! Memory is given out as it is needed, not for the worst case: a request without `max_tokens`
//! would otherwise keep a whole context for itself. When blocks run out, first kept prefixes give
//! way, then the requests that came last: they stay in their slots, lose what was computed, and
//! compute it again when there is room. The first one always gets on, so all do.

mod admit;
mod outcome;
mod plan;
mod share;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use volley_cache::{Cache, CacheSizes};
use volley_speculate::policy::{Policy, StepKind};

use crate::Stop;
use crate::drafting::DraftLimits;
use crate::handle::{Shared, Submission};
use crate::pace::Pace;
use crate::running::{Running, Turn};
use crate::step::{Entry, Save};

pub(crate) use outcome::StepLoad;

/// What the scheduler has to know of the ranks and the model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SchedulerLimits {
    /// Blocks, slots and checkpoints.
    pub cache: CacheSizes,
    /// A long prompt is kept at multiples of so many tokens too.
    pub checkpoint_interval: usize,
    /// Tokens per sequence.
    pub max_model_len: usize,
    /// Prompt tokens per step.
    pub prefill_chunk: usize,
    /// Ways to draft.
    pub drafts: DraftLimits,
    /// Rows that the proposer writes behind the context.
    pub draft_rows: usize,
    /// Longest step while streams run.
    pub max_itl: Option<Duration>,
}

/// A checkpoint that the step in hand makes.
struct Saving {
    save: Save,
    /// Tokens before it.
    tokens: usize,
}

/// The requests of an engine, between steps.
pub(crate) struct Schedule {
    shared: Arc<Shared>,
    limits: SchedulerLimits,
    cache: Cache,
    pace: Pace,
    policy: Policy,
    /// What the last step teaches about costs: kind, sequences, rows, milliseconds.
    timed: Option<(StepKind, usize, usize, f64)>,
    arrivals: u64,
    waiting: BTreeMap<Turn, Submission>,
    /// In order of their turns.
    running: Vec<Running>,
    /// Entries of the next plan.
    entries: Vec<Entry>,
    saving: Vec<Saving>,
}

impl Schedule {
    pub fn new(shared: Arc<Shared>, limits: SchedulerLimits, policy: Policy) -> Self {
        Self {
            shared,
            cache: Cache::new(limits.cache),
            pace: Pace::new(limits.max_itl),
            policy,
            timed: None,
            limits,
            arrivals: 0,
            waiting: BTreeMap::new(),
            running: Vec::new(),
            entries: Vec::new(),
            saving: Vec::new(),
        }
    }

    /// Does what no plan waits for.
    pub fn settle(&mut self) {
        if let Some((kind, sequences, rows, ms)) = self.timed.take() {
            self.policy.costs.take(kind, sequences, rows, ms);
        }
        for running in &mut self.running {
            running.drafter.settle(&mut self.policy);
        }
    }

    /// Whether nobody runs or waits.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Ends everything: no request is left without a terminal.
    pub fn end_all(&mut self, stop: &Stop) {
        self.end_running(stop);
        for (_, submission) in std::mem::take(&mut self.waiting) {
            self.refuse(submission, stop.clone());
        }
    }

    /// Whether a check takes no time beside a step: not that of a GPU's whole memory.
    pub fn is_quick_to_check(&self) -> bool {
        self.limits.cache.blocks <= 2048
    }

    /// Every block and slot has its one place; nothing can be trusted any more if not.
    pub fn check_integrity(&self) -> Result<(), String> {
        let tables = self.running.iter().map(|running| &running.table);
        let slots = self.running.iter().map(|running| running.slot);
        let checked = self.cache.check(tables, slots);
        checked.map_err(|error| format!("the cache is inconsistent: {error}"))
    }

    /// Puts what is running and what is free where the metrics read it.
    pub fn show_gauges(&self) {
        let mut stats = self.shared.stats();
        stats.running = self.running.len();
        stats.paused = self.running.iter().filter(|r| r.lost).count();
        stats.free_blocks = self.cache.idle_blocks();
        stats.cached_blocks = self.cache.cached_blocks();
        stats.checkpoints = self.cache.checkpoints();
    }
}

#[cfg(test)]
mod tests;
