/// What can go wrong in an operation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Operands whose shapes do not fit together.
    #[error("{op}: {what} is {got}, expected {expected}")]
    Shape {
        /// Operation that refused.
        op: &'static str,
        /// Which operand or dimension.
        what: &'static str,
        /// Value required.
        expected: String,
        /// Value found.
        got: String,
    },
    /// A cache slot, block or row index outside its buffer.
    #[error("{op}: {what} {index} is outside 0..{len}")]
    Index {
        /// Operation that refused.
        op: &'static str,
        /// What was indexed.
        what: &'static str,
        /// Offending index.
        index: usize,
        /// Length of the indexed buffer.
        len: usize,
    },
    /// The device or its library reported a failure.
    #[error("{op}: {message}")]
    Device {
        /// Operation that failed.
        op: &'static str,
        /// Report of the device.
        message: String,
    },
    /// Another rank left, so a collective cannot complete.
    #[error("{op}: rank {rank} of {ranks} waits for a rank that is gone")]
    RankLost {
        /// Collective that failed.
        op: &'static str,
        /// This rank.
        rank: usize,
        /// Number of ranks.
        ranks: usize,
    },
}

/// Result of an operation.
pub type Result<T> = std::result::Result<T, Error>;
