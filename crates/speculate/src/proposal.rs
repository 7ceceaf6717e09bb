/// Probabilities of the tokens that survive the filters, likeliest first; they sum to one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    /// Token ids.
    pub tokens: Vec<u32>,
    /// Probability of each token.
    pub probs: Vec<f32>,
}

/// Drafts to be verified behind the anchor (the last bonus token), which is row 0 of the pass;
/// draft `i` is row `i + 1`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Proposal {
    /// Drafted tokens; empty for a step without speculation.
    pub tokens: Vec<u32>,
    /// For each draft the distribution it was sampled from; `None` for greedy (one-hot) drafts.
    pub distributions: Option<Vec<Distribution>>,
    /// For a tree: the parent row of each draft (0 is the anchor), parents first. A chain without.
    pub parents: Option<Vec<u32>>,
}

/// Outcome of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// Rows to keep in path order, starting with row 0 (the anchor).
    pub keep: Vec<u32>,
    /// Accepted drafts, in order (`keep.len() - 1` of them).
    pub accepted: Vec<u32>,
    /// Token sampled from the target after the last kept row: the next anchor.
    pub bonus: u32,
}

/// A source of drafts. `T` is what it may look at of the target (hidden states, say).
///
/// Invariant: between steps [`Proposer::context`] equals the committed length of the sequence,
/// also after steps that did not draft.
pub trait Proposer<T: ?Sized> {
    /// Failure of the device.
    type Error;

    /// Committed tokens of sequence `slot` that the proposer has taken in.
    fn context(&self, slot: usize) -> usize;
}
