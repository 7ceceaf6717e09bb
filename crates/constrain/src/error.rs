/// Refusals of rules, and failures while one is followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The rule makes no sense or cannot be enforced: the user's fault.
    #[error("{0}")]
    Rule(String),
    /// Brackets nested beyond reason.
    #[error("brackets are nested {depth} deep; the limit is {limit}")]
    Nesting {
        /// Depth of the rule.
        depth: usize,
        /// Deepest allowed.
        limit: usize,
    },
    /// The rule is too large to compile in time.
    #[error("compiling takes longer than {limit_ms} ms")]
    TooSlow {
        /// Time allowed, in milliseconds.
        limit_ms: u128,
    },
    /// Too many rules are being compiled; later there is room again.
    #[error("{limit} rules are being compiled already")]
    Busy {
        /// Most at a time.
        limit: usize,
    },
    /// A vocabulary that no rule can be compiled for.
    #[error("{0}")]
    Vocabulary(String),
    /// A token that the rule does not allow, or a state that is too complex to go on.
    #[error("the rule cannot be followed any further: {0}")]
    State(String),
}
