//! The engine thread: takes requests in order, plans steps, hands tokens out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use async_channel::{Receiver, Sender};

use crate::blocks::{BlockPool, BlockTable};
use crate::handle::{Shared, Submission};
use crate::ranks::{RankGroup, StepFailure};
use crate::step::{DecodeStep, Entry, PrefillChunk, SlotUpdate, StepPlan};
use crate::{EngineError, Request, RequestUpdate, Stop, Terminal, Usage};

/// What the scheduler has to know of the ranks and the model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SchedulerLimits {
    /// Sequences that run at once.
    pub slots: usize,
    /// Tokens per sequence.
    pub max_model_len: usize,
    /// Prompt tokens per step.
    pub prefill_chunk: usize,
    /// Drafts per step.
    pub max_drafts: usize,
    /// Rows that the proposer writes behind the context.
    pub draft_rows: usize,
}

pub(crate) struct Scheduler {
    ranks: RankGroup,
    submissions: Receiver<Submission>,
    shared: Arc<Shared>,
    limits: SchedulerLimits,
    pool: BlockPool,
    free_slots: Vec<usize>,
    waiting: VecDeque<Submission>,
    running: Vec<Running>,
}

/// One request in a slot.
struct Running {
    request: Request,
    updates: Sender<RequestUpdate>,
    slot: usize,
    table: BlockTable,
    /// Whether the ranks know of it.
    entered: bool,
    /// Tokens that the target has taken in.
    committed: usize,
    usage: Usage,
    admitted: Instant,
    first_token: Option<Instant>,
}

impl Scheduler {
    pub(crate) fn new(
        ranks: RankGroup,
        submissions: Receiver<Submission>,
        shared: Arc<Shared>,
        limits: SchedulerLimits,
        pool: BlockPool,
    ) -> Self {
        Self {
            ranks,
            submissions,
            shared,
            limits,
            pool,
            free_slots: (0..limits.slots).rev().collect(),
            waiting: VecDeque::new(),
            running: Vec::new(),
        }
    }

