//! The engine thread: takes requests in order, plans steps, hands tokens out.
//!
//! Memory is given out as it is needed, not for the worst case: a request without `max_tokens`
//! would otherwise keep a whole context for itself. When blocks run out, first kept prefixes give
//! way, then the requests that came last: they stay in their slots, lose what was computed, and
//! compute it again when there is room. The first one always gets on, so all do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_channel::{Receiver, Sender};
use volley_cache::{Cache, CacheSizes, Resume};
use volley_speculate::Method;
use volley_speculate::policy::Policy;

use crate::drafting::{DraftLimits, RequestDrafter, step_kind};
use crate::handle::{Shared, Submission};
use crate::pace::{Pace, share};
use crate::ranks::{RankGroup, StepFailure};
use crate::running::{Running, Turn};
use crate::step::{DecodeStep, Entry, PrefillChunk, Restore, Save, SlotUpdate, StepPlan};
use crate::{EngineError, Request, RequestUpdate, Stop, Terminal, Usage};

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

pub(crate) struct Scheduler {
    ranks: RankGroup,
    submissions: Receiver<Submission>,
    shared: Arc<Shared>,
    limits: SchedulerLimits,
    cache: Cache,
    pace: Pace,
    policy: Policy,
    arrivals: u64,
    waiting: BTreeMap<Turn, Submission>,
    /// In order of their turns.
    running: Vec<Running>,
    /// Entries of the next plan.
    entries: Vec<Entry>,
    /// Checkpoints that the step in hand makes: slot of the sequence, slot of the checkpoint,
    /// tokens.
    saving: Vec<(Save, usize)>,
}

impl Scheduler {
    pub(crate) fn new(
        ranks: RankGroup,
        submissions: Receiver<Submission>,
        shared: Arc<Shared>,
        limits: SchedulerLimits,
        policy: Policy,
    ) -> Self {
        Self {
            ranks,
            submissions,
            shared,
            cache: Cache::new(limits.cache),
            pace: Pace::new(limits.max_itl),
            policy,
            limits,
            arrivals: 0,
            waiting: BTreeMap::new(),
            running: Vec::new(),
            entries: Vec::new(),
            saving: Vec::new(),
        }
    }

