use volley_ops::{
    Batch, Chosen, DRAWN, DRAWN_WIDTH, Draw, Dtype, Edit, Growth, Keep, Ops, WALKED_WIDTH, Walk,
    WalkEnd,
};

use crate::logit_rows::LogitRows;
use crate::weights::Scope;
use crate::{Drawn, Result, Shard, TopRows, check};

/// What a pass says about the tokens behind its rows.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The likeliest tokens of each row.
    pub tops: TopRows,
    /// The token that was drawn from each row; empty where none were asked for.
    pub drawn: Vec<Drawn>,
    /// Of the target: drafts that were drawn or grown before the pass and not handed out yet, by their rows.
    pub drafts: Vec<Drafted>,
    /// Of [`crate::Target::walk`]: the rows that it kept, by segment.
    pub kept: Keep,
}

/// An [`Outcome`] on its way to the host.
pub struct Asked<O: Ops>(O::Reading);

/// A draft that only the device knew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drafted {
    /// Its token.
    pub token: u32,
    /// Row of its parent in its segment, if it was grown.
    pub parent: u32,
}

/// The embedding table and the output head, both split by vocabulary rows.
pub(crate) struct Vocabulary<O: Ops> {
    table: O::Weight,
    /// Its own weight unless tied.
    head: Option<O::Weight>,
    first: u32,
    /// Rows whose logits are held at a time.
    rows: usize,
    input: O::Buf,
    logits: LogitRows<O>,
    /// Tokens that were drawn from the logits of a pass.
    chosen: O::Buf,
    /// Drafts that were drawn or grown, and how many of them.
    drafts: O::Buf,
    drafted: usize,
    /// What was kept of each segment of a walk.
    walked: O::Buf,
}

impl<O: Ops> Vocabulary<O> {
    /// `tied`: the head is the table, also when the files hold an `lm_head.weight`.
    pub(crate) fn load(
        ops: &O,
        root: &Scope,
        [vocab, hidden]: [usize; 2],
        tied: bool,
        shard: Shard,
        rows: usize,
    ) -> Result<Self> {
        let ids = shard.split("vocab_size", vocab)?;
        let part = std::slice::from_ref(&ids);
        let head = match tied {
            true => None,
            false => Some(root.rows(&[("lm_head.weight", part)]).weight(ops)?),
        };
        let float = |rows, width| ops.alloc(rows, width, Dtype::F32);
        Ok(Self {
            table: root
                .rows(&[("model.embed_tokens.weight", part)])
                .weight(ops)?,
            head,
            first: ids.start as u32,
            rows,
            input: ops.alloc(rows, hidden, Dtype::Activation)?,
            logits: LogitRows::new(ops, rows, vocab, shard)?,
            chosen: float(rows, DRAWN_WIDTH)?,
            // Trees lie behind what is drawn for the rows that they grow from.
            drafts: float(2 * rows, DRAWN_WIDTH)?,
            drafted: 0,
            walked: float(rows, WALKED_WIDTH)?,
        })
    }

    /// Embeddings of `ids`, the same on every rank; those with the bit [`DRAWN`] were drawn.
    pub(crate) fn embed(&self, ops: &O, ids: &[u32], out: &mut O::Buf) -> Result<()> {
        match self.drawn("embed", ids.iter().copied())? {
            false => ops.embed(ids, &self.table, self.first, out)?,
            true => ops.embed_drawn(ids, &self.drafts, &self.table, self.first, out)?,
        }
        Ok(ops.all_reduce(out, ids.len())?)
    }

    /// Parents of a batch that were grown become known to the device.
    pub(crate) fn plant(&self, ops: &O, batch: &Batch) -> Result<()> {
        let parents = batch
            .segments
            .iter()
            .flat_map(|s| s.parents.iter().flatten());
        match self.drawn("plant", parents.flatten().copied())? {
            false => Ok(()),
            true => Ok(ops.plant(batch, &self.drafts)?),
        }
    }

