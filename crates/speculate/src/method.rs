use std::fmt;
use std::str::FromStr;

/// Ways to draft, by the names of vLLM's `--speculative-config` where it has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// One token per target pass.
    #[default]
    None,
    /// Prompt lookup: what followed the longest repeat in prompt and output.
    Ngram,
    /// The target's own multi-token prediction head, chained.
    Mtp,
    /// A chain from a DFlash block.
    Dflash,
    /// A best-first tree from the marginals of a DFlash block.
    Ddtree,
    /// Whatever costs the least time per token, step by step.
    Auto,
}

impl Method {
    /// All methods.
    pub const ALL: [Self; 6] = [
        Self::None,
        Self::Ngram,
        Self::Mtp,
        Self::Dflash,
        Self::Ddtree,
        Self::Auto,
    ];

    /// Name in flags, requests and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Ngram => "ngram",
            Self::Mtp => "mtp",
            Self::Dflash => "dflash",
            Self::Ddtree => "ddtree",
            Self::Auto => "auto",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Method {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|method| method.name() == name);
        known.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("{name:?} is no method of speculation; there are {names}")
        })
    }
}

/// What one sequence drafts in one step. Every rank follows it, so it depends on nothing that
/// differs between ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DraftPlan {
    /// Nothing: the anchor runs alone.
    #[default]
    None,
    /// These tokens, a chain found without the models.
    Given(Vec<u32>),
    /// A chain of so many passes of the MTP head.
    Mtp {
        /// Most drafts.
        depth: usize,
    },
    /// A chain of at most `depth` drafts of the DFlash block.
    Chain {
        /// Most drafts.
        depth: usize,
    },
    /// A tree over the marginals of the DFlash block.
    Tree(TreeShape),
}

/// Bounds of a tree of drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeShape {
    /// Most nodes, the anchor not counted.
    pub budget: usize,
    /// Most nodes on a path.
    pub depth: usize,
    /// Whether the chain of likeliest tokens goes in first, as far as the budget allows.
    pub seeded: bool,
}

impl DraftPlan {
    /// Most drafts that the step verifies.
    pub fn most_drafts(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Given(tokens) => tokens.len(),
            Self::Mtp { depth } | Self::Chain { depth } => *depth,
            Self::Tree(shape) => shape.budget,
        }
    }

    /// The same without the tokens that it gives.
    #[must_use]
    pub fn outline(&self) -> Self {
        match *self {
            Self::None => Self::None,
            Self::Given(_) => Self::Given(Vec::new()),
            Self::Mtp { depth } => Self::Mtp { depth },
            Self::Chain { depth } => Self::Chain { depth },
            Self::Tree(shape) => Self::Tree(shape),
        }
    }

    /// Most drafts that can stand.
    pub fn most_accepted(&self) -> usize {
        match self {
            Self::Tree(shape) => shape.budget.min(shape.depth),
            _ => self.most_drafts(),
        }
    }

    /// The method that it is of.
    pub fn method(&self) -> Method {
        match self {
            Self::None => Method::None,
            Self::Given(_) => Method::Ngram,
            Self::Mtp { .. } => Method::Mtp,
            Self::Chain { .. } => Method::Dflash,
            Self::Tree(_) => Method::Ddtree,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        for method in Method::ALL {
            assert_eq!(method.name().parse(), Ok(method));
        }
        let error = "eagle3".parse::<Method>().unwrap_err();
        assert!(
            error.contains("\"eagle3\"") && error.contains("ddtree"),
            "{error}"
        );
    }
}
