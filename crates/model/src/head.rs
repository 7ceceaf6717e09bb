use volley_ops::{CANDIDATES, Dtype, Ops, TOP_WIDTH};

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

    /// Embeddings of `ids`, the same on every rank.
    pub(crate) fn embed(&self, ops: &O, ids: &[u32], out: &mut O::Buf) -> Result<()> {
        ops.embed(ids, &self.table, self.first, out)?;
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
        if rows.len() > self.rows {
            let expected = format!("at most verify_rows = {}", self.rows);
            return Err(check::error("candidates", "rows", expected, rows.len()));
        }
        self.project(ops, x, rows)?;
        let n = rows.len();
        ops.top(&self.share, n, self.first, allowed as u32, &mut self.top)?;
        let (values, width) = match &mut self.gathered {
            None => (ops.read(&self.top, 0..n)?, TOP_WIDTH),
            Some(gathered) => {
                ops.all_gather(&self.top, n, &mut gathered.tops)?;
                let values = ops.read(&gathered.tops, 0..n)?;
                (values, ops.ranks() * TOP_WIDTH)
            }
        };
        Ok(values.chunks_exact(width).map(TopRow::merge).collect())
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
        ops.gather(x, rows, &mut self.input)?;
        ops.linear(&self.input, rows.len(), head, &mut self.share)?;
        self.held = rows.len();
        Ok(())
    }
}
