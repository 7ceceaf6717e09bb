use volley_ops::{Dtype, Ops};

use crate::weights::Scope;
use crate::{Result, Shard};

/// Rows whose logits are computed at a time, which bounds the buffers.
const ROWS: usize = 64;

/// The embedding table and the output head, both split by vocabulary rows (qwen35 section 4).
pub(crate) struct Vocabulary<O: Ops> {
    table: O::Weight,
    /// Its own weight unless tied.
    head: Option<O::Weight>,
    first: u32,
    chunk: usize,
    input: O::Buf,
    share: O::Buf,
    whole: Option<O::Buf>,
}

impl<O: Ops> Vocabulary<O> {
    /// `tied`: the head is the table, also when the files hold an `lm_head.weight`.
    pub(crate) fn load(
        ops: &O,
        root: &Scope,
        [vocab, hidden]: [usize; 2],
        tied: bool,
        shard: Shard,
        max_rows: usize,
    ) -> Result<Self> {
        let ids = shard.split("vocab_size", vocab)?;
        let rows = std::slice::from_ref(&ids);
        let head = match tied {
            true => None,
            false => Some(root.rows(&[("lm_head.weight", rows)]).weight(ops)?),
        };
        let chunk = max_rows.min(ROWS);
        Ok(Self {
            table: root
                .rows(&[("model.embed_tokens.weight", rows)])
                .weight(ops)?,
            head,
            first: ids.start as u32,
            chunk,
            input: ops.alloc(chunk, hidden, Dtype::Activation)?,
            share: ops.alloc(chunk, ids.len(), Dtype::F32)?,
            whole: match shard.ranks {
                1 => None,
                _ => Some(ops.alloc(chunk, vocab, Dtype::F32)?),
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
        let head = self.head.as_ref().unwrap_or(&self.table);
        let mut logits = Vec::new();
        for rows in rows.chunks(self.chunk) {
            let n = rows.len();
            ops.gather(x, rows, &mut self.input)?;
            ops.linear(&self.input, n, head, &mut self.share)?;
            let whole = match &mut self.whole {
                None => &self.share,
                Some(whole) => {
                    ops.all_gather(&self.share, n, whole)?;
                    whole
                }
            };
            logits.extend(ops.read(whole, 0..n)?);
        }
        Ok(logits)
    }
}
