//! The contract between the scheduler and the ranks: one plan in, one flat record per sequence
//! out. Every rank runs the whole plan and, on equal logits, comes to the same outputs.

use volley_cache::TailCopy;
use volley_speculate::{DraftPlan, Method, TokenLogprob};

use crate::{ClosedBy, Request, Stop};

/// What all ranks do in one step.
#[derive(Clone, Debug, Default)]
pub struct StepPlan {
    /// Sequences that take over a slot, before anything runs and in this order: what one brings
    /// along may lie where the next one begins.
    pub enter: Vec<Entry>,
    /// Prompt chunks, computed in one pass.
    pub prefill: Vec<PrefillChunk>,
    /// Sequences that draft, verify and commit, in one pass each.
    pub decode: Vec<DecodeStep>,
    /// States that are kept as they are after all rows.
    pub saves: Vec<Save>,
}

impl StepPlan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.enter.is_empty() && self.prefill.is_empty() && self.decode.is_empty()
    }
}

/// A sequence that starts in a slot.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Slot of its states.
    pub slot: usize,
    /// What is asked, `max_tokens` within the context limit; `None` for the sequence that is in
    /// the slot already and has lost what was computed of it.
    pub request: Option<Request>,
    /// How it drafts; if `None` any method but that of a head beside a drafter, as its text may be kept for
    /// others.
    pub method: Option<Method>,
    /// Where it begins; with nothing computed if `None`.
    pub from: Option<Restore>,
}

/// A checkpoint to begin from. Its full blocks are in the table of the sequence.
#[derive(Clone, Copy, Debug)]
pub struct Restore {
    /// Slot of its states.
    pub slot: usize,
    /// Tokens before it.
    pub tokens: usize,
    /// Copy of a last block that is not full.
    pub tail: Option<TailCopy>,
}

/// A copy of the states of a slot.
#[derive(Clone, Copy, Debug)]
pub struct Save {
    /// Slot of the sequence.
    pub from: usize,
    /// Slot of the checkpoint.
    pub to: usize,
}

/// The next tokens of a prompt, or of a text that is computed again.
#[derive(Clone, Debug)]
pub struct PrefillChunk {
    /// Slot of the sequence.
    pub slot: usize,
    /// Tokens already computed; the chunk follows them.
    pub past: usize,
    /// Tokens of the chunk, at least one.
    pub len: usize,
    /// Cache blocks, covering `past + len` tokens.
    pub blocks: Vec<u32>,
}

/// One decode step of a sequence: its anchor and its drafts.
#[derive(Clone, Debug)]
pub struct DecodeStep {
    /// Slot of the sequence.
    pub slot: usize,
    /// Committed tokens; the anchor has this position.
    pub past: usize,
    /// What to draft.
    pub draft: DraftPlan,
    /// Cache blocks, covering the rows verified and the proposer's block behind `past`.
    pub blocks: Vec<u32>,
}

/// What one step did: a record for each entry of `prefill`, then for each of `decode`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepOutputs {
    /// Records in the order of the plan.
    pub updates: Vec<SlotUpdate>,
}

/// What one step did for one sequence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlotUpdate {
    /// Slot of the sequence.
    pub slot: usize,
    /// Tokens committed by the step.
    pub committed: usize,
    /// Tokens that came out, in order: accepted drafts and the bonus token. Empty for a chunk
    /// that does not end its prompt.
    pub tokens: Vec<u32>,
    /// How they were drafted; [`Method::None`] if nothing was.
    pub method: Method,
    /// Drafts verified.
    pub drafted: usize,
    /// Drafts on the longest path.
    pub depth: usize,
    /// Drafts accepted (also when cut off by a stop).
    pub accepted: usize,
    /// One for each token, if wanted.
    pub logprobs: Vec<TokenLogprob>,
    /// Indices of the tokens that were the only ones allowed.
    pub forced: Vec<usize>,
    /// Set when the thoughts were closed in this step.
    pub closed_by: Option<ClosedBy>,
    /// Of these, on the path of first children: what a chain would have had.
    pub spine: usize,
    /// Set when the sequence has ended.
    pub stop: Option<Stop>,
}
