//! Sources of drafts that look at the target of a rank.

use volley_model::{Drafter, Target};
use volley_ops::{Batch, Ops, Segment};
use volley_speculate::{Drafting, Proposal, Proposer, draft_chain};

use crate::EngineError;
use crate::logits::RankLogits;
use crate::sequence::Sampling;

/// A rank's target and the rows of its last pass.
pub(crate) struct TargetRank<O: Ops> {
    /// Operations of the rank.
    pub ops: O,
    /// Its shard of the target.
    pub target: Target<O>,
    /// Rows of the last pass.
    pub batch: Batch,
}

/// No drafts: one token per pass.
pub(crate) struct NoProposer;

impl<T: ?Sized> Proposer<T> for NoProposer {
    type Error = EngineError;

    fn reset(&mut self, _: &mut T, _: usize) -> Result<(), EngineError> {
        Ok(())
    }

    fn copy_slot(&mut self, _: &mut T, _: usize, _: usize) -> Result<(), EngineError> {
        Ok(())
    }

    fn copy_block(&mut self, _: &mut T, _: u32, _: u32) -> Result<(), EngineError> {
        Ok(())
    }

    fn observe(&mut self, _: &mut T, _: &[Vec<u32>]) -> Result<(), EngineError> {
        Ok(())
    }

    fn propose(
        &mut self,
        _: &mut T,
        sequences: &mut [Drafting<'_>],
    ) -> Result<Vec<Proposal>, EngineError> {
        Ok(vec![Proposal::default(); sequences.len()])
    }

    fn context(&self, _: usize) -> Option<usize> {
        None
    }
}

/// Block diffusion (dflash 2 and 4): one pass of the drafter gives the whole block.
pub(crate) struct DflashProposer<O: Ops> {
    drafter: Drafter<O>,
    sampling: Sampling,
    /// Committed tokens per slot in the drafter's cache.
    contexts: Vec<usize>,
}

impl<O: Ops> DflashProposer<O> {
    /// A proposer for sequences in `slots` slots.
    pub(crate) fn new(drafter: Drafter<O>, sampling: Sampling, slots: usize) -> Self {
        Self {
            drafter,
            sampling,
            contexts: vec![0; slots],
        }
    }
}

impl<O: Ops> Proposer<TargetRank<O>> for DflashProposer<O> {
    type Error = EngineError;

    fn reset(&mut self, _: &mut TargetRank<O>, slot: usize) -> Result<(), EngineError> {
        self.contexts[slot] = 0;
        Ok(())
    }

    fn copy_slot(
        &mut self,
        _: &mut TargetRank<O>,
        from: usize,
        to: usize,
    ) -> Result<(), EngineError> {
        self.contexts[to] = self.contexts[from];
        Ok(())
    }

    fn copy_block(
        &mut self,
        rank: &mut TargetRank<O>,
        from: u32,
        to: u32,
    ) -> Result<(), EngineError> {
        Ok(self.drafter.copy_block(&rank.ops, from, to)?)
    }

    fn observe(&mut self, rank: &mut TargetRank<O>, keep: &[Vec<u32>]) -> Result<(), EngineError> {
        let mut rows = Vec::new();
        let mut batch = Batch::default();
        for (segment, kept) in rank.batch.segments.iter().zip(keep) {
            let context = &mut self.contexts[segment.slot];
            if *context != segment.past {
                return Err(EngineError::DraftContext {
                    slot: segment.slot,
                    context: *context,
                    committed: segment.past,
                });
            }
            let first = rows.len();
            rows.extend(kept.iter().map(|row| segment.rows.start as u32 + row));
            batch.segments.push(Segment {
                rows: first..rows.len(),
                slot: segment.slot,
                past: *context,
                blocks: segment.blocks.clone(),
                parents: None,
            });
            *context += kept.len();
        }
        let taps = rank.target.taps();
        Ok(self.drafter.append(&rank.ops, taps, &rows, &batch)?)
    }

    /// The drafter always runs its full block, as it was trained (dflash 2.5); `max_drafts` cuts
    /// what is verified.
    fn propose(
        &mut self,
        rank: &mut TargetRank<O>,
        sequences: &mut [Drafting<'_>],
    ) -> Result<Vec<Proposal>, EngineError> {
        let block = self.drafter.config().block_size;
        let segments = sequences.iter().enumerate().map(|(i, d)| Segment {
            rows: i * block..(i + 1) * block,
            slot: d.slot,
            past: d.past,
            blocks: d.blocks.to_vec(),
            parents: None,
        });
        let batch = Batch {
            segments: segments.collect(),
        };
        let anchors: Vec<u32> = sequences.iter().map(|d| d.anchor).collect();
        let Sampling { rule, allowed } = self.sampling;
        let most = sequences.iter().map(|d| d.max_drafts).max().unwrap_or(0);
        let depth = most.min(block - 1);
        let TargetRank { ops, target, .. } = rank;
        let top = self
            .drafter
            .draft(ops, target, &anchors, &batch, [depth, allowed])?;
        let drafts = sequences.iter_mut().enumerate().map(|(i, d)| {
            let logits = &mut RankLogits::new(ops, target, &top, i * depth);
            let rows = d.max_drafts.min(depth);
            let position = d.past + 1;
            // A sequence that cannot be drafted goes on without: its text does not depend on it.
            draft_chain(logits, rows, d.sampling, d.history, allowed, position, rule)
                .unwrap_or_else(|error| {
                    tracing::warn!("slot {}: no drafts: {error}", d.slot);
                    Proposal::default()
                })
        });
        Ok(drafts.collect())
    }

    fn context(&self, slot: usize) -> Option<usize> {
        Some(self.contexts[slot])
    }
}
