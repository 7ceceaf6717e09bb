use rayon::prelude::*;

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

    /// Pieces to split `work` multiply-adds into.
    pub fn pieces(self, work: usize) -> usize {
        (work / WORTH_A_THREAD).clamp(1, self.most)
    }

    /// Runs all jobs, of `work` multiply-adds together. The result may not depend on who runs what.
    pub fn run<J: Send>(self, work: usize, jobs: Vec<J>, each: impl Fn(J) + Sync + Send) {
        if self.pieces(work) == 1 || jobs.len() == 1 {
            jobs.into_iter().for_each(each);
        } else {
            let least = jobs.len().div_ceil(self.most * 4);
            jobs.into_par_iter().with_min_len(least).for_each(each);
        }
    }
}
