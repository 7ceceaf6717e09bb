use std::sync::{Mutex, PoisonError};

/// Multiply-adds below which a second thread costs more than it saves.
const WORTH_A_THREAD: usize = 1 << 20;

/// How many threads one rank may use.
#[derive(Clone, Copy, Debug)]
pub struct Threads {
    most: usize,
}

impl Threads {
    /// An even share of the machine: the ranks run at the same time.
    pub fn share_of(ranks: usize) -> Self {
        let most = (rayon::current_num_threads() / ranks).max(1);
        Self { most }
    }

    fn wanted(self, work: usize) -> usize {
        (work / WORTH_A_THREAD).clamp(1, self.most)
    }

    /// Jobs to cut `work` multiply-adds into: more than threads, for one may come late.
    pub fn pieces(self, work: usize) -> usize {
        match self.wanted(work) {
            1 => 1,
            threads => 2 * threads,
        }
    }

    /// Runs all jobs, of `work` multiply-adds together. The caller takes part, so that nothing
    /// waits for a thread to wake up. Results may not depend on who runs what.
    pub fn run<J: Send>(self, work: usize, jobs: Vec<J>, each: impl Fn(J) + Sync) {
        let helpers = self.wanted(work).min(jobs.len()).saturating_sub(1);
        if helpers == 0 {
            return jobs.into_iter().for_each(each);
        }
        let queue = Mutex::new(jobs.into_iter());
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work_off = || {
            while let Some(job) = next() {
                each(job);
            }
        };
        rayon::in_place_scope(|scope| {
            for _ in 0..helpers {
                scope.spawn(|_| work_off());
            }
            work_off();
        });
    }
}
