use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use async_channel::{Receiver, Sender};
use volley_speculate::policy::Policy;

use crate::{EngineError, EngineInfo, EngineStats, Request, RequestUpdate};

/// The way to a running engine; cheap to clone. The engine ends when all clones are dropped; the
/// last one waits for its threads, which give the device back.
#[derive(Clone)]
pub struct EngineHandle {
    /// Goes first: the engine ends when nothing can be submitted.
    pub(crate) submissions: Sender<Submission>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) thread: Arc<EngineThread>,
}

/// The engine's thread, joined once.
pub(crate) struct EngineThread(pub(crate) Mutex<Option<JoinHandle<()>>>);

impl EngineThread {
    fn join(&self) {
        let thread = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the engine thread ended by a panic");
        }
    }
}

impl Drop for EngineThread {
    fn drop(&mut self) {
        self.join();
    }
}

/// A request on its way to the scheduler.
pub(crate) struct Submission {
    pub(crate) request: Request,
    pub(crate) updates: Sender<RequestUpdate>,
    pub(crate) came: Instant,
}

/// What the engine thread shows to the handles.
pub(crate) struct Shared {
    pub(crate) info: EngineInfo,
    pub(crate) timed: Policy,
    pub(crate) stats: Mutex<EngineStats>,
    pub(crate) stopped: OnceLock<Stopped>,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) queue: Queue,
}

/// How an engine has ended.
pub(crate) struct Stopped {
    pub(crate) reason: String,
    /// Whether nobody asked for it.
    pub(crate) failed: bool,
}

/// Places for requests that wait; the channel itself is unbounded, so that the scheduler can look
/// at all of them at every step.
pub(crate) struct Queue {
    waiting: AtomicUsize,
    limit: usize,
}

impl Queue {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            limit,
        }
    }

    pub(crate) fn enter(&self) -> Result<(), EngineError> {
        let enter = |n| (n < self.limit).then_some(n + 1);
        self.waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, enter)
            .map(|_| ())
            .map_err(|_| EngineError::QueueFull { limit: self.limit })
    }

    pub(crate) fn leave(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    pub(crate) fn stats(&self) -> MutexGuard<'_, EngineStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When the running step began; an idle engine needs no beat.
pub(crate) struct Heartbeat {
    start: Instant,
    limit: Duration,
    /// Milliseconds after `start`, plus one; 0 when idle.
    step_began_ms: AtomicU64,
}

impl Heartbeat {
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            start: Instant::now(),
            limit,
            step_began_ms: AtomicU64::new(0),
        }
    }

    pub(crate) fn step_begins(&self) {
        let now = self.start.elapsed().as_millis() as u64 + 1;
        self.step_began_ms.store(now, Ordering::Relaxed);
    }

    pub(crate) fn idle(&self) {
        self.step_began_ms.store(0, Ordering::Relaxed);
    }

    fn stalled(&self) -> bool {
        let began = self.step_began_ms.load(Ordering::Relaxed);
        let now = self.start.elapsed().as_millis() as u64 + 1;
        began != 0 && u128::from(now.saturating_sub(began)) > self.limit.as_millis()
    }
}

impl EngineHandle {
    /// Queues a request. Its updates come over the receiver, the last one with a terminal;
    /// dropping the receiver cancels the request within one step.
    pub fn submit(&self, request: Request) -> Result<Receiver<RequestUpdate>, EngineError> {
        self.validate(&request)?;
        self.shared.queue.enter()?;
        // At most one update per token, so the channel is bounded by `max_tokens`, and a slow
        // reader never stops the engine.
        let (updates, receiver) = async_channel::unbounded();
        let submission = Submission {
            request,
            updates,
            came: Instant::now(),
        };
        self.submissions.try_send(submission).map_err(|_| {
            self.shared.queue.leave();
            let reason = self.shared.stopped.get();
            let reason = reason.map_or("shut down", |stopped| &stopped.reason);
            EngineError::Stopped(reason.to_string())
        })?;
        Ok(receiver)
    }

    fn validate(&self, request: &Request) -> Result<(), EngineError> {
        let info = self.info();
        if request.prompt.is_empty() {
            return Err(EngineError::EmptyPrompt);
        }
        if request.prompt.len() >= info.max_model_len {
            return Err(EngineError::PromptTooLong {
                prompt: request.prompt.len(),
                limit: info.max_model_len,
            });
        }
        request.sampling.validate()?;
        if let Some(method) = request.speculate.method
            && !info.methods.contains(&method)
        {
            return Err(EngineError::Method {
                method,
                offered: info.methods.clone(),
            });
        }
        let ids = request.prompt.iter();
        let unknown = ids
            .chain(request.sampling.logit_bias.keys())
            .find(|&&id| id as usize >= info.vocab_size);
        match unknown {
            Some(&id) => Err(EngineError::UnknownToken {
                id,
                vocab_size: info.vocab_size,
            }),
            None => Ok(()),
        }
    }

    /// Facts about the engine.
    pub fn info(&self) -> &EngineInfo {
        &self.shared.info
    }

    /// What steps cost at the start, for [`Method::Auto`](volley_speculate::Method::Auto); nothing
    /// where that is not the engine's method.
    pub fn timed(&self) -> &Policy {
        &self.shared.timed
    }

    /// Totals so far, with acceptance by position in the block.
    pub fn stats(&self) -> EngineStats {
        let mut stats = self.shared.stats().clone();
        stats.waiting = self.shared.queue.waiting.load(Ordering::Relaxed);
        stats
    }

    /// Whether the engine runs and its current step is not stuck.
    pub fn alive(&self) -> bool {
        self.shared.stopped.get().is_none() && !self.shared.heartbeat.stalled()
    }

    /// Why the engine has ended though nobody asked it to. Every request has had its error by
    /// then, or gets it at once; nothing but a new start helps.
    pub fn failure(&self) -> Option<&str> {
        let stopped = self.shared.stopped.get()?;
        stopped.failed.then_some(&*stopped.reason)
    }

    /// Ends the engine after its current step; requests that have not ended are cancelled.
    /// Blocks until its threads are gone.
    pub fn shutdown(&self) {
        self.submissions.close();
        self.thread.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_step_can_stall() {
        let heartbeat = Heartbeat::new(Duration::ZERO);
        assert!(!heartbeat.stalled());
        heartbeat.step_begins();
        std::thread::sleep(Duration::from_millis(5));
        assert!(heartbeat.stalled());
        heartbeat.idle();
        assert!(!heartbeat.stalled());
    }
}
