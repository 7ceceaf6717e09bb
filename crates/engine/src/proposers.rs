//! Sources of drafts that look at the target of a rank.

mod drafters;
mod later;
mod mtp;

use volley_model::{Drafter, Target};
use volley_ops::{Batch, CANDIDATES, DRAWN, Growth, Ops, Segment};
use volley_speculate::{
    Allowed, Choice, DraftPlan, Drafting, Error, Logits, Method, Proposal, Proposer, Rule,
    TreeOrder, TreeShape, draft_chain, draft_tree,
};

pub(crate) use drafters::Drafters;
use later::Later;
pub(crate) use mtp::MtpProposer;

use crate::EngineError;
use crate::logits::{Ahead, Asks, RankLogits, draw_at};
use crate::sequence::Sampling;

/// A rank's target and the rows of its last pass.
pub(crate) struct TargetRank<O: Ops> {
    /// Operations of the rank.
    pub ops: O,
    /// Its shard of the target.
    pub target: Target<O>,
    /// Rows of the last pass.
    pub batch: Batch,
    /// Their tokens.
    pub ids: Vec<u32>,
}

/// A slot's length in a proposer's cache, checked against the target's before it grows.
fn check_context(slot: usize, context: usize, committed: usize) -> Result<(), EngineError> {
    if context == committed {
        return Ok(());
    }
    Err(EngineError::DraftContext {
        slot,
        context,
        committed,
    })
}

/// Block diffusion: one pass of the drafter gives the whole block, of which a
/// chain or a tree is made. While a sequence copies, its tokens are kept until a block is wanted.
pub(crate) struct DflashProposer<O: Ops> {
    drafter: Drafter<O>,
    sampling: Sampling,
    /// Committed tokens per slot, in the drafter's cache or kept for it; none where the sequence has no use
    /// for it.
    contexts: Vec<Option<usize>>,
    /// Slots whose last step verified a copy.
    copies: Vec<bool>,
    /// Slots of which the last pass is taken in before it is observed.
    ahead: Vec<bool>,
    later: Later<O>,
    /// Whether others go on with what a sequence that has ended has computed.
    reused: bool,
}

/// Steps of copies that are kept.
const KEPT_STEPS: usize = 8;

/// Blocks of the sequences that want one.
struct Blocks {
    batch: Batch,
    anchors: Vec<u32>,
    /// Rows of each that are looked at.
    depth: usize,
}

impl Blocks {
    /// None where no sequence wants a block of `rows` rows.
    fn of(sequences: &[Drafting<'_>], rows: usize) -> Option<Self> {
        let mut batch = Batch::default();
        let mut anchors = Vec::new();
        for d in sequences.iter().filter(|d| wants_block(d)) {
            let first = batch.rows();
            batch.segments.push(Segment {
                rows: first..first + rows,
                slot: d.slot,
                past: d.past,
                blocks: d.blocks.to_vec(),
                parents: None,
            });
            anchors.push(d.anchor);
        }
        let depth = sequences.iter().map(|d| depth(d.plan)).max()?;
        (!anchors.is_empty()).then_some(Self {
            batch,
            anchors,
            depth: depth.min(rows - 1),
        })
    }
}

impl<O: Ops> DflashProposer<O> {
    /// A proposer for sequences in `slots` slots, of which a step verifies at most `rows` rows each.
    pub(crate) fn new(
        ops: &O,
        drafter: Drafter<O>,
        sampling: Sampling,
        slots: usize,
        rows: usize,
        reused: bool,
    ) -> Result<Self, EngineError> {
        let shapes = drafter.config().shapes;
        let width = shapes.taps * shapes.hidden_size;
        Ok(Self {
            later: Later::new(ops, KEPT_STEPS, rows, width)?,
            drafter,
            sampling,
            contexts: vec![None; slots],
            copies: vec![false; slots],
            ahead: vec![false; slots],
            reused,
        })
    }