    /// Whether some of these are rows of drafts, which exist then.
    fn drawn(&self, call: &'static str, ids: impl Iterator<Item = u32>) -> Result<bool> {
        let rows = ids.filter(|id| id & DRAWN != 0).map(|id| id ^ DRAWN);
        match rows.max() {
            Some(row) if row as usize >= self.drafted => {
                let expected = format!("below the {} that were drawn", self.drafted);
                Err(check::error(call, "drawn row", expected, row))
            }
            row => Ok(row.is_some()),
        }
    }

    /// f32 logits `[rows.len(), vocab]` of rows of `x`, the same on every rank.
    pub(crate) fn logits(&mut self, ops: &O, x: &O::Buf, rows: &[u32]) -> Result<Vec<f32>> {
        let mut logits = Vec::new();
        for rows in rows.chunks(self.rows) {
            self.project(ops, x, rows)?;
            for row in 0..rows.len() {
                logits.extend(self.logits.row(ops, row)?);
            }
        }
        Ok(logits)
    }

    /// Likeliest tokens below `allowed` of rows of `x`, as many as verification has rows, and a token drawn
    /// from each if there are `draws`, after its one of `edits` if there are any.
    pub(crate) fn candidates(
        &mut self,
        ops: &O,
        x: &O::Buf,
        rows: &[u32],
        allowed: usize,
        draws: &[Draw],
        edits: &[Edit],
    ) -> Result<Outcome> {
        self.choose(ops, x, rows, allowed, draws, edits)?;
        let asked = self.begin_read(ops, [rows.len(), draws.len(), 0, 0])?;
        self.read(ops, asked)
    }

    /// As [`Vocabulary::candidates`], and what [`Vocabulary::draft`] drew last, unless it was handed out.
    pub(crate) fn outcome(
        &mut self,
        ops: &O,
        x: &O::Buf,
        rows: &[u32],
        allowed: usize,
        draws: &[Draw],
        edits: &[Edit],
    ) -> Result<Outcome> {
        self.choose(ops, x, rows, allowed, draws, edits)?;
        let asked = self.begin_read(ops, [rows.len(), draws.len(), self.drafted, 0])?;
        self.drafted = 0;
        self.read(ops, asked)
    }

    /// As [`Vocabulary::outcome`] of all rows of `batch`, which are walked down as far as the drafts among `ids`
    /// are the tokens chosen. Waits for nothing.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn walk(
        &mut self,
        ops: &O,
        x: &O::Buf,
        ids: &[u32],
        batch: &Batch,
        allowed: usize,
        draws: &[Draw],
        ends: &[WalkEnd<'_>],
    ) -> Result<Asked<O>> {
        let rows: Vec<u32> = (0..batch.rows() as u32).collect();
        self.choose(ops, x, &rows, allowed, draws, &[])?;
        self.drawn("walk", ids.iter().copied())?;
        let chosen = match draws.is_empty() {
            true => Chosen::Likeliest(self.logits.tops()),
            false => Chosen::Drawn(&self.chosen),
        };
        let drafts = &self.drafts;
        let walk = Walk {
            ids,
            drafts,
            chosen,
            ends,
        };
        ops.walk(batch, &walk, &mut self.walked)?;
        let counts = [rows.len(), draws.len(), self.drafted, batch.segments.len()];
        self.drafted = 0;
        self.begin_read(ops, counts)
    }

    /// Begins to read so many tops, drawn tokens, drafts and kept rows.
    fn begin_read(&self, ops: &O, counts: [usize; 4]) -> Result<Asked<O>> {
        let parts = [self.logits.tops(), &self.chosen, &self.drafts, &self.walked];
        let parts = parts.into_iter().zip(counts);
        let parts: Vec<_> = parts.map(|(part, count)| (part, 0..count)).collect();
        Ok(Asked(ops.begin_read(&parts)?))
    }

    /// What was asked for, once it has come.
    pub(crate) fn read(&self, ops: &O, asked: Asked<O>) -> Result<Outcome> {
        let mut parts = ops.end_read(asked.0)?;
        let drafts = parts[2].chunks_exact(DRAWN_WIDTH).map(|row| Drafted {
            token: row[0] as u32,
            parent: row[1] as u32,
        });
        let kept = parts[3].chunks_exact(WALKED_WIDTH).map(|row| {
            let rows = row[1..].iter().take(row[0] as usize);
            rows.map(|row| *row as u32).collect()
        });
        Ok(Outcome {
            drafts: drafts.collect(),
            kept: kept.collect(),
            drawn: Drawn::read(&parts[1]),
            tops: TopRows::new(parts.swap_remove(0), ops.ranks()),
        })
    }

