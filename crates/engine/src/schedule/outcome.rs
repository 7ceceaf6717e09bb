//! What a step came to: tokens to the clients, prefixes to the cache, an end to those that are done.

use std::time::Duration;

use async_channel::Sender;
use volley_cache::Prefix;
use volley_speculate::policy::StepKind;

use super::{Saving, Schedule};
use crate::drafting::step_kind;
use crate::handle::Submission;
use crate::running::Running;
use crate::step::{SlotUpdate, StepOutputs, StepPlan};
use crate::{EngineError, RequestUpdate, Stop, Terminal, Usage};

/// What a step has to do, by which its time is judged.
pub(crate) struct StepLoad {
    /// Decode rows.
    rows: usize,
    /// Prompt tokens.
    tokens: usize,
    /// Most tokens before any of their chunks.
    past: usize,
    /// How all of a pure decode step draft, and how many they are.
    kind: Option<(StepKind, usize)>,
}

impl StepLoad {
    pub fn of(plan: &StepPlan) -> Self {
        let decode = plan.decode.iter();
        Self {
            rows: decode.map(|step| 1 + step.draft.most_drafts()).sum(),
            tokens: plan.prefill.iter().map(|chunk| chunk.len).sum(),
            past: plan
                .prefill
                .iter()
                .map(|chunk| chunk.past)
                .max()
                .unwrap_or(0),
            kind: step_kind(&plan.decode).filter(|_| plan.prefill.is_empty()),
        }
    }
}

impl Schedule {
    /// Takes in what a step gave and how long it took.
    pub fn take(&mut self, load: &StepLoad, outputs: StepOutputs, took: Duration) {
        let &StepLoad {
            rows, tokens, past, ..
        } = load;
        let said = |update: &SlotUpdate| !update.tokens.is_empty();
        let waited = outputs.updates.iter().any(said);
        self.pace.record(rows, tokens, past, took, waited);
        if let Some((kind, sequences)) = load.kind {
            let rows = outputs.updates.iter().map(|update| 1 + update.drafted);
            let ms = took.as_secs_f64() * 1e3;
            self.timed = Some((kind, sequences, rows.sum(), ms));
        }
        if load.rows > 0 {
            self.shared.stats().count_gap(took, self.limits.max_itl);
        }
        self.keep_saved();
        self.apply(outputs.updates);
    }

    /// The checkpoints of the step are there now.
    fn keep_saved(&mut self) {
        for Saving { save, tokens } in std::mem::take(&mut self.saving) {
            let saved = self.running.iter().find(|r| r.slot == save.from);
            let saved = saved.expect("a save comes from a slot of the plan: this is a bug");
            self.cache
                .insert(saved.prefix(tokens), &saved.table, save.to);
        }
    }

    /// Hands the outputs of a step out.
    fn apply(&mut self, updates: Vec<SlotUpdate>) {
        for update in updates {
            let index = self.running.iter().position(|r| r.slot == update.slot);
            let index = index.expect("an update comes from a slot of the plan: this is a bug");
            let running = &mut self.running[index];
            let prefill = running.left() > 0;
            let silent = running.first_token.is_none();
            running.take(&mut self.policy, &update);
            let mut stats = self.shared.stats();
            stats.completion_tokens += update.tokens.len() as u64;
            if silent && running.first_token.is_some() {
                stats.prompt_tokens += running.usage.prompt_tokens as u64;
                stats.cached_prompt_tokens += running.usage.cached_tokens as u64;
            }
            if prefill {
                stats.computed_tokens += update.committed as u64;
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
                so_far: None,
                terminal: None,
            };
            match update.stop {
                Some(stop) => self.finish(index, message, stop),
                // A receiver that is gone is seen before the next step.
                None if !message.tokens.is_empty() => {
                    let so_far = Some(running.totals());
                    let _ = running
                        .updates
                        .try_send(RequestUpdate { so_far, ..message });
                }
                None => {}
            }
        }
    }

    /// Ends all that took part in a failed step. The ranks may have gone different ways in it, so
    /// nothing that was kept is trusted either.
    pub fn fail_running(&mut self, error: &EngineError) {
        tracing::error!("a step failed: {error}");
        for Saving { save, .. } in std::mem::take(&mut self.saving) {
            self.cache.give_back(save.to);
        }
        self.cache.clear();
        self.end_running(&Stop::Failed(error.to_string()));
    }

    pub(super) fn end_running(&mut self, stop: &Stop) {
        for index in (0..self.running.len()).rev() {
            self.finish(index, RequestUpdate::default(), stop.clone());
        }
    }

    /// Frees what a running request holds and sends its last update. What a complete one has
    /// computed is kept for those that go on with it.
    pub(super) fn finish(&mut self, index: usize, message: RequestUpdate, stop: Stop) {
        let running = self.running.remove(index);
        self.count_end(&stop, Some(&running));
        let totals = running.totals();
        match stop {
            Stop::Token(_) | Stop::Length | Stop::Repetition => {
                let text = Prefix {
                    salt: &running.request.cache_salt,
                    tokens: &running.text[..running.committed],
                };
                self.cache.donate(text, running.table, running.slot);
            }
            Stop::Cancelled | Stop::Failed(_) | Stop::Unfollowed(_) => {
                self.cache.release(running.table);
                self.cache.give_slot(running.slot);
            }
        }
        self.show_gauges();
        send_last(&running.updates, message, stop, totals);
    }

    /// Ends a request that never ran.
    pub(super) fn refuse(&mut self, submission: Submission, stop: Stop) {
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
            Stop::Failed(_) | Stop::Unfollowed(_) => stats.failed += 1,
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
}

fn send_last(updates: &Sender<RequestUpdate>, message: RequestUpdate, stop: Stop, usage: Usage) {
    let terminal = Some(Terminal { stop, usage });
    // The receiver may be gone: then nobody waits for it.
    let _ = updates.try_send(RequestUpdate {
        terminal,
        ..message
    });
}
