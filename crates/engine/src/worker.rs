//! One rank: runs plans on its shard of the models.

use std::time::{Duration, Instant};

use volley_cache::TailCopy;
use volley_model::{Drafted, Outcome};
use volley_ops::{Batch, DRAWN, Dtype, Keep, Ops, Segment, WalkEnd};
use volley_speculate::{Drafting, Proposal, Proposer, Rule};

use crate::logits::{Ahead, Asks, RankLogits};
use crate::proposers::TargetRank;
use crate::sequence::{Sampling, Sequence};
use crate::step::{DecodeStep, Entry, PrefillChunk, SlotUpdate, StepOutputs, StepPlan};
use crate::{EngineError, Stop};

/// One tensor-parallel rank with its device, models and sequences.
pub(crate) struct RankWorker<O: Ops> {
    rank: TargetRank<O>,
    proposer: Box<dyn Proposer<TargetRank<O>, Error = EngineError>>,
    sampling: Sampling,
    /// By slot. A step takes out those that it works on; after an error they are gone.
    sequences: Vec<Option<Sequence>>,
    /// Slots whose sequences have ended since the last [`RankWorker::settle`].
    ended: Vec<usize>,
}

impl<O: Ops> RankWorker<O> {
    pub(crate) fn new(
        rank: TargetRank<O>,
        proposer: Box<dyn Proposer<TargetRank<O>, Error = EngineError>>,
        sampling: Sampling,
        slots: usize,
    ) -> Self {
        Self {
            rank,
            proposer,
            sampling,
            sequences: (0..slots).map(|_| None).collect(),
            ended: Vec::new(),
        }
    }

    /// Time in which the device has waited for the host.
    pub(crate) fn idle(&self) -> Duration {
        self.rank.ops.idle()
    }

    /// Does what the outputs of a step need not wait for. What fails here is tried again when somebody goes on
    /// from the slot: nobody has to know.
    pub(crate) fn settle(&mut self) -> Result<(), EngineError> {
        let ended = std::mem::take(&mut self.ended);
        let mut finish = |slot| self.proposer.finish(&mut self.rank, slot);
        ended.into_iter().map(&mut finish).fold(Ok(()), Result::and)
    }

    /// Runs a plan. After an error its sequences have to be entered again.
    pub(crate) fn step(&mut self, plan: &StepPlan) -> Result<StepOutputs, EngineError> {
        for entry in &plan.enter {
            self.enter(entry)?;
        }
        let mut updates = Vec::with_capacity(plan.prefill.len() + plan.decode.len());
        if !plan.prefill.is_empty() {
            updates.extend(self.prefill(&plan.prefill)?);
        }
        if !plan.decode.is_empty() {
            updates.extend(self.decode(&plan.decode)?);
        }
        for save in &plan.saves {
            self.copy_slot(save.from, save.to)?;
        }
        Ok(StepOutputs { updates })
    }

    /// Asks the device for what it was just given: after a failure, whether it can go on.
    pub(crate) fn probe(&self) -> Result<(), EngineError> {
        let ops = &self.rank.ops;
        let given = ops.upload(&[1.0], 1, 1, Dtype::F32)?;
        ops.read(&given, 0..1)?;
        Ok(())
    }

    /// Starts a sequence at the beginning of its text, or behind a checkpoint.
    fn enter(&mut self, entry: &Entry) -> Result<(), EngineError> {
        let slot = entry.slot;
        match entry.from {
            None => {
                self.rank.target.reset(&self.rank.ops, slot)?;
                self.proposer.reset(&mut self.rank, slot, entry.method)?;
            }
            Some(restore) => {
                if let Some(TailCopy { from, to }) = restore.tail {
                    let TargetRank { ops, target, .. } = &mut self.rank;
                    target.copy_block(ops, from, to)?;
                    self.proposer.copy_block(&mut self.rank, from, to)?;
                }
                self.copy_slot(restore.slot, slot)?;
            }
        }
        let sequence = match &entry.request {
            Some(request) => Sequence::new(slot, request),
            None => self.sequences[slot]
                .take()
                .expect("a sequence stays in its slot: this is a bug"),
        };
        self.sequences[slot] = Some(Sequence {
            committed: entry.from.map_or(0, |restore| restore.tokens),
            ..sequence
        });
        Ok(())
    }

