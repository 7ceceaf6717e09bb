//! The threads of the ranks. Each owns its device, its shard of the weights and its copy of the
//! sequences' states; the engine thread sends every one the same plan.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use volley_ops::Ops;

use crate::EngineError;
use crate::step::{StepOutputs, StepPlan};
use crate::worker::RankWorker;

/// How long the other ranks may go on after one has failed a step, or on GPUs has ended it.
const GRACE: Duration = Duration::from_secs(3);
/// The same where ranks share processors with everything else.
const GRACE_OF_THREADS: Duration = Duration::from_secs(20);
/// How long a rank looks for the next plan without pause, and the engine for the replies to it, where
/// a step is short and waking a thread would be a part of it that is felt.
const ATTENTION: Duration = Duration::from_millis(4);
/// Steps that take less are waited for without sleep: whoever has slept finds its memory in no cache, and
/// that costs more than the processor has to spare in between.
const NAP: Duration = Duration::from_millis(1);
/// How long a rank may take to end once nobody needs it.
const FAREWELL: Duration = Duration::from_secs(2);

/// Why a step gave no outputs.
#[derive(Debug)]
pub(crate) enum StepFailure {
    /// The step failed on every rank; the next one can work.
    Step(EngineError),
    /// A rank is gone, and with it the engine.
    Lost(String),
}

impl StepFailure {
    /// As an error of the start.
    pub(crate) fn error(self) -> EngineError {
        match self {
            Self::Step(error) => error,
            Self::Lost(reason) => EngineError::Stopped(reason),
        }
    }
}

/// All ranks of one engine.
pub(crate) struct RankGroup {
    ranks: Vec<Rank>,
    replies: Receiver<(usize, Reply)>,
    waiting: Waiting,
    /// How long the other ranks may go on after one has ended a step: they met in its last sum.
    grace: Duration,
    /// What the last step took that decoded alone, and the last one that read prompts.
    took: [Duration; 2],
    /// Between the first rank to begin the last step and the last one.
    skew: Duration,
    /// Of the last step: the most that a device waited for its host.
    idle: Duration,
}

/// How threads wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// Asleep, for ranks that need the processor.
    Asleep,
    /// Awake for [`ATTENTION`] around the time at which something is due.
    Awake,
}

struct Rank {
    plans: SyncSender<Arc<StepPlan>>,
    thread: JoinHandle<()>,
}

/// Times of a rank's step.
#[derive(Clone, Copy)]
struct Timing {
    begun: Instant,
    /// In which the device waited for the host.
    idle: Duration,
}

enum Reply {
    Loaded(Result<(), EngineError>),
    Step(Timing, Result<StepOutputs, EngineError>),
    Lost(String),
}

impl RankGroup {
    /// Starts a thread for each of `loaders`, which builds its rank there; returns when all are
    /// loaded.
    pub(crate) fn start<O, L>(loaders: Vec<L>, waiting: Waiting) -> Result<Self, EngineError>
    where
        O: Ops + 'static,
        L: FnOnce() -> Result<RankWorker<O>, EngineError> + Send + 'static,
    {
        let (reply, replies) = sync_channel(loaders.len());
        let mut ranks = Vec::with_capacity(loaders.len());
        for (rank, load) in loaders.into_iter().enumerate() {
            let (plans, incoming) = sync_channel::<Arc<StepPlan>>(1);
            let reply = reply.clone();
            let thread = std::thread::Builder::new()
                .name(format!("volley-rank-{rank}"))
                .spawn(move || {
                    let send = |message| reply.send((rank, message)).is_ok();
                    let work = AssertUnwindSafe(|| serve(load, incoming, waiting, &send));
                    if let Err(panic) = catch_unwind(work) {
                        send(Reply::Lost(panic_text(panic)));
                    }
                })?;
            ranks.push(Rank { plans, thread });
        }
        let group = Self {
            ranks,
            replies,
            waiting,
            grace: match waiting {
                Waiting::Asleep => GRACE_OF_THREADS,
                Waiting::Awake => GRACE,
            },
            took: [Duration::ZERO; 2],
            skew: Duration::ZERO,
            idle: Duration::ZERO,
        };
        for _ in 0..group.ranks.len() {
            match group.replies.recv() {
                Ok((_, Reply::Loaded(loaded))) => loaded?,
                Ok((rank, Reply::Lost(text))) => {
                    return Err(EngineError::Stopped(format!("rank {rank}: {text}")));
                }
                Ok((rank, Reply::Step(..))) => {
                    return Err(EngineError::Stopped(format!("rank {rank} ran ahead")));
                }
                Err(_) => return Err(EngineError::Stopped("all ranks have ended".into())),
            }
        }
        Ok(group)
    }

    /// Runs one step on every rank.
    pub(crate) fn step(&mut self, plan: StepPlan) -> Result<StepOutputs, StepFailure> {
        self.step_beside(plan, || ())
    }

