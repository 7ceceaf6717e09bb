//! The engine thread: takes requests in, runs one step after the other.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use async_channel::{Receiver, RecvError};
use volley_speculate::policy::Policy;

use crate::Stop;
use crate::handle::{Shared, Submission};
use crate::ranks::{RankGroup, StepFailure};
use crate::schedule::{Schedule, SchedulerLimits, StepLoad};
use crate::step::StepPlan;

/// How long an engine with a large pool has been idle before it looks through it.
const CHECK_AFTER: Duration = Duration::from_secs(1);

pub(crate) struct Scheduler {
    ranks: RankGroup,
    submissions: Receiver<Submission>,
    shared: Arc<Shared>,
    schedule: Schedule,
    start: Instant,
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
            schedule: Schedule::new(Arc::clone(&shared), limits, policy),
            shared,
            start: Instant::now(),
        }
    }

    /// Runs until the submissions are closed or a rank is lost; the error says how.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        while self.receive()? {
            let began = Instant::now();
            self.schedule.drop_cancelled();
            self.schedule.admit();
            self.shared.heartbeat.step_begins();
            let plan = self.schedule.plan();
            self.schedule.show_gauges();
            if !plan.is_empty() {
                self.step(plan, began)?;
            }
            if cfg!(debug_assertions) && self.schedule.is_quick_to_check() {
                self.schedule.check_integrity()?;
            }
        }
        Ok(())
    }

    /// Ends everything: no request is left without a terminal.
    pub(crate) fn stop(mut self, stop: &Stop) {
        self.submissions.close();
        self.take_submissions();
        self.schedule.end_all(stop);
        self.shared.heartbeat.idle();
        self.ranks.stop();
    }

    /// Takes in what was submitted; waits only when there is nothing to do. False when the
    /// submissions are closed.
    fn receive(&mut self) -> Result<bool, String> {
        if self.schedule.is_idle() {
            self.shared.heartbeat.idle();
            // A large pool takes a while to look through, in which nobody should wait.
            let patience = match self.schedule.is_quick_to_check() {
                true => Duration::ZERO,
                false => CHECK_AFTER,
            };
            let submission = match next_within(&self.submissions, patience) {
                Some(submission) => submission,
                None => {
                    self.schedule.check_integrity()?;
                    self.submissions.recv_blocking()
                }
            };
            match submission {
                Ok(submission) => self.schedule.queue(submission, self.start.elapsed()),
                Err(_) => return Ok(false),
            }
        }
        self.take_submissions();
        Ok(!self.submissions.is_closed())
    }

    fn take_submissions(&mut self) {
        while let Ok(submission) = self.submissions.try_recv() {
            self.schedule.queue(submission, self.start.elapsed());
        }
    }

    /// Runs a plan; streams wait for it since `began`.
    fn step(&mut self, plan: StepPlan, began: Instant) -> Result<(), String> {
        let load = StepLoad::of(&plan);
        let schedule = &mut self.schedule;
        match self.ranks.step_beside(plan, || schedule.settle()) {
            Ok(outputs) => self.schedule.take(&load, outputs, began.elapsed()),
            Err(StepFailure::Step(error)) => self.schedule.fail_running(&error),
            Err(StepFailure::Lost(reason)) => return Err(reason),
        }
        Ok(())
    }
}

/// The next message, or that there can be none; nothing when it takes longer than `patience`.
fn next_within<T>(from: &Receiver<T>, patience: Duration) -> Option<Result<T, RecvError>> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let until = Instant::now() + patience;
    let mut next = pin!(from.recv());
    loop {
        if let Poll::Ready(message) = next.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(message);
        }
        let left = until.checked_duration_since(Instant::now())?;
        thread::park_timeout(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_waited_for_so_long_and_no_longer() {
        let (sender, receiver) = async_channel::unbounded();
        assert_eq!(next_within::<u32>(&receiver, Duration::ZERO), None);
        let begun = Instant::now();
        assert_eq!(next_within(&receiver, Duration::from_millis(20)), None);
        assert!(begun.elapsed() >= Duration::from_millis(20));
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(20));
                sender.send_blocking(7).expect("the receiver lives");
            });
            assert_eq!(next_within(&receiver, Duration::from_secs(60)), Some(Ok(7)));
        });
        assert!(begun.elapsed() < Duration::from_secs(30));
        drop(sender);
        let closed = Some(Err(RecvError));
        assert_eq!(next_within(&receiver, Duration::from_secs(60)), closed);
    }
}