    fn copy_slot(&mut self, from: usize, to: usize) -> Result<(), EngineError> {
        let TargetRank { ops, target, .. } = &mut self.rank;
        target.copy_slot(ops, from, to)?;
        self.proposer.copy_slot(&mut self.rank, from, to)
    }

    /// Computes prompt chunks; a prompt that ends gives its first token.
    fn prefill(&mut self, chunks: &[PrefillChunk]) -> Result<Vec<SlotUpdate>, EngineError> {
        let mut sequences = self.take(chunks.iter().map(|chunk| (chunk.slot, chunk.past)));
        let mut pass = Pass::default();
        let mut last_rows = Vec::new();
        for (chunk, sequence) in chunks.iter().zip(&sequences) {
            let tokens = sequence.tokens(chunk.past..chunk.past + chunk.len);
            pass.add(sequence, &tokens, &chunk.blocks, None);
            if chunk.ends(sequence) {
                last_rows.push(pass.ids.len() as u32 - 1);
            }
        }
        let allowed = self.sampling.allowed;
        let TargetRank { ops, target, .. } = &mut self.rank;
        target.prefill(ops, &pass.ids, &pass.batch)?;
        let mut asks = Asks::default();
        for (chunk, sequence) in chunks.iter().zip(&mut sequences) {
            if chunk.ends(sequence) {
                sequence.ask(&Proposal::default(), allowed, &mut asks);
            }
        }
        let outcome = match last_rows.is_empty() {
            true => Outcome::default(),
            false => target.outcome(ops, &last_rows, allowed, asks.draws(), asks.edits())?,
        };
        let mut ended = 0;

        let mut updates = Vec::with_capacity(chunks.len());
        for (chunk, sequence) in chunks.iter().zip(&mut sequences) {
            let mut update = SlotUpdate {
                slot: chunk.slot,
                ..SlotUpdate::default()
            };
            if chunk.ends(sequence) {
                let Outcome { tops, drawn, .. } = &outcome;
                let ahead = Ahead::of(&asks, drawn);
                let logits = &mut RankLogits::new(ops, target, tops, ahead, ended, allowed);
                ended += 1;
                let position = chunk.past + chunk.len;
                let chosen = sequence.first_token(logits, position, self.sampling, &mut update);
                if let Err(error) = chosen {
                    update = failed(&update, &error);
                }
            }
            updates.push(update);
        }
        let keep: Keep = chunks.iter().map(|c| (0..c.len as u32).collect()).collect();
        self.conclude(pass, &keep, sequences, &mut updates)?;
        Ok(updates)
    }

    /// Drafts, verifies and commits: every sequence gets its accepted drafts and one
    /// token more.
    fn decode(&mut self, steps: &[DecodeStep]) -> Result<Vec<SlotUpdate>, EngineError> {
        let begun = Instant::now();
        let mut sequences = self.take(steps.iter().map(|step| (step.slot, step.past)));
        let mut proposals = self.propose(steps, &mut sequences)?;
        self.refine(steps, &mut sequences, &mut proposals);
        let mut pass = Pass::default();
        for ((step, sequence), proposal) in steps.iter().zip(&sequences).zip(&proposals) {
            let ids = [&[sequence.anchor], &proposal.tokens[..]].concat();
            let parents = proposal.parents.as_deref().map(segment_parents);
            pass.add(sequence, &ids, &step.blocks, parents);
        }
        let allowed = self.sampling.allowed;
        let TargetRank { ops, target, .. } = &mut self.rank;
        target.verify(ops, &pass.ids, &pass.batch)?;
        let walks = self.walks(steps, &sequences);
        let mut asks = match walks {
            true => Asks::of_all(sequences.iter().map(|s| &s.request.sampling)),
            false => Asks::default(),
        };
        for (sequence, proposal) in sequences.iter_mut().zip(&proposals) {
            sequence.ask(proposal, allowed, &mut asks);
        }
        let asked = begun.elapsed();
        let outcome = match walks {
            true => self.walk(steps, &sequences, &pass, &asks)?,
            false => {
                let TargetRank { ops, target, .. } = &mut self.rank;
                let all_rows: Vec<u32> = (0..pass.ids.len() as u32).collect();
                target.outcome(ops, &all_rows, allowed, asks.draws(), asks.edits())?
            }
        };
        let Outcome {
            tops,
            drawn,
            drafts: known,
            kept: walked,
        } = &outcome;
        pass.know(&mut proposals, known);
        let answered = begun.elapsed();
        let TargetRank { ops, target, .. } = &mut self.rank;

        let mut keep = Keep::new();
        let mut updates = Vec::with_capacity(steps.len());
        let segments = pass.batch.segments.iter().zip(steps);
        for (((segment, step), sequence), proposal) in segments.zip(&mut sequences).zip(&proposals)
        {
            let mut update = SlotUpdate {
                slot: sequence.slot,
                drafted: proposal.tokens.len(),
                depth: proposal.depth(),
                ..SlotUpdate::default()
            };
            if update.drafted > 0 {
                update.method = step.draft.method();
            }
            let (ahead, first) = (Ahead::of(&asks, drawn), segment.rows.start);
            let logits = &mut RankLogits::new(ops, target, tops, ahead, first, allowed);
            match sequence.verify(proposal, logits, self.sampling, walks, &mut update) {
                Ok(rows) => {
                    if walks && walked.get(keep.len()) != Some(&rows) {
                        let slot = sequence.slot;
                        return Err(EngineError::Walked { slot });
                    }
                    update.spine = proposal.spine(&rows);
                    keep.push(rows);
                }
                // The other sequences of the pass go on.
                Err(error) => {
                    keep.push(vec![0]);
                    update = failed(&update, &error);
                }
            }
            updates.push(update);
        }
        let accepted = begun.elapsed();
        if !walks {
            target.commit(ops, &pass.batch, &keep)?;
        }
        let committed = begun.elapsed();
        self.conclude(pass, &keep, sequences, &mut updates)?;
        let ended = begun.elapsed();
        tracing::trace!(?asked, ?answered, ?accepted, ?committed, ?ended, "decoded");
        Ok(updates)
    }

