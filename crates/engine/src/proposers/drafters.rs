use volley_ops::Ops;
use volley_speculate::{DraftPlan, Drafting, Method, Proposal, Proposer};

use super::{DflashProposer, MtpProposer, TargetRank};
use crate::EngineError;

/// Every way to draft that is loaded: each sequence goes to the one that its plan names. A
/// sequence is followed by those that it has a use for.
pub(crate) struct Drafters<O: Ops> {
    pub(crate) dflash: Option<DflashProposer<O>>,
    pub(crate) mtp: Option<MtpProposer<O>>,
}

impl<O: Ops> Proposer<TargetRank<O>> for Drafters<O> {
    type Error = EngineError;

    fn reset(
        &mut self,
        rank: &mut TargetRank<O>,
        slot: usize,
        method: Option<Method>,
    ) -> Result<(), EngineError> {
        if let Some(dflash) = &mut self.dflash {
            dflash.reset(rank, slot, method)?;
        }
        match &mut self.mtp {
            Some(mtp) => mtp.reset(rank, slot, method),
            None => Ok(()),
        }
    }

    fn copy_slot(
        &mut self,
        rank: &mut TargetRank<O>,
        from: usize,
        to: usize,
    ) -> Result<(), EngineError> {
        if let Some(dflash) = &mut self.dflash {
            dflash.copy_slot(rank, from, to)?;
        }
        match &mut self.mtp {
            Some(mtp) => mtp.copy_slot(rank, from, to),
            None => Ok(()),
        }
    }

    fn copy_block(
        &mut self,
        rank: &mut TargetRank<O>,
        from: u32,
        to: u32,
    ) -> Result<(), EngineError> {
        if let Some(dflash) = &mut self.dflash {
            dflash.copy_block(rank, from, to)?;
        }
        match &mut self.mtp {
            Some(mtp) => mtp.copy_block(rank, from, to),
            None => Ok(()),
        }
    }

    fn observe(
        &mut self,
        rank: &mut TargetRank<O>,
        keep: &[Vec<u32>],
        next: &[u32],
        ends: &[bool],
    ) -> Result<(), EngineError> {
        if let Some(dflash) = &mut self.dflash {
            dflash.observe(rank, keep, next, ends)?;
        }
        match &mut self.mtp {
            Some(mtp) => mtp.observe(rank, keep, next, ends),
            None => Ok(()),
        }
    }

    fn follow(&mut self, rank: &mut TargetRank<O>, paths: &[usize]) -> Result<(), EngineError> {
        match &mut self.dflash {
            Some(dflash) => dflash.follow(rank, paths),
            None => Ok(()),
        }
    }

    fn finish(&mut self, rank: &mut TargetRank<O>, slot: usize) -> Result<(), EngineError> {
        match &mut self.dflash {
            Some(dflash) => dflash.finish(rank, slot),
            None => Ok(()),
        }
    }

    fn propose(
        &mut self,
        rank: &mut TargetRank<O>,
        sequences: &mut [Drafting<'_>],
    ) -> Result<Vec<Proposal>, EngineError> {
        let given = |d: &Drafting<'_>| match d.plan {
            DraftPlan::Given(tokens) => Proposal {
                tokens: tokens.clone(),
                ..Proposal::default()
            },
            _ => Proposal::default(),
        };
        let mut proposals: Vec<Proposal> = sequences.iter().map(given).collect();
        let mut take = |drafted: Vec<Proposal>| {
            for (proposal, drafted) in proposals.iter_mut().zip(drafted) {
                if !drafted.tokens.is_empty() {
                    *proposal = drafted;
                }
            }
        };
        if let Some(dflash) = &mut self.dflash {
            take(dflash.propose(rank, sequences)?);
        }
        if let Some(mtp) = &mut self.mtp {
            take(mtp.propose(rank, sequences)?);
        }
        Ok(proposals)
    }

    fn context(&self, slot: usize) -> Option<usize> {
        let dflash = self.dflash.as_ref().and_then(|dflash| dflash.context(slot));
        let mtp = self.mtp.as_ref().and_then(|mtp| mtp.context(slot));
        // The one behind, if they differ: that is the fault to report.
        match (dflash, mtp) {
            (Some(dflash), Some(mtp)) => Some(dflash.min(mtp)),
            (one, other) => one.or(other),
        }
    }
}