    /// As [`RankGroup::step`]; `work` is done here while the ranks run.
    pub(crate) fn step_beside(
        &mut self,
        plan: StepPlan,
        work: impl FnOnce(),
    ) -> Result<StepOutputs, StepFailure> {
        let plan = Arc::new(plan);
        let reads = usize::from(!plan.prefill.is_empty());
        let begun = Instant::now();
        for (rank, Rank { plans, .. }) in self.ranks.iter().enumerate() {
            let sent = plans.send(Arc::clone(&plan));
            sent.map_err(|_| StepFailure::Lost(format!("rank {rank} has ended")))?;
        }
        work();
        let mut outputs: Vec<Option<StepOutputs>> = vec![None; self.ranks.len()];
        let mut failure = None;
        let mut timings = Vec::with_capacity(self.ranks.len());
        for done in 0..self.ranks.len() {
            let reply = match &failure {
                None if done == 0 => self.first_reply(begun, nap(self.took[reads])),
                None => receive(&self.replies, self.waiting, Some(self.grace)),
                Some(_) => self.replies.recv_timeout(GRACE),
            };
            if let Ok((_, Reply::Step(timing, _))) = reply {
                timings.push(timing);
            }
            match reply {
                Ok((rank, Reply::Step(_, Ok(done)))) => outputs[rank] = Some(done),
                Ok((_, Reply::Step(_, Err(error)))) if error.is_rank_lost() => {
                    return Err(StepFailure::Lost(failure.unwrap_or(error).to_string()));
                }
                Ok((_, Reply::Step(_, Err(error)))) => failure = failure.or(Some(error)),
                Ok((rank, Reply::Lost(text))) => {
                    return Err(StepFailure::Lost(format!("rank {rank}: {text}")));
                }
                Ok((rank, Reply::Loaded(_))) => {
                    return Err(StepFailure::Lost(format!("rank {rank} loaded twice")));
                }
                Err(silence) => {
                    let cause = failure.map_or(silence.to_string(), |error| error.to_string());
                    return Err(StepFailure::Lost(format!("not all ranks answer: {cause}")));
                }
            }
        }
        self.took[reads] = begun.elapsed();
        let begins = || timings.iter().map(|timing| timing.begun);
        let ends = begins().min().zip(begins().max());
        self.skew = ends.map_or(Duration::ZERO, |(first, last)| last - first);
        let idle = timings.iter().map(|timing| timing.idle).max();
        self.idle = idle.unwrap_or_default();
        match failure {
            None => agreed(outputs).map_err(StepFailure::Step),
            // Some ranks went through the step and others did not: their states no longer match,
            // but every sequence of the step is dropped, and entering a slot resets it.
            Some(error) => Err(StepFailure::Step(error)),
        }
    }

    /// Between the first rank to begin the last step and the last one.
    pub(crate) fn skew(&self) -> Duration {
        self.skew
    }

    /// Of the last step: the most that a device waited for its host between a read and the next
    /// launch.
    pub(crate) fn idle(&self) -> Duration {
        self.idle
    }

    /// The first reply to a step: asleep for a while first.
    fn first_reply(
        &self,
        begun: Instant,
        nap: Duration,
    ) -> Result<(usize, Reply), RecvTimeoutError> {
        if self.waiting == Waiting::Asleep {
            return Ok(self.replies.recv()?);
        }
        let nap = nap.saturating_sub(begun.elapsed());
        if nap.is_zero() {
            return receive(&self.replies, self.waiting, None);
        }
        match self.replies.recv_timeout(nap) {
            Err(RecvTimeoutError::Timeout) => receive(&self.replies, self.waiting, None),
            reply => reply,
        }
    }

    /// Ends the threads: each leaves after its step. One that hangs in its device is left behind.
    pub(crate) fn stop(self) {
        let threads: Vec<_> = self.ranks.into_iter().map(|rank| rank.thread).collect();
        // The plan channels are closed now; a rank stuck in a collective is freed when the
        // others leave it.
        drop(self.replies);
        let begun = Instant::now();
        for thread in threads {
            while !thread.is_finished() && begun.elapsed() < FAREWELL {
                std::thread::sleep(Duration::from_millis(1));
            }
            if !thread.is_finished() {
                tracing::error!("a rank does not end; it is left behind");
            } else if thread.join().is_err() {
                tracing::error!("a rank ended by a panic");
            }
        }
    }
}

/// How long nobody has to look for the reply to a step that takes as long as the last one like it.
fn nap(took: Duration) -> Duration {
    match took < NAP {
        true => Duration::ZERO,
        false => took * 3 / 4,
    }
}

/// The next message, if it comes within `limit`.
fn receive<T>(
    channel: &Receiver<T>,
    waiting: Waiting,
    limit: Option<Duration>,
) -> Result<T, RecvTimeoutError> {
    let begun = Instant::now();
    while waiting == Waiting::Awake && begun.elapsed() < ATTENTION {
        match channel.try_recv() {
            Ok(message) => return Ok(message),
            Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
        }
    }
    match limit {
        None => Ok(channel.recv()?),
        Some(limit) => channel.recv_timeout(limit),
    }
}