    /// Runs until the submissions are closed or a rank is lost; the error says how.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        while self.receive()? {
            self.drop_cancelled();
            self.admit();
            self.shared.heartbeat.step_begins();
            let plan = self.plan();
            self.show_gauges();
            if !plan.is_empty() {
                self.step(plan)?;
            }
            if cfg!(debug_assertions) {
                self.check_integrity()?;
            }
        }
        Ok(())
    }

    /// Ends everything: no request is left without a terminal.
    pub(crate) fn stop(mut self, stop: Stop) {
        self.submissions.close();
        self.take_submissions();
        for index in (0..self.running.len()).rev() {
            self.finish(index, RequestUpdate::default(), stop.clone());
        }
        for (_, submission) in std::mem::take(&mut self.waiting) {
            self.refuse(submission, stop.clone());
        }
        self.shared.heartbeat.idle();
        self.ranks.stop();
    }

    /// Takes in what was submitted; waits only when there is nothing to do. False when the
    /// submissions are closed.
    fn receive(&mut self) -> Result<bool, String> {
        if self.running.is_empty() && self.waiting.is_empty() {
            self.check_integrity()?;
            self.shared.heartbeat.idle();
            match self.submissions.recv_blocking() {
                Ok(submission) => self.queue(submission),
                Err(_) => return Ok(false),
            }
        }
        self.take_submissions();
        Ok(!self.submissions.is_closed())
    }

    fn take_submissions(&mut self) {
        while let Ok(submission) = self.submissions.try_recv() {
            self.queue(submission);
        }
    }

    fn queue(&mut self, submission: Submission) {
        let turn = Turn {
            priority: submission.request.priority,
            arrival: self.arrivals,
        };
        self.arrivals += 1;
        self.waiting.insert(turn, submission);
    }

    /// Every block and slot has its one place; nothing can be trusted any more if not.
    fn check_integrity(&self) -> Result<(), String> {
        let tables = self.running.iter().map(|running| &running.table);
        let slots = self.running.iter().map(|running| running.slot);
        let checked = self.cache.check(tables, slots);
        checked.map_err(|error| format!("the cache is inconsistent: {error}"))
    }

    /// Ends requests whose receiver is gone, running or waiting.
    fn drop_cancelled(&mut self) {
        for index in (0..self.running.len()).rev() {
            if self.running[index].updates.is_closed() {
                self.finish(index, RequestUpdate::default(), Stop::Cancelled);
            }
        }
        let gone = |submission: &Submission| submission.updates.is_closed();
        let waiting = std::mem::take(&mut self.waiting);
        let (gone, waiting) = waiting
            .into_iter()
            .partition(|(_, submission)| gone(submission));
        self.waiting = waiting;
        let gone: BTreeMap<Turn, Submission> = gone;
        for submission in gone.into_values() {
            self.refuse(submission, Stop::Cancelled);
        }
    }

    /// Lets requests in while there are places and room for their prompts, strictly in turn:
    /// first those that lost their blocks, then those that wait.
    fn admit(&mut self) {
        for index in 0..self.running.len() {
            if self.running[index].lost {
                if !self.fits(self.running[index].goal) {
                    return;
                }
                self.enter_again(index);
            }
        }
        while self.running.len() < self.limits.cache.sequences
            && let Some(first) = self.waiting.first_entry()
        {
            let request = &mut first.into_mut().request;
            let room = self.limits.max_model_len - request.prompt.len();
            request.max_tokens = request.max_tokens.min(room);
            let (tokens, nothing) = (request.prompt.len(), request.max_tokens == 0);
            if !nothing && !self.fits(tokens) {
                return;
            }
            let Some((turn, submission)) = self.waiting.pop_first() else {
                return;
            };
            match nothing {
                true => self.refuse(submission, Stop::Length),
                false => self.enter(turn, submission),
            }
        }
    }

    /// Whether there are blocks for a text of `tokens` beside all that runs has still to compute
    /// of its own. What it generates later is not counted.
    fn fits(&self, tokens: usize) -> bool {
        let blocks = |tokens: usize| {
            (tokens + self.limits.draft_rows.max(1)).div_ceil(self.limits.cache.block_size)
        };
        let mut holders = self
            .running
            .iter()
            .filter(|running| !running.lost)
            .peekable();
        if holders.peek().is_none() {
            return true;
        }
        let owed = holders.map(|r| blocks(r.goal).saturating_sub(r.table.blocks().len()));
        self.cache.idle_blocks() >= owed.sum::<usize>() + blocks(tokens)
    }

    fn enter(&mut self, turn: Turn, submission: Submission) {
        let Submission { request, updates } = submission;
        self.shared.queue.leave();
        let slot = self.cache.take_slot();
        let slot = slot.expect("every running sequence has a slot: this is a bug");
        let resume = self.cache.resume(&request.prompt);
        tracing::debug!(
            prompt_tokens = request.prompt.len(),
            cached_tokens = resume.tokens,
            cache_miss_at = resume.common,
            "admitted"
        );
        let caching = self.limits.cache.checkpoints > 0;
        let drafter = RequestDrafter::new(&request, self.limits.drafts);
        let method = (!caching).then_some(drafter.method());
        self.entries
            .push(entry(slot, Some(request.clone()), method, &resume));
        let running = Running {
            turn,
            marks: match caching {
                true => self.marks(&request, &resume),
                false => Vec::new(),
            },
            text: request.prompt.clone(),
            goal: request.prompt.len(),
            usage: Usage {
                prompt_tokens: request.prompt.len(),
                cached_tokens: resume.tokens,
                cache_miss_at: caching.then_some(resume.common),
                ..Usage::default()
            },
            committed: resume.tokens,
            table: resume.table,
            request,
            drafter,
            updates,
            slot,
            lost: false,
            admitted: Instant::now(),
            first_token: None,
        };
        self.shared.stats().cached_tokens += running.usage.cached_tokens as u64;
        let place = self.running.partition_point(|other| other.turn < turn);
        self.running.insert(place, running);
    }

    /// Where the states of a prompt are kept: as asked for, at regular distances, and where it
    /// parts from another text, since a third one may well share the same beginning.
    fn marks(&self, request: &Request, resume: &Resume) -> Vec<usize> {
        let SchedulerLimits {
            cache,
            checkpoint_interval,
            ..
        } = self.limits;
        let interval = checkpoint_interval
            .next_multiple_of(cache.block_size)
            .max(1);
        let common = resume.common / cache.block_size * cache.block_size;
        let mut marks = request.checkpoints.clone();
        marks.extend(
            (1..)
                .map(|i| i * interval)
                .take_while(|&mark| mark < request.prompt.len()),
        );
        marks.push(common);
        marks.retain(|mark| (resume.tokens + 1..request.prompt.len()).contains(mark));
        marks.sort_unstable();
        marks.dedup();
        marks
    }

    /// Starts a sequence that lost its blocks from what is still kept of it.
    fn enter_again(&mut self, index: usize) {
        let running = &mut self.running[index];
        let resume = self.cache.resume(&running.text);
        let caching = self.limits.cache.checkpoints > 0;
        let method = (!caching).then_some(running.drafter.method());
        self.entries
            .push(entry(running.slot, None, method, &resume));
        running.committed = resume.tokens;
        running.table = resume.table;
        running.lost = false;
    }

    /// The next step: a decode step of every stream, then prompt chunks as far as streams can
    /// wait for them. Who does not get its blocks waits, or has lost them to one before it.
    fn plan(&mut self) -> StepPlan {
        let decoding = self.running.iter().filter(|running| running.decodes());
        let decoding = decoding.count();
        let mut drafts = Vec::with_capacity(self.running.len());
        for running in &mut self.running {
            drafts.push(running.draft(&self.policy, decoding));
        }
        let rows = drafts.iter().flatten().map(|draft| 1 + draft.most_drafts());
        let rows = rows.sum();
        let budget = self.pace.budget(rows, self.limits.prefill_chunk);
        let wants: Vec<usize> = self.running.iter().map(Running::chunk).collect();
        let shares = share(budget, &wants);
        let mut plan = StepPlan {
            enter: std::mem::take(&mut self.entries),
            ..StepPlan::default()
        };
        for ((index, share), draft) in shares.into_iter().enumerate().zip(drafts) {
            let running = &self.running[index];
            let past = running.committed;
            let len = running.align(share, self.limits.cache.block_size);
            let rows = match &draft {
                Some(draft) => self.limits.draft_rows.max(1 + draft.most_drafts()),
                None => len,
            };
            if running.lost || rows == 0 || !self.grow(index, past + rows) {
                continue;
            }
            let running = &self.running[index];
            let (slot, blocks) = (running.slot, running.table.blocks().to_vec());
            if let Some(draft) = draft {
                plan.decode.push(DecodeStep {
                    slot,
                    past,
                    draft,
                    blocks,
                });
                continue;
            }
            plan.prefill.push(PrefillChunk {
                slot,
                past,
                len,
                blocks,
            });
            let end = past + len;
            if running.marks.contains(&end)
                && let Some(to) = self.cache.checkpoint_slot(&running.text[..end])
            {
                let save = Save { from: slot, to };
                plan.saves.push(save);
                self.saving.push((save, end));
            }
        }
        plan
    }

    /// Grows the table of a request to cover `tokens`, if need be at the cost of those behind it.
    fn grow(&mut self, index: usize, tokens: usize) -> bool {
        loop {
            let table = &mut self.running[index].table;
            if self.cache.grow(table, tokens).is_ok() {
                return true;
            }
            let behind = index + 1..self.running.len();
            let holds = |&other: &usize| !self.running[other].table.blocks().is_empty();
            let Some(last) = behind.rev().find(holds) else {
                return false;
            };
            let table = self.running[last].lose();
            self.cache.release(table);
            self.shared.stats().preempted += 1;
            tracing::debug!(slot = self.running[last].slot, "gives way");
        }
    }

    fn step(&mut self, plan: StepPlan) -> Result<(), String> {
        let slots = plan.decode.iter();
        let rows = slots.map(|step| 1 + step.draft.most_drafts()).sum();
        let kind = step_kind(&plan.decode).filter(|_| plan.prefill.is_empty());
        let tokens = plan.prefill.iter().map(|chunk| chunk.len).sum();
        let began = Instant::now();
        match self.ranks.step(plan) {
            Ok(outputs) => {
                let took = began.elapsed();
                self.pace.record(rows, tokens, took);
                if let Some((kind, sequences)) = kind {
                    let rows = outputs.updates.iter().map(|update| 1 + update.drafted);
                    let ms = took.as_secs_f64() * 1e3;
                    self.policy.costs.take(kind, sequences, rows.sum(), ms);
                }
                if rows > 0 {
                    self.shared.stats().count_gap(took, self.limits.max_itl);
                }
                self.keep_saved();
                self.apply(outputs.updates);
                Ok(())
            }
            Err(StepFailure::Step(error)) => {
                self.fail_running(&error);
                Ok(())
            }
            Err(StepFailure::Lost(reason)) => Err(reason),
        }
    }

    /// The checkpoints of the step are there now.
    fn keep_saved(&mut self) {
        for (save, tokens) in std::mem::take(&mut self.saving) {
            let saved = self.running.iter().find(|r| r.slot == save.from);
            let saved = saved.expect("a save comes from a slot of the plan: this is a bug");
            self.cache
                .insert(&saved.text[..tokens], &saved.table, save.to);
        }
    }

    /// Hands the outputs of a step out.
    fn apply(&mut self, updates: Vec<SlotUpdate>) {
        for update in updates {
            let index = self.running.iter().position(|r| r.slot == update.slot);
            let index = index.expect("an update comes from a slot of the plan: this is a bug");
            let running = &mut self.running[index];
            let prefill = running.left() > 0;
            running.take(&mut self.policy, &update);
            let mut stats = self.shared.stats();
            stats.completion_tokens += update.tokens.len() as u64;
            if prefill {
                stats.prompt_tokens += update.committed as u64;
            } else {
                stats.count_step(&update);
            }
            drop(stats);
            let message = RequestUpdate {
                tokens: update.tokens,
                method: update.method,
                drafted: update.drafted,
                accepted: update.accepted,
                logprobs: update.logprobs,
                forced: update.forced,
                closed_by: update.closed_by,
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

    /// Ends all that took part in a failed step. The ranks may have gone different ways in it, so
    /// nothing that was kept is trusted either.
    fn fail_running(&mut self, error: &EngineError) {
        tracing::error!("a step failed: {error}");
        for (save, _) in std::mem::take(&mut self.saving) {
            self.cache.give_back(save.to);
        }
        self.cache.clear();
        for index in (0..self.running.len()).rev() {
            let stop = Stop::Failed(error.to_string());
            self.finish(index, RequestUpdate::default(), stop);
        }
    }

    /// Frees what a running request holds and sends its last update. What a complete one has
    /// computed is kept for those that go on with it.
    fn finish(&mut self, index: usize, message: RequestUpdate, stop: Stop) {
        let running = self.running.remove(index);
        self.count_end(&stop, Some(&running));
        match stop {
            Stop::Token(_) | Stop::Length | Stop::Repetition => {
                let text = &running.text[..running.committed];
                self.cache.donate(text, running.table, running.slot);
            }
            Stop::Cancelled | Stop::Failed(_) => {
                self.cache.release(running.table);
                self.cache.give_slot(running.slot);
            }
        }
        self.show_gauges();
        let mut usage = running.usage;
        usage.prefill_ms = ms(running.admitted, running.first_token);
        usage.decode_ms = running.first_token.map_or(0.0, |first| ms(first, None));
        send_last(&running.updates, message, stop, usage);
    }

    /// Ends a request that never ran.
    fn refuse(&mut self, submission: Submission, stop: Stop) {
        self.shared.queue.leave();
        self.count_end(&stop, None);
        let usage = Usage {
            prompt_tokens: submission.request.prompt.len(),
            ..Usage::default()
        };
        send_last(&submission.updates, RequestUpdate::default(), stop, usage);
    }

    fn count_end(&self, stop: &Stop, running: Option<&Running>) {
        let mut stats = self.shared.stats();
        match stop {
            Stop::Token(_) | Stop::Length | Stop::Repetition => stats.finished += 1,
            Stop::Failed(_) => stats.failed += 1,
            Stop::Cancelled => {
                stats.cancelled += 1;
                match running {
                    None => stats.cancelled_waiting += 1,
                    Some(running) if running.first_token.is_none() => stats.cancelled_prefill += 1,
                    Some(_) => stats.cancelled_decode += 1,
                }
            }
        }
    }

    fn show_gauges(&self) {
        let mut stats = self.shared.stats();
        stats.running = self.running.len();
        stats.free_blocks = self.cache.idle_blocks();
        stats.cached_blocks = self.cache.cached_blocks();
        stats.checkpoints = self.cache.checkpoints();
    }
}

fn entry(slot: usize, request: Option<Request>, method: Option<Method>, resume: &Resume) -> Entry {
    Entry {
        slot,
        request,
        method,
        from: resume.slot.map(|slot| Restore {
            slot,
            tokens: resume.tokens,
            tail: resume.tail,
        }),
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
