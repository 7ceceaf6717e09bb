use volley_model::{HiddenRows, Mtp};
use volley_ops::{Batch, DRAWN, Draw, Dtype, Ops, Segment};
use volley_speculate::{
    Allowed, Choice, DraftPlan, Drafting, Error, Logits, Method, Proposal, Proposer, Rule, draft,
};

use super::{TargetRank, check_context};
use crate::EngineError;
use crate::logits::{Ahead, Asks, RankLogits, draw_at};
use crate::sequence::Sampling;

/// Multi-token prediction: the target's own head, chained. Its cache holds a row for
/// every committed token, made from the target's hidden state there and the token behind it.
pub(crate) struct MtpProposer<O: Ops> {
    head: Mtp<O>,
    /// Its output at the last committed token of each slot, behind as many rows to pass through:
    /// what a first draft comes from. Passes of other sequences may come before it, so it is kept
    /// outside the head.
    kept: O::Buf,
    sampling: Sampling,
    /// Committed tokens in the head's cache, by slot; none where the sequence has no use for it.
    contexts: Vec<Option<usize>>,
    /// Whether sequences use the head that did not choose it: where there is no other drafter.
    main: bool,
}

impl<O: Ops> MtpProposer<O> {
    /// A proposer for sequences in `slots` slots.
    pub(crate) fn new(
        ops: &O,
        head: Mtp<O>,
        sampling: Sampling,
        slots: usize,
        main: bool,
    ) -> Result<Self, EngineError> {
        Ok(Self {
            kept: ops.alloc(2 * slots, head.width(), Dtype::Activation)?,
            head,
            sampling,
            contexts: vec![None; slots],
            main,
        })
    }

    /// Row of a slot in what is kept.
    fn row(&self, slot: usize) -> usize {
        self.contexts.len() + slot
    }
}

impl<O: Ops> Proposer<TargetRank<O>> for MtpProposer<O> {
    type Error = EngineError;

    fn reset(
        &mut self,
        _: &mut TargetRank<O>,
        slot: usize,
        method: Option<Method>,
    ) -> Result<(), EngineError> {
        let used = match method {
            Some(Method::Mtp) => true,
            None | Some(Method::Auto) => self.main,
            Some(Method::None | Method::Ngram | Method::Dflash | Method::Ddtree) => false,
        };
        self.contexts[slot] = used.then_some(0);
        Ok(())
    }

    fn copy_slot(
        &mut self,
        rank: &mut TargetRank<O>,
        from: usize,
        to: usize,
    ) -> Result<(), EngineError> {
        self.contexts[to] = self.contexts[from];
        if self.contexts[to].is_some() {
            let rows = [self.row(from), self.row(to)];
            rank.ops.copy_row(&mut self.kept, rows[0], rows[1])?;
        }
        Ok(())
    }

    /// The row of a block's last token was made with the token behind it in another text: one
    /// draft in a block may be worse for it.
    fn copy_block(
        &mut self,
        rank: &mut TargetRank<O>,
        from: u32,
        to: u32,
    ) -> Result<(), EngineError> {
        Ok(self.head.copy_block(&rank.ops, from, to)?)
    }

    fn observe(
        &mut self,
        rank: &mut TargetRank<O>,
        keep: &[Vec<u32>],
        next: &[u32],
        _: &[bool],
    ) -> Result<(), EngineError> {
        let (mut ids, mut rows) = (Vec::new(), Vec::new());
        let mut batch = Batch::default();
        for ((segment, kept), &next) in rank.batch.segments.iter().zip(keep).zip(next) {
            let Some(context) = &mut self.contexts[segment.slot] else {
                continue;
            };
            check_context(segment.slot, *context, segment.past)?;
            let first = rows.len();
            rows.extend(kept.iter().map(|row| segment.rows.start as u32 + row));
            let followers = rows[first + 1..].iter().map(|&row| rank.ids[row as usize]);
            ids.extend(followers.chain([next]));
            batch.segments.push(Segment {
                rows: first..rows.len(),
                slot: segment.slot,
                past: *context,
                blocks: segment.blocks.clone(),
                parents: None,
            });
            *context += kept.len();
        }
        if rows.is_empty() {
            return Ok(());
        }
        let TargetRank { ops, target, .. } = rank;
        self.head
            .forward(ops, target, &ids, HiddenRows::Target(&rows), &batch)?;
        let last = |segment: &Segment| segment.rows.end as u32 - 1;
        let last: Vec<u32> = batch.segments.iter().map(last).collect();
        ops.gather(self.head.hidden(), &last, &mut self.kept)?;
        for (index, segment) in batch.segments.iter().enumerate() {
            let row = self.row(segment.slot);
            ops.copy_row(&mut self.kept, index, row)?;
        }
        Ok(())
    }

