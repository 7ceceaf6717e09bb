use volley_ops::{CANDIDATES, DRAWN, Draw, Dtype, Ops, TOP_WIDTH};

use crate::weights::Scope;
use crate::{Result, Shard, check};

/// The likeliest allowed tokens of a row of logits, the same on every rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopRow {
    /// Token ids: logit descending, ties by lowest id; at most [`CANDIDATES`].
    pub ids: Vec<u32>,
    /// Their logits.
    pub logits: Vec<f32>,
    /// Log of the summed exponentials of all allowed logits; NaN when one of them is NaN or
    /// positive infinity, negative infinity when there is none.
    pub log_sum_exp: f64,
}

impl TopRow {
    /// From the ranks' rows of [`Ops::top`], side by side.
    fn merge(parts: &[f32]) -> Self {
        let mut ranked = Vec::with_capacity(CANDIDATES);
        let mut sums = Vec::new();
        for part in parts.chunks_exact(TOP_WIDTH) {
            let (logits, rest) = part.split_at(CANDIDATES);
            let (ids, sum) = rest.split_at(CANDIDATES);
            let some = logits
                .iter()
                .zip(ids)
                .take_while(|(l, _)| **l > f32::NEG_INFINITY);
            ranked.extend(some.map(|(&logit, &id)| (logit + 0.0, id as u32)));
            sums.push(f64::from(logits[0]) + f64::from(sum[0]));
        }
        if parts.len() > TOP_WIDTH {
            ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            ranked.truncate(CANDIDATES);
        }
        // A rank without any logit has negative infinity twice.
        let largest = ranked.first().map_or(0.0, |&(logit, _)| f64::from(logit));
        let sum: f64 = sums.iter().map(|sum| (sum - largest).exp()).sum();
        let (logits, ids) = ranked.into_iter().unzip();
        Self {
            ids,
            logits,
            log_sum_exp: largest + sum.ln(),
        }
    }

    /// Whether no other allowed token has a logit above negative infinity.
    pub fn complete(&self) -> bool {
        self.ids.len() < CANDIDATES
    }
}

/// The rows of as many ranks, side by side.
fn merge(values: &[f32], ranks: usize) -> Vec<TopRow> {
    let rows = values.chunks_exact(ranks * TOP_WIDTH);
    rows.map(TopRow::merge).collect()
}

/// The embedding table and the output head, both split by vocabulary rows (qwen35 section 4).
pub(crate) struct Vocabulary<O: Ops> {
    table: O::Weight,
    /// Its own weight unless tied.
    head: Option<O::Weight>,
    first: u32,
    /// Rows whose logits are held at a time.
    rows: usize,
    input: O::Buf,
    share: O::Buf,
    top: O::Buf,
    /// Tokens that the device drew, and how many of them.
    drawn: O::Buf,
    draws: usize,
    /// Rows that `share` holds for [`Vocabulary::row`].
    held: usize,
    gathered: Option<Gathered<O>>,
}

