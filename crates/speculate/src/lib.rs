//! Speculative decoding without tensors: proposals, verification, sampling.

mod params;
mod proposal;

pub use params::SamplingParams;
pub use proposal::{Commit, Distribution, Proposal, Proposer};
