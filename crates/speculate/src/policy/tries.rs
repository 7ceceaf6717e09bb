use crate::DraftPlan;

/// Steps without any drafts after which they get another try; doubles up to `PATIENCE_MOST`.
const PATIENCE: usize = 32;
const PATIENCE_MOST: usize = 512;

/// Steps in a row without drafts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Idle {
    steps: usize,
    patience: usize,
}

impl Idle {
    /// Whether drafts are to be tried again, where so many sequences are counted.
    fn is_over(self, sequences: usize) -> bool {
        self.steps >= sequences * self.patience.max(PATIENCE)
    }

    pub fn take(&mut self, plan: &DraftPlan, accepted: usize) {
        if matches!(plan, DraftPlan::None) {
            self.steps += 1;
            return;
        }
        self.steps = 0;
        self.patience = match accepted {
            0 => (2 * self.patience.max(PATIENCE)).min(PATIENCE_MOST),
            _ => 0,
        };
    }
}

/// Tries of drafts that did not seem to pay: in a step one sequence at most, each in its turn, so that
/// many streams do not wait for a step in which all of them try.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tries {
    /// Steps of any sequence.
    pub idle: Idle,
    /// Plans since the last try.
    pub plans: usize,
    /// Tries so far, which say whose turn it is, and sequences that were passed over.
    tries: usize,
    passed: usize,
}

impl Tries {
    /// Whether a sequence that would draft nothing is to try, as one of `running`. Where drafts serve
    /// most it goes by its own steps alone.
    pub fn take_turn(&mut self, own: Idle, running: usize, serve_most: bool) -> bool {
        if self.plans < running {
            return false;
        }
        if !own.is_over(if serve_most { 1 } else { running }) {
            if !self.idle.is_over(running) {
                return false;
            }
            if self.passed < self.tries % running.max(1) {
                self.passed += 1;
                return false;
            }
        }
        *self = Self {
            plans: 0,
            passed: 0,
            tries: self.tries + 1,
            ..*self
        };
        true
    }
}
