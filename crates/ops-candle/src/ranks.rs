//! Collectives between ranks that are threads of one process.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use volley_ops::{Error, Result};

/// How long a rank waits for another before the group is given up: longer than any thread of a busy
/// machine waits for its turn.
const PATIENCE: Duration = Duration::from_secs(20);

/// One rank's end of the exchange. Dropping it makes the collectives of the others fail.
pub struct Rank {
    index: usize,
    count: usize,
    shared: Arc<Shared>,
}

struct Shared {
    round: Mutex<Round>,
    changed: Condvar,
}

/// All ranks deposit, then all read; only then may the next round begin.
struct Round {
    deposits: Vec<Vec<f32>>,
    deposited: usize,
    read: usize,
    lost: bool,
}

impl Round {
    fn complete(&self) -> bool {
        self.deposited == self.deposits.len()
    }
}

impl Rank {
    /// The ends of an exchange between `n` ranks.
    pub fn all(n: usize) -> Vec<Self> {
        let shared = Arc::new(Shared {
            round: Mutex::new(Round {
                deposits: vec![Vec::new(); n],
                deposited: 0,
                read: 0,
                lost: false,
            }),
            changed: Condvar::new(),
        });
        let end = |index| Self {
            index,
            count: n,
            shared: Arc::clone(&shared),
        };
        (0..n).map(end).collect()
    }

    /// This rank.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Number of ranks.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Hands in `data` and passes every rank's data, in rank order, to `use_all`. All ranks must
    /// hand in equally many values.
    pub fn exchange(
        &self,
        op: &'static str,
        data: &[f32],
        use_all: impl FnOnce(&[Vec<f32>]),
    ) -> Result<()> {
        // The last round may still have readers. Without all ranks there is no further one.
        let mut round = self.wait(op, self.lock(), |round| !round.complete() && !round.lost)?;
        let deposit = &mut round.deposits[self.index];
        deposit.clear();
        deposit.extend_from_slice(data);
        round.deposited += 1;
        self.shared.changed.notify_all();
        let mut round = self.wait(op, round, Round::complete)?;
        let odd = round.deposits.iter().find(|d| d.len() != data.len());
        let result = match odd {
            None => {
                use_all(&round.deposits);
                Ok(())
            }
            Some(odd) => Err(Error::Shape {
                op,
                what: "number of values of another rank",
                expected: data.len().to_string(),
                got: odd.len().to_string(),
            }),
        };
        round.read += 1;
        if round.read == self.count {
            (round.deposited, round.read) = (0, 0);
            self.shared.changed.notify_all();
        }
        result
    }

    /// A panic of another rank leaves the data of a round whole: deposits are only read complete.
    fn lock(&self) -> MutexGuard<'_, Round> {
        self.shared
            .round
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &self,
        op: &'static str,
        mut round: MutexGuard<'a, Round>,
        ready: impl Fn(&Round) -> bool,
    ) -> Result<MutexGuard<'a, Round>> {
        while !ready(&round) {
            if round.lost {
                let (rank, ranks) = (self.index, self.count);
                return Err(Error::RankLost { op, rank, ranks });
            }
            let waiting = self.shared.changed.wait_timeout(round, PATIENCE);
            let (waited, late) = waiting.unwrap_or_else(PoisonError::into_inner);
            round = waited;
            if late.timed_out() {
                round.lost = true;
                self.shared.changed.notify_all();
            }
        }
        Ok(round)
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        self.lock().lost = true;
        self.shared.changed.notify_all();
    }
}
