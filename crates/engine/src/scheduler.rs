//! The engine thread: takes requests in, runs one step after the other.

use std::sync::Arc;
use std::time::Instant;

use async_channel::Receiver;
use volley_speculate::policy::Policy;

use crate::Stop;
use crate::handle::{Shared, Submission};
use crate::ranks::{RankGroup, StepFailure};
use crate::schedule::{Schedule, SchedulerLimits, StepLoad};
use crate::step::StepPlan;

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
            self.schedule.check_integrity()?;
            self.shared.heartbeat.idle();
            match self.submissions.recv_blocking() {
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
        match self.ranks.step(plan) {
            Ok(outputs) => self.schedule.take(&load, outputs, began.elapsed()),
            Err(StepFailure::Step(error)) => self.schedule.fail_running(&error),
            Err(StepFailure::Lost(reason)) => return Err(reason),
        }
        Ok(())
    }
}