/// What several ranks put together.
struct Gathered<O: Ops> {
    /// One row of this rank's share, and of the whole.
    share: O::Buf,
    whole: O::Buf,
    tops: O::Buf,
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
            share: float(rows, ids.len())?,
            top: float(rows, TOP_WIDTH)?,
            drawn: float(rows, 1)?,
            draws: 0,
            held: 0,
            gathered: match shard.ranks {
                1 => None,
                ranks => Some(Gathered {
                    share: float(1, ids.len())?,
                    whole: float(1, vocab)?,
                    tops: float(rows, ranks * TOP_WIDTH)?,
                }),
            },
        })
    }

    /// Embeddings of `ids`, the same on every rank; those with the bit [`DRAWN`] were drawn.
    pub(crate) fn embed(&self, ops: &O, ids: &[u32], out: &mut O::Buf) -> Result<()> {
        let drawn = |id: &&u32| **id & DRAWN != 0;
        match ids.iter().filter(drawn).map(|id| id ^ DRAWN).max() {
            None => ops.embed(ids, &self.table, self.first, out)?,
            Some(row) if (row as usize) < self.draws => {
                ops.embed_drawn(ids, &self.drawn, &self.table, self.first, out)?;
            }
            Some(row) => {
                let expected = format!("below the {} that were drawn", self.draws);
                return Err(check::error("embed", "drawn row", expected, row));
            }
        }
        Ok(ops.all_reduce(out, ids.len())?)
    }

    /// f32 logits `[rows.len(), vocab]` of rows of `x`, the same on every rank.
    pub(crate) fn logits(&mut self, ops: &O, x: &O::Buf, rows: &[u32]) -> Result<Vec<f32>> {
        let mut logits = Vec::new();
        for rows in rows.chunks(self.rows) {
            self.project(ops, x, rows)?;
            match self.gathered {
                None => logits.extend(ops.read(&self.share, 0..rows.len())?),
                Some(_) => {
                    for row in 0..rows.len() {
                        logits.extend(self.row(ops, row)?);
                    }
                }
            }
        }
        Ok(logits)
    }

    /// Likeliest tokens below `allowed` of rows of `x`, as many as verification has rows.
    pub(crate) fn candidates(
        &mut self,
        ops: &O,
        x: &O::Buf,
        rows: &[u32],
        allowed: usize,
    ) -> Result<Vec<TopRow>> {
        self.rank(ops, x, rows, allowed)?;
        Ok(merge(&ops.read(self.tops(), 0..rows.len())?, ops.ranks()))
    }

    /// As [`Vocabulary::candidates`], and the tokens of the last [`Vocabulary::draw`], unless they
    /// have been read.
    pub(crate) fn outcome(
        &mut self,
        ops: &O,
        x: &O::Buf,
        rows: &[u32],
        allowed: usize,
    ) -> Result<(Vec<TopRow>, Vec<u32>)> {
        self.rank(ops, x, rows, allowed)?;
        let drawn = (&self.drawn, 0..self.draws);
        let parts = ops.read_each(&[(self.tops(), 0..rows.len()), drawn])?;
        self.draws = 0;
        let tops = merge(&parts[0], ops.ranks());
        Ok((tops, parts[1].iter().map(|&id| id as u32).collect()))
    }

    /// Draws a token from each of the rows of `x` and leaves it on the device.
    pub(crate) fn draw(
        &mut self,
        ops: &O,
        x: &O::Buf,
        rows: &[u32],
        allowed: usize,
        draws: &[Draw],
    ) -> Result<()> {
        self.draws = 0;
        if draws.len() != rows.len() {
            let expected = format!("{}, one per row", rows.len());
            return Err(check::error("draw", "draws", expected, draws.len()));
        }
        self.rank(ops, x, rows, allowed)?;
        let Self {
            gathered,
            top,
            drawn,
            ..
        } = self;
        let tops = gathered.as_ref().map_or(&*top, |gathered| &gathered.tops);
        ops.draw(tops, draws, drawn)?;
        self.draws = draws.len();
        Ok(())
    }

    /// As [`Vocabulary::draw`], behind what is drawn already; comes to the first of the new rows.
    /// Later calls of a chain have no more rows than the first one.
    pub(crate) fn draw_more(
        &mut self,
        ops: &O,
        x: &O::Buf,
        rows: &[u32],
        allowed: usize,
        draws: &[Draw],
    ) -> Result<usize> {
        // The operation begins at row 0: what is kept lies behind its rows.
        let (count, first) = (rows.len(), self.draws.max(rows.len()));
        if first + count > self.rows {
            let expected = format!("at most {} in all", self.rows);
            return Err(check::error("draw", "draws", expected, first + count));
        }
        self.draw(ops, x, rows, allowed, draws)?;
        for row in 0..count {
            ops.copy_row(&mut self.drawn, row, first + row)?;
        }
        self.draws = first + count;
        Ok(first)
    }

    /// Whether there are drawn tokens that were not read yet.
    pub(crate) fn has_drawn(&self) -> bool {
        self.draws > 0
    }

    /// Finds the likeliest tokens of rows of `x`, of all ranks.
    fn rank(&mut self, ops: &O, x: &O::Buf, rows: &[u32], allowed: usize) -> Result<()> {
        if rows.len() > self.rows {
            let expected = format!("at most verify_rows = {}", self.rows);
            return Err(check::error("candidates", "rows", expected, rows.len()));
        }
        self.project(ops, x, rows)?;
        let n = rows.len();
        ops.top(&self.share, n, self.first, allowed as u32, &mut self.top)?;
        match &mut self.gathered {
            None => Ok(()),
            Some(gathered) => Ok(ops.all_gather(&self.top, n, &mut gathered.tops)?),
        }
    }

    /// What [`Vocabulary::rank`] found.
    fn tops(&self) -> &O::Buf {
        let gathered = self.gathered.as_ref();
        gathered.map_or(&self.top, |gathered| &gathered.tops)
    }

    /// All logits of a row that was last projected.
    pub(crate) fn row(&mut self, ops: &O, row: usize) -> Result<Vec<f32>> {
        if row >= self.held {
            let expected = format!("below the {} that are held", self.held);
            return Err(check::error("logit_row", "row", expected, row));
        }
        let Some(Gathered { share, whole, .. }) = &mut self.gathered else {
            return Ok(ops.read(&self.share, row..row + 1)?);
        };
        ops.gather(&self.share, &[row as u32], share)?;
        ops.all_gather(share, 1, whole)?;
        Ok(ops.read(whole, 0..1)?)
    }

    /// This rank's share of the logits of rows of `x`.
    fn project(&mut self, ops: &O, x: &O::Buf, rows: &[u32]) -> Result<()> {
        self.held = 0;
        let head = self.head.as_ref().unwrap_or(&self.table);
        let input = match rows.iter().zip(0..).all(|(row, i)| *row == i) {
            // The first rows, as they lie.
            true => x,
            false => {
                ops.gather(x, rows, &mut self.input)?;
                &self.input
            }
        };
        ops.linear(input, rows.len(), head, &mut self.share)?;
        self.held = rows.len();
        Ok(())
    }
}