    fn choose(
        &mut self,
        ops: &O,
        x: &O::Buf,
        rows: &[u32],
        allowed: usize,
        draws: &[Draw],
        edits: &[Edit],
    ) -> Result<()> {
        self.rank(ops, x, rows, allowed)?;
        if draws.is_empty() {
            return Ok(());
        }
        let chosen = &mut self.chosen;
        self.logits.draw(ops, allowed, draws, edits, chosen)
    }

    /// Draws a token from each of the rows of `x`, if there are draws, grows trees from them, and leaves all of
    /// it on the device.
    pub(crate) fn draft(
        &mut self,
        ops: &O,
        x: &O::Buf,
        rows: &[u32],
        allowed: usize,
        draws: &[Draw],
        trees: &[Growth],
    ) -> Result<()> {
        self.drafted = 0;
        self.rank(ops, x, rows, allowed)?;
        let drafts = &mut self.drafts;
        if !draws.is_empty() {
            self.logits.draw(ops, allowed, draws, &[], drafts)?;
        }
        if !trees.is_empty() {
            ops.grow(self.logits.tops(), trees, drafts)?;
        }
        let ends = trees.iter().map(|tree| tree.to + tree.budget);
        self.drafted = ends.fold(draws.len(), usize::max);
        Ok(())
    }

    /// As [`Vocabulary::draft`], behind what is drawn already; comes to the first of the new rows.
    /// Later calls of a chain have no more rows than the first one.
    pub(crate) fn draft_more(
        &mut self,
        ops: &O,
        x: &O::Buf,
        rows: &[u32],
        allowed: usize,
        draws: &[Draw],
    ) -> Result<usize> {
        // The operation begins at row 0: what is kept lies behind its rows.
        let (count, first) = (rows.len(), self.drafted.max(rows.len()));
        if first + count > self.rows {
            let expected = format!("at most {} in all", self.rows);
            return Err(check::error("draw", "draws", expected, first + count));
        }
        self.draft(ops, x, rows, allowed, draws, &[])?;
        for row in 0..count {
            ops.copy_row(&mut self.drafts, row, first + row)?;
        }
        self.drafted = first + count;
        Ok(first)
    }

    /// Whether there are drafts that were drawn and not handed out yet.
    pub(crate) fn has_drafted(&self) -> bool {
        self.drafted > 0
    }

    /// Draws a token from a row that was last projected, changed by `edit` first, and waits for it.
    pub(crate) fn draw_one(
        &mut self,
        ops: &O,
        row: usize,
        allowed: usize,
        draw: &Draw,
        edit: &Edit,
    ) -> Result<Drawn> {
        self.logits.draw_one(ops, row, allowed, draw, edit)
    }

    /// Finds the likeliest tokens of rows of `x`, of all ranks.
    fn rank(&mut self, ops: &O, x: &O::Buf, rows: &[u32], allowed: usize) -> Result<()> {
        if rows.len() > self.rows {
            let expected = format!("at most verify_rows = {}", self.rows);
            return Err(check::error("candidates", "rows", expected, rows.len()));
        }
        self.project(ops, x, rows)?;
        self.logits.rank(ops, allowed)
    }

    /// This rank's share of the logits of rows of `x`.
    fn project(&mut self, ops: &O, x: &O::Buf, rows: &[u32]) -> Result<()> {
        self.logits.held = 0;
        let head = self.head.as_ref().unwrap_or(&self.table);
        let input = match rows.iter().zip(0..).all(|(row, i)| *row == i) {
            // The first rows, as they lie.
            true => x,
            false => {
                ops.gather(x, rows, &mut self.input)?;
                &self.input
            }
        };
        ops.linear(input, rows.len(), head, &mut self.logits.share)?;
        self.logits.held = rows.len();
        Ok(())
    }
}
