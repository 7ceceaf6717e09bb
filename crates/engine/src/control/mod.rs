//! What controls a generation beyond sampling: a constraint, the length of the thoughts, runaway
//! repetition.

mod follow;
mod repetition;

use std::sync::Arc;

use volley_constrain::Constraint;

pub(crate) use follow::Controller;
pub use repetition::RepetitionRule;

/// Control of one request; the default controls nothing.
#[derive(Clone, Debug, Default)]
pub struct Control {
    /// What the answer is held to. It sleeps inside the thoughts.
    pub constraint: Option<Constraint>,
    /// Set when the prompt ends inside an open think block.
    pub thinking: Option<Thinking>,
    /// What counts as runaway repetition: thoughts are closed by force, an answer ends.
    pub repetition: Option<RepetitionRule>,
    /// Logprobs of the tokens, each with this many of the likeliest, 64 at most.
    pub logprobs: Option<usize>,
    /// The output begins with these tokens, whatever the model would say: an answer played again.
    pub script: Arc<[u32]>,
}

/// The think block that a prompt leaves open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thinking {
    /// The token that closes it.
    pub close_id: u32,
    /// Most tokens of thoughts before they are closed by force.
    pub budget: Option<usize>,
    /// What closes it by force, up to the start of the answer; `close_id` is among these.
    pub closing: Vec<u32>,
    /// What stands between `close_id` and the answer. Comes by force before an answer under a
    /// constraint, which the model would otherwise open in the wrong place.
    pub opening: Vec<u32>,
}

/// What closed the thoughts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedBy {
    /// The model.
    Model,
    /// The budget.
    Budget,
    /// Runaway repetition.
    Repetition,
}