    /// Whether the device goes down the drafts by itself and commits what stands, while the host waits for the
    /// tokens: where it runs ahead, and nobody has a say in them.
    fn walks(&self, steps: &[DecodeStep], sequences: &[Sequence]) -> bool {
        let mut pairs = steps.iter().zip(sequences);
        self.rank.ops.runs_ahead()
            && self.sampling.rule == Rule::Match
            && pairs.all(|(step, sequence)| sequence.is_left_alone(1 + step.draft.most_accepted()))
    }

    /// What came of a pass, which the target is past then, and the proposer as far as it takes in ahead.
    fn walk(
        &mut self,
        steps: &[DecodeStep],
        sequences: &[Sequence],
        pass: &Pass,
        asks: &Asks,
    ) -> Result<Outcome, EngineError> {
        let TargetRank { ops, target, .. } = &mut self.rank;
        let ends: Vec<WalkEnd<'_>> = sequences.iter().map(Sequence::end).collect();
        let allowed = self.sampling.allowed;
        let asked = target.walk(ops, &pass.ids, allowed, asks.draws(), &ends)?;
        self.rank.batch = pass.batch.clone();
        let segments = pass.batch.segments.iter();
        let paths = segments.zip(steps).map(|(segment, step)| {
            let most = 1 + step.draft.most_accepted();
            most.min(segment.rows.len())
        });
        let paths: Vec<usize> = paths.collect();
        self.proposer.follow(&mut self.rank, &paths)?;
        let TargetRank { ops, target, .. } = &mut self.rank;
        Ok(target.answer(ops, asked)?)
    }

    /// A proposal for every step, empty where no draft is wanted.
    fn propose(
        &mut self,
        steps: &[DecodeStep],
        sequences: &mut [Sequence],
    ) -> Result<Vec<Proposal>, EngineError> {
        let pairs = steps.iter().zip(sequences);
        let mut drafting: Vec<Drafting<'_>> = pairs
            .map(|(step, sequence)| Drafting {
                slot: step.slot,
                past: sequence.committed,
                blocks: &step.blocks,
                anchor: sequence.anchor,
                plan: &step.draft,
                free: sequence.takes_any(step.draft.most_drafts()),
                sampling: &sequence.request.sampling,
                history: &mut sequence.history,
            })
            .collect();
        self.proposer.propose(&mut self.rank, &mut drafting)
    }

    /// Makes the proposals fit what may come next. What fails here fails in verification, too.
    fn refine(&self, steps: &[DecodeStep], sequences: &mut [Sequence], proposals: &mut [Proposal]) {
        for ((step, sequence), proposal) in steps.iter().zip(sequences).zip(proposals) {
            let refined = sequence.refine(proposal, step.draft.most_drafts(), self.sampling.rule);
            if let Err(error) = refined {
                tracing::debug!("slot {}: {error}", step.slot);
            }
        }
    }