    /// Takes in what was kept of a slot; what fails stays kept.
    fn catch_up(&mut self, rank: &TargetRank<O>, slot: usize) -> Result<(), EngineError> {
        while let Some(kept) = self.later.first(slot) {
            let rows: Vec<u32> = (0..kept.segment.rows.len() as u32).collect();
            let batch = Batch {
                segments: vec![kept.segment.clone()],
            };
            self.drafter.append(&rank.ops, &kept.taps, &rows, &batch)?;
            self.later.drop_first(slot);
        }
        Ok(())
    }

    /// Chains that the device draws and trees that it grows: it keeps both.
    fn draw(
        &mut self,
        rank: &mut TargetRank<O>,
        sequences: &[Drafting<'_>],
        blocks: &Blocks,
    ) -> Result<Vec<Proposal>, EngineError> {
        let TargetRank { ops, target, .. } = rank;
        let Blocks {
            batch,
            anchors,
            depth: rows,
        } = blocks;
        let chains = sequences
            .iter()
            .any(|d| matches!(d.plan, DraftPlan::Chain { .. }));
        let (mut draws, mut trees) = (Vec::new(), Vec::new());
        let mut proposals = vec![Proposal::default(); sequences.len()];
        let (mut first, mut to) = (0, if chains { anchors.len() * rows } else { 0 });
        for (d, proposal) in sequences.iter().zip(&mut proposals) {
            if !wants_block(d) {
                continue;
            }
            if chains {
                draws.extend((0..*rows).map(|row| draw_at(d.sampling, d.past + 1 + row)));
            }
            let drafts = |first: usize, count| (first..first + count).map(|row| DRAWN | row as u32);
            match self.growth(d, *rows) {
                Some(tree) => {
                    proposal.tokens = drafts(to, tree.budget).collect();
                    proposal.parents = Some(proposal.tokens.clone());
                    trees.push(Growth { first, to, ..tree });
                    to += tree.budget;
                }
                None => proposal.tokens = drafts(first, depth(d.plan).min(*rows)).collect(),
            }
            first += rows;
        }
        let sizes = [*rows, self.sampling.allowed];
        let drafter = &mut self.drafter;
        drafter.draw(ops, target, anchors, batch, sizes, &draws, &trees)?;
        Ok(proposals)
    }

    /// The tree of a plan, if the device can grow it from the first `rows` rows of a block: nobody has to see
    /// it, and its nodes are known by number.
    fn growth(&self, d: &Drafting<'_>, rows: usize) -> Option<Growth> {
        let DraftPlan::Tree(shape) = d.plan else {
            return None;
        };
        let (temperature, count) = self.sampling.order.softmax(d.sampling)?;
        let tree = Growth {
            first: 0,
            depth: depth(d.plan).min(rows),
            budget: shape.budget,
            seeded: shape.seeded,
            temperature,
            candidates: count.min(CANDIDATES).min(self.sampling.allowed),
            to: 0,
        };
        (d.free && tree.fills()).then_some(tree)
    }

    /// Chains and trees of tokens that the host chooses from what the device found.
    fn choose(
        &mut self,
        rank: &mut TargetRank<O>,
        sequences: &mut [Drafting<'_>],
        blocks: &Blocks,
    ) -> Result<Vec<Proposal>, EngineError> {
        let TargetRank { ops, target, .. } = rank;
        let Blocks { batch, anchors, .. } = blocks;
        let (depth, allowed) = (blocks.depth, self.sampling.allowed);
        let mut asks = Asks::default();
        for d in sequences.iter().filter(|d| wants_block(d)) {
            let choices = (0..depth).map(|row| Choice {
                params: d.sampling,
                history: d.history,
                allowed,
                next: &Allowed::All,
                position: d.past + 1 + row,
            });
            let asked = self.follows_noise(d.plan);
            choices.for_each(|choice| asks.add(asked.then_some(&choice)));
        }
        let (sizes, draws) = ([depth, allowed], asks.draws());
        let found = self
            .drafter
            .draft(ops, target, anchors, batch, sizes, draws, asks.edits())?;
        let mut proposals = vec![Proposal::default(); sequences.len()];
        let mut first = 0;
        for (d, proposal) in sequences.iter_mut().zip(&mut proposals) {
            if !wants_block(d) {
                continue;
            }
            // Drafts of the block are not in the history that was asked with.
            let ahead = Ahead::of(&asks, &found.drawn).knowing(d.history.output().len());
            let logits = &mut RankLogits::new(ops, target, &found.tops, ahead, first, allowed);
            first += depth;
            match self.drafts(logits, depth, d) {
                Ok(drafts) => *proposal = drafts,
                // A sequence that cannot be drafted goes on without: its text does not depend on
                // it.
                Err(error) => tracing::warn!("slot {}: no drafts: {error}", d.slot),
            }
        }
        Ok(proposals)
    }

    /// Whether drafts are the tokens that the target's noise would choose.
    fn follows_noise(&self, plan: &DraftPlan) -> bool {
        match plan {
            DraftPlan::Tree(_) => self.sampling.order == TreeOrder::Perturbed,
            _ => self.sampling.rule == Rule::Match,
        }
    }

    /// Drafts from the first `rows` rows of a block.
    fn drafts(
        &self,
        logits: &mut dyn Logits,
        rows: usize,
        drafting: &mut Drafting<'_>,
    ) -> Result<Proposal, Error> {
        let Sampling {
            rule,
            order,
            allowed,
        } = self.sampling;
        let Drafting {
            sampling, history, ..
        } = drafting;
        let position = drafting.past + 1;
        let rows = depth(drafting.plan).min(rows);
        match *drafting.plan {
            DraftPlan::Tree(shape) => {
                let shape = TreeShape {
                    depth: rows,
                    ..shape
                };
                draft_tree(logits, sampling, history, allowed, position, shape, order)
            }
            _ => draft_chain(logits, rows, sampling, history, allowed, position, rule),
        }
    }
}

fn wants_block(drafting: &Drafting<'_>) -> bool {
    matches!(drafting.plan, DraftPlan::Chain { .. } | DraftPlan::Tree(_))
}

/// Rows of a block that a plan looks at.
fn depth(plan: &DraftPlan) -> usize {
    match plan {
        DraftPlan::Chain { depth } => *depth,
        DraftPlan::Tree(shape) => shape.depth.min(shape.budget),
        _ => 0,
    }
}

impl<O: Ops> Proposer<TargetRank<O>> for DflashProposer<O> {
    type Error = EngineError;

    fn reset(
        &mut self,
        _: &mut TargetRank<O>,
        slot: usize,
        method: Option<Method>,
    ) -> Result<(), EngineError> {
        let used = match method {
            None | Some(Method::Dflash | Method::Ddtree | Method::Auto) => true,
            Some(Method::None | Method::Ngram | Method::Mtp) => false,
        };
        self.later.forget(slot);
        self.contexts[slot] = used.then_some(0);
        self.copies[slot] = false;
        self.ahead[slot] = false;
        Ok(())
    }

    fn copy_slot(
        &mut self,
        rank: &mut TargetRank<O>,
        from: usize,
        to: usize,
    ) -> Result<(), EngineError> {
        self.catch_up(rank, from)?;
        self.later.forget(to);
        self.contexts[to] = self.contexts[from];
        self.copies[to] = false;
        self.ahead[to] = false;
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

    fn observe(
        &mut self,
        rank: &mut TargetRank<O>,
        keep: &[Vec<u32>],
        _: &[u32],
        ends: &[bool],
    ) -> Result<(), EngineError> {
        let mut rows = Vec::new();
        let mut batch = Batch::default();
        let rank = &*rank;
        let TargetRank { ops, target, .. } = rank;
        for ((segment, kept), &ends) in rank.batch.segments.iter().zip(keep).zip(ends) {
            let slot = segment.slot;
            let Some(context) = self.contexts[slot] else {
                continue;
            };
            check_context(slot, context, segment.past)?;
            self.contexts[slot] = Some(context + kept.len());
            if std::mem::take(&mut self.ahead[slot]) || kept.is_empty() || (ends && !self.reused) {
                continue;
            }
            let row = |row: &u32| segment.rows.start as u32 + row;
            let own = |rows| Segment {
                rows,
                slot,
                past: context,
                blocks: segment.blocks.clone(),
                parents: None,
            };
            // No block is wanted behind a copy that goes on, nor behind an end.
            let goes_on = self.copies[slot] && kept.len() == segment.rows.len();
            if (goes_on || ends) && kept.len() <= self.later.rows() {
                let rows: Vec<u32> = kept.iter().map(row).collect();
                let segment = own(0..rows.len());
                if self.later.keep(ops, target.taps(), &rows, segment)? {
                    continue;
                }
            }
            self.catch_up(rank, slot)?;
            let first = rows.len();
            rows.extend(kept.iter().map(row));
            batch.segments.push(own(first..rows.len()));
        }
        if rows.is_empty() {
            return Ok(());
        }
        Ok(self.drafter.append(ops, target.taps(), &rows, &batch)?)
    }

    fn follow(&mut self, rank: &mut TargetRank<O>, paths: &[usize]) -> Result<(), EngineError> {
        let mut counts = vec![0; paths.len()];
        for ((segment, &path), count) in rank.batch.segments.iter().zip(paths).zip(&mut counts) {
            let slot = segment.slot;
            let Some(context) = self.contexts[slot] else {
                continue;
            };
            // Whether a copy goes on decides when it is taken in.
            if !self.copies[slot] {
                check_context(slot, context, segment.past)?;
                self.catch_up(rank, slot)?;
                self.ahead[slot] = true;
                *count = path;
            }
        }
        if counts.iter().all(|&count| count == 0) {
            return Ok(());
        }
        let (ops, taps) = (&rank.ops, rank.target.taps());
        Ok(self
            .drafter
            .append_walked(ops, taps, &rank.batch, &counts)?)
    }

    fn finish(&mut self, rank: &mut TargetRank<O>, slot: usize) -> Result<(), EngineError> {
        if self.reused {
            return self.catch_up(rank, slot);
        }
        self.later.forget(slot);
        Ok(())
    }

    /// The drafter always runs its full block, as it was trained; the plan bounds
    /// what is verified. Sequences that want no block get no drafts. Under [`Rule::Match`] the device draws
    /// chains and grows trees that nobody has to see before they are verified, and nothing is waited for.
    /// Penalties, bias, trees that noise or a filter of mass shape and [`Rule::Residual`] are the host's,
    /// which chooses from candidates and from what the device draws behind the history.
    fn propose(
        &mut self,
        rank: &mut TargetRank<O>,
        sequences: &mut [Drafting<'_>],
    ) -> Result<Vec<Proposal>, EngineError> {
        for d in sequences.iter() {
            self.copies[d.slot] = matches!(d.plan, DraftPlan::Given(_));
            if wants_block(d) {
                self.catch_up(rank, d.slot)?;
            }
        }
        let Some(blocks) = Blocks::of(sequences, self.drafter.config().block_size) else {
            return Ok(vec![Proposal::default(); sequences.len()]);
        };
        let unseen = |d: &Drafting<'_>| match d.plan {
            DraftPlan::Tree(_) => self.growth(d, blocks.depth).is_some(),
            _ => d.free && d.sampling.leaves_logits(),
        };
        let mut blocked = sequences.iter().filter(|d| wants_block(d));
        match self.sampling.rule == Rule::Match && blocked.all(unseen) {
            true => self.draw(rank, sequences, &blocks),
            false => self.choose(rank, sequences, &blocks),
        }
    }

    fn context(&self, slot: usize) -> Option<usize> {
        self.contexts[slot]
    }
}
