/// Refusals of sampling and verification.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// Sampling parameter outside its range.
    #[error("{name} is {value}, it must be {expected}")]
    Parameter {
        /// Field of [`crate::SamplingParams`].
        name: &'static str,
        /// Value given.
        value: f32,
        /// Range allowed.
        expected: &'static str,
    },
    /// A logit, bias and penalties included, that is NaN or positive infinity.
    #[error("the logit of token {token} is {value}")]
    Logit {
        /// Token of the logit.
        token: u32,
        /// Its value.
        value: f32,
    },
    /// A row of logits of which the device says no more.
    #[error("a logit of the row is NaN or infinite")]
    NotNumbers,
    /// Every allowed token has logit negative infinity, or no token is allowed.
    #[error("none of {allowed} allowed tokens has a finite logit ({logits} logits)")]
    NoCandidate {
        /// Ids below this are allowed.
        allowed: usize,
        /// Length of the row of logits.
        logits: usize,
    },
    /// Distribution without mass.
    #[error("the distribution of position {position} is empty")]
    EmptyDistribution {
        /// Sequence position of the token to sample.
        position: usize,
    },
    /// Proposal with as many distributions or parents as it has not drafts.
    #[error("the proposal has {drafts} drafts but {count} {what}")]
    ProposalShape {
        /// Drafts.
        drafts: usize,
        /// "distributions" or "parents".
        what: &'static str,
        /// How many of them.
        count: usize,
    },
    /// Tree whose row does not come after its parent.
    #[error("row {row} of the tree has parent row {parent}, parents come first")]
    ParentOrder {
        /// Row of the draft.
        row: usize,
        /// Its parent row.
        parent: u32,
    },
    /// Draft to which its own distribution gives no probability.
    #[error("draft {index} is token {token}, which its own distribution excludes")]
    ForeignDraft {
        /// Index of the draft.
        index: usize,
        /// Drafted token.
        token: u32,
    },
    /// A row of logits that cannot be had.
    #[error("row {row} of the logits cannot be read: {reason}")]
    Unread {
        /// Row.
        row: usize,
        /// Report of the device.
        reason: String,
    },
    /// Trees are verified by [`crate::Rule::Match`] only.
    #[error("a tree of {drafts} drafts cannot be verified by the residual rule")]
    ResidualTree {
        /// Drafts.
        drafts: usize,
    },
}
