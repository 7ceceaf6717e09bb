//! Speculative decoding without tensors: proposals, verification, sampling.
//!
//! A step drafts with [`draft_chain`], [`draft_tree`] or [`Lookup`], runs the target over anchor and drafts, decides with
//! [`verify`] and ends with [`cut`]. `position` is always the sequence position of the token
//! being chosen, and the noise of a choice depends on it and the seed alone.

mod allowed;
mod candidates;
mod change;
mod cut;
mod distribution;
mod draft;
mod error;
mod filter;
mod history;
mod logits;
mod logprobs;
mod lookup;
mod method;
mod noise;
mod params;
pub mod policy;
mod proposal;
mod replay;
mod sample;
mod simulate;
mod suffix;
mod surprisal;
mod tree;
mod verify;

pub use allowed::Allowed;
pub use change::{Change, changes};
pub use cut::{Cut, End, cut};
pub use distribution::Distribution;
pub use draft::{draft, draft_chain};
pub use error::Error;
pub use filter::{argmax, constrained, distribution};
pub use history::History;
pub use logits::{Candidates, Choice, Logits, Row, WholeRows, distribution_of, drawn_of};
pub use logprobs::{TokenLogprob, logprob_of};
pub use lookup::{Lookup, Repeat};
pub use method::{DraftPlan, Method, TreeShape};
pub use params::SamplingParams;
pub use proposal::{Commit, Drafting, Proposal, Proposer};
pub use replay::{Trajectory, Walk};
pub use sample::sample;
pub use simulate::{Simulated, simulate};
pub use surprisal::surprisals;
pub use tree::{Guess, TreeOrder, best_first, draft_tree};
pub use verify::{Rule, verify};