/// Rank 0's outputs, if all ranks have the same.
fn agreed(outputs: Vec<Option<StepOutputs>>) -> Result<StepOutputs, EngineError> {
    let mut outputs = outputs.into_iter().flatten();
    let first = outputs.next().unwrap_or_default();
    match outputs.position(|other| other != first) {
        Some(index) => Err(EngineError::RanksDiffer { rank: index + 1 }),
        None => Ok(first),
    }
}

/// The life of one rank.
fn serve<O: Ops>(
    load: impl FnOnce() -> Result<RankWorker<O>, EngineError>,
    plans: Receiver<Arc<StepPlan>>,
    waiting: Waiting,
    send: &dyn Fn(Reply) -> bool,
) {
    let mut worker = match load() {
        Ok(worker) => worker,
        Err(error) => {
            send(Reply::Loaded(Err(error)));
            return;
        }
    };
    let mut alive = send(Reply::Loaded(Ok(())));
    while alive {
        let Ok(plan) = receive(&plans, waiting, None) else {
            return;
        };
        let (begun, idle) = (Instant::now(), worker.idle());
        // What a panic leaves half done is dropped with the sequences of the step, as after an error.
        let outputs = caught(|| worker.step(&plan));
        if let Err(error) = &outputs
            && !error.is_rank_lost()
            && let Err(silence) = worker.probe()
        {
            send(Reply::Lost(format!(
                "{error}; its device does not answer any more: {silence}"
            )));
            return;
        }
        let idle = worker.idle() - idle;
        alive = send(Reply::Step(Timing { begun, idle }, outputs));
        if let Err(error) = caught(|| worker.settle()) {
            tracing::error!("what follows a step failed: {error}");
        }
    }
}

/// A panic as an error.
fn caught<T>(run: impl FnOnce() -> Result<T, EngineError>) -> Result<T, EngineError> {
    let outcome = catch_unwind(AssertUnwindSafe(run));
    outcome.unwrap_or_else(|panic| Err(EngineError::Panicked(panic_text(panic))))
}

/// What a panic said.
pub(crate) fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::PrefillChunk;

    /// A rank without a device, which answers or does not.
    fn rank(index: usize, answers: bool, replies: &SyncSender<(usize, Reply)>) -> Rank {
        let (plans, incoming) = sync_channel::<Arc<StepPlan>>(1);
        let replies = replies.clone();
        let thread = std::thread::spawn(move || {
            while incoming.recv().is_ok() {
                let timing = Timing {
                    begun: Instant::now(),
                    idle: Duration::ZERO,
                };
                let reply = Reply::Step(timing, Ok(StepOutputs::default()));
                if answers && replies.send((index, reply)).is_err() {
                    return;
                }
            }
        });
        Rank { plans, thread }
    }

    #[test]
    fn short_steps_are_waited_for_awake() {
        let nap = |micros| super::nap(Duration::from_micros(micros)).as_micros();
        assert_eq!([0, 340, 999, 1000, 16_000].map(nap), [0, 0, 0, 750, 12_000]);
    }

    /// A step that decodes alone is not expected to take as long as the prompt before it.
    #[test]
    fn steps_of_prompts_and_streams_are_timed_apart() {
        let (reply, replies) = sync_channel(1);
        let mut group = RankGroup {
            ranks: vec![rank(0, true, &reply)],
            replies,
            waiting: Waiting::Awake,
            grace: Duration::from_millis(50),
            took: [Duration::ZERO; 2],
            skew: Duration::ZERO,
            idle: Duration::ZERO,
        };
        let reads = StepPlan {
            prefill: vec![PrefillChunk {
                slot: 0,
                past: 0,
                len: 1,
                blocks: Vec::new(),
            }],
            ..StepPlan::default()
        };
        let step = |group: &mut RankGroup, plan: &StepPlan| {
            let beside = || std::thread::sleep(Duration::from_millis(5));
            group.step_beside(plan.clone(), beside).map(|_| ()).is_ok()
        };
        assert!(step(&mut group, &reads));
        assert!(group.took[0].is_zero() && group.took[1] >= Duration::from_millis(5));
        let before = group.took[1];
        assert!(step(&mut group, &StepPlan::default()));
        assert!(group.took[0] >= Duration::from_millis(5) && group.took[1] == before);
        group.stop();
    }

    #[test]
    fn a_rank_that_stays_away_is_given_up_once_another_has_ended_the_step() {
        for waiting in [Waiting::Asleep, Waiting::Awake] {
            for silent in [None, Some(0), Some(1)] {
                let (reply, replies) = sync_channel(2);
                let ranks = (0..2).map(|index| rank(index, Some(index) != silent, &reply));
                let mut group = RankGroup {
                    ranks: ranks.collect(),
                    replies,
                    waiting,
                    grace: Duration::from_millis(50),
                    took: [Duration::ZERO; 2],
                    skew: Duration::ZERO,
                    idle: Duration::ZERO,
                };
                match (group.step(StepPlan::default()), silent) {
                    (Ok(_), None) | (Err(StepFailure::Lost(_)), Some(_)) => {}
                    (ended, _) => panic!("{waiting:?}, {silent:?} is silent: {ended:?}"),
                }
                group.stop();
            }
        }
    }
}