    /// Runs until the submissions are closed or a rank is lost; the error says how.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        while self.receive() {
            self.drop_cancelled();
            self.admit();
            self.shared.heartbeat.step_begins();
            let plan = self.plan();
            self.show_gauges();
            if !plan.is_empty() {
                match self.ranks.step(plan) {
                    Ok(outputs) => self.apply(outputs.updates),
                    Err(StepFailure::Step(error)) => self.fail_running(&error),
                    Err(StepFailure::Lost(reason)) => return Err(reason),
                }
            }
        }
        Ok(())
    }

    /// Ends everything: no request is left without a terminal.
    pub(crate) fn stop(mut self, stop: Stop) {
        self.submissions.close();
        self.waiting
            .extend(std::iter::from_fn(|| self.submissions.try_recv().ok()));
        for index in (0..self.running.len()).rev() {
            self.finish(index, RequestUpdate::default(), stop.clone());
        }
        for submission in std::mem::take(&mut self.waiting) {
            self.refuse(submission, stop.clone());
        }
        self.shared.heartbeat.idle();
        self.ranks.stop();
    }

    /// Takes in what was submitted; waits only when there is nothing to do. False when the
    /// submissions are closed.
    fn receive(&mut self) -> bool {
        if self.running.is_empty() && self.waiting.is_empty() {
            self.shared.heartbeat.idle();
            match self.submissions.recv_blocking() {
                Ok(submission) => self.waiting.push_back(submission),
                Err(_) => return false,
            }
        }
        if self.submissions.is_closed() {
            return false;
        }
        self.waiting
            .extend(std::iter::from_fn(|| self.submissions.try_recv().ok()));
        true
    }

    /// Ends requests whose receiver is gone, running or waiting.
    fn drop_cancelled(&mut self) {
        for index in (0..self.running.len()).rev() {
            if self.running[index].updates.is_closed() {
                self.finish(index, RequestUpdate::default(), Stop::Cancelled);
            }
        }
        for submission in std::mem::take(&mut self.waiting) {
            if submission.updates.is_closed() {
                self.refuse(submission, Stop::Cancelled);
            } else {
                self.waiting.push_back(submission);
            }
        }
    }

    /// Gives free slots to waiting requests, first come, first served.
    fn admit(&mut self) {
        while let Some(&slot) = self.free_slots.last()
            && let Some(submission) = self.waiting.pop_front()
        {
            let Submission {
                mut request,
                updates,
            } = submission;
            let room = self.limits.max_model_len - request.prompt.len();
            request.max_tokens = request.max_tokens.min(room);
            if request.max_tokens == 0 {
                self.refuse(Submission { request, updates }, Stop::Length);
                continue;
            }
            self.shared.queue.leave();
            self.free_slots.pop();
            self.running.push(Running {
                usage: Usage {
                    prompt_tokens: request.prompt.len(),
                    ..Usage::default()
                },
                request,
                updates,
                slot,
                table: BlockTable::default(),
                entered: false,
                committed: 0,
                admitted: Instant::now(),
                first_token: None,
            });
        }
    }

    /// The next step of every running request. One that does not get its blocks fails.
    fn plan(&mut self) -> StepPlan {
        let mut plan = StepPlan::default();
        let mut prompt_rows = self.limits.prefill_chunk;
        let mut refused = Vec::new();
        for (index, running) in self.running.iter_mut().enumerate() {
            let max_drafts = running.drafts(self.limits);
            let chunk = running.prompt_left().min(prompt_rows);
            let rows = match running.prompt_left() {
                0 => self.limits.draft_rows.max(1 + max_drafts),
                _ => chunk,
            };
            if rows == 0 {
                continue;
            }
            let (slot, past) = (running.slot, running.committed);
            if let Err(error) = self.pool.grow(&mut running.table, past + rows) {
                refused.push((index, error));
                continue;
            }
            if !running.entered {
                running.entered = true;
                plan.enter.push(Entry {
                    slot,
                    request: running.request.clone(),
                });
            }
            let blocks = running.table.blocks().to_vec();
            if running.prompt_left() == 0 {
                plan.decode.push(DecodeStep {
                    slot,
                    past,
                    max_drafts,
                    blocks,
                });
            } else {
                prompt_rows -= chunk;
                plan.prefill.push(PrefillChunk {
                    slot,
                    past,
                    len: chunk,
                    blocks,
                });
            }
        }
        for (index, error) in refused.into_iter().rev() {
            let stop = Stop::Failed(error.to_string());
            self.finish(index, RequestUpdate::default(), stop);
        }
        plan
    }

    /// Hands the outputs of a step out.
    fn apply(&mut self, updates: Vec<SlotUpdate>) {
        for update in updates {
            let index = self.running.iter().position(|r| r.slot == update.slot);
            let index = index.expect("an update comes from a slot of the plan: this is a bug");
            let running = &mut self.running[index];
            let prefill = running.prompt_left() > 0;
            running.take(&update);
            let mut stats = self.shared.stats();
            stats.completion_tokens += update.tokens.len() as u64;
            if prefill {
                stats.prompt_tokens += update.committed as u64;
            } else {
                stats.count_step(update.drafted, update.accepted);
            }
            drop(stats);
            let message = RequestUpdate {
                tokens: update.tokens,
                drafted: update.drafted,
                accepted: update.accepted,
                terminal: None,
            };
            match update.stop {
                Some(stop) => self.finish(index, message, stop),
                // A receiver that is gone is seen before the next step.
                None if !message.tokens.is_empty() => {
                    let _ = running.updates.try_send(message);
                }
                None => {}
            }
        }
    }

    /// Ends all that took part in a failed step. The ranks reset a slot when it is entered again.
    fn fail_running(&mut self, error: &EngineError) {
        tracing::error!("a step failed: {error}");
        for index in (0..self.running.len()).rev() {
            let stop = Stop::Failed(error.to_string());
            self.finish(index, RequestUpdate::default(), stop);
        }
    }

    /// Frees what a running request holds and sends its last update.
    fn finish(&mut self, index: usize, message: RequestUpdate, stop: Stop) {
        let running = self.running.remove(index);
        self.pool.release(running.table);
        self.free_slots.push(running.slot);
        debug_assert!(
            !self.running.is_empty() || self.pool.balanced(),
            "blocks are missing while nothing runs: this is a bug"
        );
        self.count_end(&stop);
        self.show_gauges();
        let mut usage = running.usage;
        usage.prefill_ms = ms(running.admitted, running.first_token);
        usage.decode_ms = running.first_token.map_or(0.0, |first| ms(first, None));
        send_last(&running.updates, message, stop, usage);
    }

    /// Ends a request that never ran.
    fn refuse(&mut self, submission: Submission, stop: Stop) {
        self.shared.queue.leave();
        self.count_end(&stop);
        let usage = Usage {
            prompt_tokens: submission.request.prompt.len(),
            ..Usage::default()
        };
        send_last(&submission.updates, RequestUpdate::default(), stop, usage);
    }

    fn count_end(&self, stop: &Stop) {
        let mut stats = self.shared.stats();
        match stop {
            Stop::Token(_) | Stop::Length => stats.finished += 1,
            Stop::Cancelled => stats.cancelled += 1,
            Stop::Failed(_) => stats.failed += 1,
        }
    }

    fn show_gauges(&self) {
        let mut stats = self.shared.stats();
        stats.running = self.running.len();
        stats.free_blocks = self.pool.free();
    }
}

impl Running {
    /// Prompt tokens that are still to be computed.
    fn prompt_left(&self) -> usize {
        self.request.prompt.len().saturating_sub(self.committed)
    }

    /// Most drafts of the next step: with its bonus token a block must fit what is left to
    /// generate.
    fn drafts(&self, limits: SchedulerLimits) -> usize {
        let left = self.request.max_tokens - self.usage.completion_tokens;
        limits
            .max_drafts
            .min(self.request.speculate.max_drafts)
            .min(left.saturating_sub(1))
    }

    /// Counts a step.
    fn take(&mut self, update: &SlotUpdate) {
        if self.prompt_left() == 0 {
            self.usage.steps += 1;
        }
        self.committed += update.committed;
        self.usage.completion_tokens += update.tokens.len();
        self.usage.drafted_tokens += update.drafted;
        self.usage.accepted_tokens += update.accepted;
        if !update.tokens.is_empty() {
            self.first_token.get_or_insert_with(Instant::now);
        }
    }
}

fn send_last(updates: &Sender<RequestUpdate>, message: RequestUpdate, stop: Stop, usage: Usage) {
    let terminal = Some(Terminal { stop, usage });
    // The receiver may be gone: then nobody waits for it.
    let _ = updates.try_send(RequestUpdate {
        terminal,
        ..message
    });
}

/// Milliseconds from `start` to `end`, or to now.
fn ms(start: Instant, end: Option<Instant>) -> f64 {
    let end = end.unwrap_or_else(Instant::now);
    end.saturating_duration_since(start).as_secs_f64() * 1e3
}