    /// Sequences that want no chain of the head get no drafts.
    fn propose(
        &mut self,
        rank: &mut TargetRank<O>,
        sequences: &mut [Drafting<'_>],
    ) -> Result<Vec<Proposal>, EngineError> {
        let mut chains = self.chains(sequences);
        if self.unseen(rank, sequences, &chains) {
            self.draw(rank, sequences, &mut chains)?;
        } else if !chains.is_empty() {
            let lengths: Vec<usize> = sequences.iter().map(|d| d.history.output().len()).collect();
            let drafted = self.draft(rank, sequences, &mut chains);
            for (d, len) in sequences.iter_mut().zip(lengths) {
                d.history.truncate(len);
            }
            drafted?;
        }
        let mut proposals = vec![Proposal::default(); sequences.len()];
        for chain in chains {
            proposals[chain.index] = chain.proposal;
        }
        Ok(proposals)
    }

    fn context(&self, slot: usize) -> Option<usize> {
        self.contexts[slot]
    }
}

/// The drafts of one sequence as they come about.
struct Chain {
    /// Index of the sequence.
    index: usize,
    /// Most drafts.
    depth: usize,
    /// Row that the next draft comes from, of what is kept, then of the last pass; none when the
    /// chain has ended.
    row: Option<u32>,
    proposal: Proposal,
}

/// Row `row` of a pass of the head: draft `step` of a chain.
fn segment(d: &Drafting<'_>, step: usize, row: usize) -> Segment {
    Segment {
        rows: row..row + 1,
        slot: d.slot,
        past: d.past + step,
        blocks: d.blocks.to_vec(),
        parents: None,
    }
}

impl<O: Ops> MtpProposer<O> {
    fn chains(&self, sequences: &[Drafting<'_>]) -> Vec<Chain> {
        let mut chains = Vec::new();
        for (index, d) in sequences.iter().enumerate() {
            if let DraftPlan::Mtp { depth } = *d.plan
                && depth > 0
            {
                chains.push(Chain {
                    index,
                    depth,
                    row: Some(self.row(d.slot) as u32),
                    proposal: Proposal::default(),
                });
            }
        }
        chains
    }

    /// Whether nobody has to see the drafts before they are verified: then the device draws them.
    fn unseen(&self, rank: &TargetRank<O>, sequences: &[Drafting<'_>], chains: &[Chain]) -> bool {
        let mut drafting = chains.iter().map(|chain| &sequences[chain.index]);
        self.sampling.rule == Rule::Match
            && !rank.target.has_drafted()
            && drafting.all(|d| d.free && d.sampling.leaves_logits())
    }

    /// Chains of tokens that the device draws and keeps: it is not waited for.
    fn draw(
        &mut self,
        rank: &mut TargetRank<O>,
        sequences: &[Drafting<'_>],
        chains: &mut [Chain],
    ) -> Result<(), EngineError> {
        let TargetRank { ops, target, .. } = rank;
        for step in 0.. {
            let mut going: Vec<&mut Chain> = chains
                .iter_mut()
                .filter(|chain| step < chain.depth)
                .collect();
            if going.is_empty() {
                return Ok(());
            }
            let rows: Vec<u32> = going.iter().filter_map(|chain| chain.row).collect();
            let draws: Vec<Draw> = going
                .iter()
                .map(|chain| &sequences[chain.index])
                .map(|d| draw_at(d.sampling, d.past + 1 + step))
                .collect();
            let source = |rows| match step {
                0 => HiddenRows::Kept(&self.kept, rows),
                _ => HiddenRows::Head(rows),
            };
            let allowed = self.sampling.allowed;
            let first = self
                .head
                .draw(ops, target, source(&rows), allowed, &draws)?;
            let (mut ids, mut sources) = (Vec::new(), Vec::new());
            let mut batch = Batch::default();
            for (index, (chain, row)) in going.iter_mut().zip(rows).enumerate() {
                let token = DRAWN | (first + index) as u32;
                chain.proposal.tokens.push(token);
                if step + 1 < chain.depth {
                    chain.row = Some(ids.len() as u32);
                    batch
                        .segments
                        .push(segment(&sequences[chain.index], step, ids.len()));
                    ids.push(token);
                    sources.push(row);
                }
            }
            if !ids.is_empty() {
                let source = match step {
                    0 => HiddenRows::Kept(&self.kept, &sources),
                    _ => HiddenRows::Head(&sources),
                };
                self.head.forward(ops, target, &ids, source, &batch)?;
            }
        }
        Ok(())
    }

    fn draft(
        &mut self,
        rank: &mut TargetRank<O>,
        sequences: &mut [Drafting<'_>],
        chains: &mut [Chain],
    ) -> Result<(), EngineError> {
        let TargetRank { ops, target, .. } = rank;
        for step in 0.. {
            let rows: Vec<u32> = chains.iter().filter_map(|chain| chain.row).collect();
            if rows.is_empty() {
                return Ok(());
            }
            let (allowed, coupled) = (self.sampling.allowed, self.sampling.rule == Rule::Match);
            let mut asks = Asks::default();
            for chain in chains.iter().filter(|chain| chain.row.is_some()) {
                let d = &sequences[chain.index];
                let choice = Choice {
                    params: d.sampling,
                    history: d.history,
                    allowed,
                    next: &Allowed::All,
                    position: d.past + 1 + step,
                };
                asks.add(coupled.then_some(&choice));
            }
            let source = match step {
                0 => HiddenRows::Kept(&self.kept, &rows),
                _ => HiddenRows::Head(&rows),
            };
            let (draws, edits) = (asks.draws(), asks.edits());
            let found = self
                .head
                .candidates(ops, target, source, allowed, draws, edits)?;
            let mut first = 0;
            let (mut ids, mut sources) = (Vec::new(), Vec::new());
            let mut batch = Batch::default();
            for chain in chains.iter_mut() {
                let Some(row) = chain.row.take() else {
                    continue;
                };
                let d = &mut sequences[chain.index];
                let ahead = Ahead::of(&asks, &found.drawn);
                let logits = &mut RankLogits::new(ops, target, &found.tops, ahead, first, allowed);
                first += 1;
                let token = match self.next(logits, d, step, &mut chain.proposal) {
                    Ok(token) => token,
                    Err(error) => {
                        tracing::warn!("slot {}: the chain of drafts ends: {error}", d.slot);
                        continue;
                    }
                };
                if step + 1 < chain.depth {
                    let at = ids.len();
                    chain.row = Some(at as u32);
                    ids.push(token);
                    sources.push(row);
                    batch.segments.push(segment(d, step, at));
                }
            }
            if ids.is_empty() {
                return Ok(());
            }
            let source = match step {
                0 => HiddenRows::Kept(&self.kept, &sources),
                _ => HiddenRows::Head(&sources),
            };
            self.head.forward(ops, target, &ids, source, &batch)?;
        }
        Ok(())
    }

    /// The next draft of a sequence, which becomes part of its history.
    fn next(
        &self,
        logits: &mut dyn Logits,
        d: &mut Drafting<'_>,
        step: usize,
        proposal: &mut Proposal,
    ) -> Result<u32, Error> {
        let Sampling { rule, allowed, .. } = self.sampling;
        let position = d.past + 1 + step;
        let (token, distribution) =
            draft(logits, 0, d.sampling, d.history, allowed, position, rule)?;
        d.history.push(token);
        proposal.tokens.push(token);
        if let Some(distribution) = distribution {
            proposal
                .distributions
                .get_or_insert_default()
                .push(distribution);
        }
        Ok(token)
    }
}