    /// After a pass: the proposer takes in what was committed, and the sequences go back.
    fn conclude(
        &mut self,
        pass: Pass,
        keep: &Keep,
        sequences: Vec<Sequence>,
        updates: &mut [SlotUpdate],
    ) -> Result<(), EngineError> {
        self.rank.batch = pass.batch;
        self.rank.ids = pass.ids;
        let kept = sequences.iter().zip(keep);
        let next: Vec<u32> = kept
            .map(|(sequence, kept)| sequence.after(kept.len()))
            .collect();
        let ends: Vec<bool> = updates.iter().map(|update| update.stop.is_some()).collect();
        self.proposer.observe(&mut self.rank, keep, &next, &ends)?;
        for ((mut sequence, kept), update) in sequences.into_iter().zip(keep).zip(updates) {
            update.committed = kept.len();
            sequence.committed += kept.len();
            let slot = sequence.slot;
            if update.stop.is_some() {
                self.ended.push(slot);
            }
            match self.proposer.context(slot) {
                Some(context) if context != sequence.committed => {
                    return Err(EngineError::DraftContext {
                        slot,
                        context,
                        committed: sequence.committed,
                    });
                }
                _ => self.sequences[slot] = Some(sequence),
            }
        }
        Ok(())
    }

    /// Takes out the sequences of a pass, given by slot and committed length.
    fn take(&mut self, planned: impl Iterator<Item = (usize, usize)>) -> Vec<Sequence> {
        let take = |(slot, past): (usize, usize)| {
            let sequence = self.sequences[slot].take();
            sequence
                .filter(|sequence| sequence.committed == past)
                .expect("scheduler and rank agree on what is in a slot: this is a bug")
        };
        planned.map(take).collect()
    }
}

/// The update of a sequence that fails: nothing comes out of the step.
fn failed(update: &SlotUpdate, error: &EngineError) -> SlotUpdate {
    let stop = match error {
        EngineError::Constrain(error) => Stop::Unfollowed(error.to_string()),
        other => Stop::Failed(other.to_string()),
    };
    SlotUpdate {
        slot: update.slot,
        drafted: update.drafted,
        stop: Some(stop),
        ..SlotUpdate::default()
    }
}

impl PrefillChunk {
    /// Whether the chunk is the last of a prompt that has no output yet.
    fn ends(&self, sequence: &Sequence) -> bool {
        sequence.history.output().is_empty()
            && self.past + self.len == sequence.request.prompt.len()
    }
}

/// The rows of one pass.
#[derive(Default)]
struct Pass {
    ids: Vec<u32>,
    batch: Batch,
}

impl Pass {
    fn add(
        &mut self,
        sequence: &Sequence,
        ids: &[u32],
        blocks: &[u32],
        parents: Option<Vec<Option<u32>>>,
    ) {
        let first = self.ids.len();
        self.ids.extend_from_slice(ids);
        self.batch.segments.push(Segment {
            rows: first..self.ids.len(),
            slot: sequence.slot,
            past: sequence.committed,
            blocks: blocks.to_vec(),
            parents,
        });
    }

    /// Puts drafts that only the device knew in their places.
    fn know(&mut self, proposals: &mut [Proposal], drafts: &[Drafted]) {
        let known = |row: u32| drafts[(row ^ DRAWN) as usize];
        for id in self.ids.iter_mut().filter(|id| **id & DRAWN != 0) {
            *id = known(*id).token;
        }
        for proposal in proposals {
            for id in proposal.tokens.iter_mut().filter(|id| **id & DRAWN != 0) {
                *id = known(*id).token;
            }
            let parents = proposal.parents.iter_mut().flatten();
            for parent in parents.filter(|parent| **parent & DRAWN != 0) {
                *parent = known(*parent).parent;
            }
        }
        let segments = self.batch.segments.iter_mut();
        let parents = segments.flat_map(|segment| segment.parents.iter_mut().flatten());
        for parent in parents.flatten().filter(|parent| **parent & DRAWN != 0) {
            *parent = known(*parent).parent;
        }
    }
}

/// Parents of anchor and drafts as a segment has them: the anchor continues the context.
fn segment_parents(drafts: &[u32]) -> Vec<Option<u32>> {
    std::iter::once(None)
        .chain(drafts.iter().copied().map(Some))
        .collect()
}

#[cfg(test)]
mod tests;
