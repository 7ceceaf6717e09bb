//! Who runs: requests come in, are let in, and leave when nobody listens.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use volley_cache::{Prefix, Resume};
use volley_speculate::Method;

use super::{Schedule, SchedulerLimits};
use crate::drafting::RequestDrafter;
use crate::handle::Submission;
use crate::running::{Running, Turn};
use crate::step::{Entry, Restore};
use crate::{CacheMiss, Request, RequestUpdate, Stop, Usage};

impl Schedule {
    /// A request waits for its turn from `now` on, counted from the engine's start.
    pub fn queue(&mut self, submission: Submission, now: Duration) {
        let turn = Turn::new(submission.request.priority, now, self.arrivals);
        self.arrivals += 1;
        self.waiting.insert(turn, submission);
    }

    /// Ends requests whose receiver is gone, running or waiting.
    pub fn drop_cancelled(&mut self) {
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
    pub fn admit(&mut self) {
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
        let Submission {
            mut request,
            updates,
            came,
        } = submission;
        self.shared.queue.leave();
        let drafter = RequestDrafter::new(&request, self.limits.drafts);
        if let Some(salt) = self.salt(&request, &drafter) {
            request.cache_salt = salt;
        }
        let slot = self.cache.take_slot();
        let slot = slot.expect("every running sequence has a slot: this is a bug");
        let resume = self.cache.resume(Prefix {
            salt: &request.cache_salt,
            tokens: &request.prompt,
        });
        tracing::debug!(
            prompt_tokens = request.prompt.len(),
            cached_tokens = resume.tokens,
            cache_miss_at = resume.common,
            cache_miss_reason = resume.miss.name(),
            "admitted"
        );
        let caching = self.limits.cache.checkpoints > 0;
        let method = self.follower(&drafter);
        self.entries
            .push(entry(slot, Some(request.clone()), method, &resume));
        let admitted = Instant::now();
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
                cache_miss: caching.then_some(CacheMiss {
                    at: resume.common,
                    why: resume.miss,
                }),
                queue_ms: (admitted - came).as_secs_f64() * 1e3,
                ..Usage::default()
            },
            committed: resume.tokens,
            table: resume.table,
            request,
            drafter,
            updates,
            slot,
            lost: false,
            admitted,
            first_token: None,
        };
        let mut stats = self.shared.stats();
        if caching {
            stats.queried_tokens += running.usage.prompt_tokens as u64;
        }
        stats.cached_tokens += running.usage.cached_tokens as u64;
        drop(stats);
        let place = self.running.partition_point(|other| other.turn < turn);
        self.running.insert(place, running);
    }

    /// Who is to follow a sequence: all that others may need who go on with its text. An MTP head beside
    /// a drafter follows those alone that chose it, as it takes time in every step.
    fn follower(&self, drafter: &RequestDrafter) -> Option<Method> {
        let method = drafter.method();
        let kept = self.limits.cache.checkpoints > 0;
        let apart = self.limits.drafts.head_apart() && method == Method::Mtp;
        (!kept || apart).then_some(method)
    }

    /// The salt of a request where those that a head follows and those that it does not share nothing.
    fn salt(&self, request: &Request, drafter: &RequestDrafter) -> Option<Arc<str>> {
        let head = drafter.method() == Method::Mtp;
        let follower = if head { "mtp" } else { "drafter" };
        let apart = self.limits.drafts.head_apart();
        apart.then(|| format!("{follower}:{}", request.cache_salt).into())
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
        let method = self.follower(&self.running[index].drafter);
        let running = &mut self.running[index];
        let resume = self.cache.resume(running.prefix(running.text.len()));
        self.entries
            .push(entry(running.slot, None, method, &resume));
        running.committed = resume.tokens;
        running.table = resume.table;
        running.lost = false;
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
