//! Softmax attention over the paged cache, as products with one block of the cache after another.
//! Sums run in token order and what a row does not see has weight zero, so its bits do not depend
//! on the rows beside it.

use volley_ops::{AttentionDims, AttentionMask, Batch, Error, Result, Segment};

use crate::buf::Buf;
use crate::checks::{check_batch, check_groups};
use crate::kv::{BLOCK_SIZE, Kv};
use crate::math::sigmoid;
use crate::matmul::{Left, Right, multiply};
use crate::rows::head_rows;
use crate::softmax::softmax;
use crate::threads::Threads;

/// Rows that visit a block together.
const ROWS: usize = 16;

/// Tokens that one row sees, by their index in the sequence. The window bounds the past only: which
/// of the rows beside it a row sees is the mask's other half.
struct Visible {
    /// First token that the window admits.
    first: usize,
    /// Where the rows of the segment begin.
    past: usize,
    /// Of the rows of the segment.
    rows: Vec<bool>,
}

impl Visible {
    fn new(segment: &Segment, mask: AttentionMask, i: usize) -> Self {
        let position = segment.position(i);
        let oldest = mask.window.map_or(0, |w| (position + 1).saturating_sub(w));
        let mut rows = vec![!mask.causal; segment.rows.len()];
        if mask.causal {
            let mut row = Some(i);
            while let Some(ancestor) = row {
                rows[ancestor] = true;
                row = segment.parent(ancestor);
            }
        }
        for (row, seen) in rows.iter_mut().enumerate() {
            *seen &= segment.position(row) >= oldest;
        }
        Self {
            first: oldest.min(segment.past),
            past: segment.past,
            rows,
        }
    }
}

/// Some rows of a segment and the query heads of one key/value head.
struct Group<'a> {
    kv: &'a Kv,
    kv_head: usize,
    head_dim: usize,
    blocks: &'a [u32],
    /// Context and rows of the segment.
    tokens: usize,
    rows: Vec<Row<'a>>,
}

struct Row<'a> {
    visible: Visible,
    /// `[heads, head_dim]`, as `out`.
    q: &'a [f32],
    out: &'a mut [f32],
}

impl Group<'_> {
    /// Blocks from the first that any row sees, with the index of their first token.
    fn seen_blocks(&self) -> impl Iterator<Item = (usize, usize)> {
        let firsts = self.rows.iter().map(|row| row.visible.first);
        let first = firsts.min().unwrap_or(0) / BLOCK_SIZE;
        let blocks = self.blocks.iter().enumerate().skip(first);
        blocks.map(|(i, &block)| (i * BLOCK_SIZE, block as usize))
    }

    fn attend(mut self) {
        let dim = self.head_dim;
        let scale = (dim as f32).powf(-0.5);
        let scaled = |row: &Row| row.q.iter().map(|q| q * scale).collect::<Vec<_>>();
        let queries: Vec<f32> = self.rows.iter().flat_map(scaled).collect();
        let width = self.blocks.len() * BLOCK_SIZE;
        let mut scores = vec![0.0; queries.len() / dim * width];
        let mut score_rows: Vec<&mut [f32]> = scores.chunks_exact_mut(width).collect();
        let left = Left {
            data: &queries,
            stride: dim,
            depth: dim,
        };
        for (token, block) in self.seen_blocks() {
            let keys = Right {
                data: self.kv.keys(block, self.kv_head),
                stride: BLOCK_SIZE,
                columns: BLOCK_SIZE,
            };
            multiply(left, keys, false, token, &mut score_rows);
        }
        let heads = self.rows.iter().flat_map(|row| {
            let heads = row.q.len() / dim;
            std::iter::repeat_n(&row.visible, heads)
        });
        for (visible, weights) in heads.zip(score_rows) {
            let weights = &mut weights[..self.tokens];
            softmax(weights, visible.first, visible.past, &visible.rows);
        }
        self.rows.iter_mut().for_each(|row| row.out.fill(0.0));
        let blocks: Vec<_> = self.seen_blocks().collect();
        let outs = self
            .rows
            .iter_mut()
            .flat_map(|row| row.out.chunks_exact_mut(dim));
        let mut outs: Vec<&mut [f32]> = outs.collect();
        for (token, block) in blocks {
            let weights = Left {
                data: &scores[token..],
                stride: width,
                depth: BLOCK_SIZE.min(self.tokens - token),
            };
            let values = Right {
                data: self.kv.values(block, self.kv_head),
                stride: dim,
                columns: dim,
            };
            multiply(weights, values, true, 0, &mut outs);
        }
    }
}

#[allow(clippy::too_many_arguments)]
pub fn attention(
    threads: Threads,
    dims: AttentionDims,
    q: &Buf,
    proj: &Buf,
    kv: &Kv,
    mask: AttentionMask,
    batch: &Batch,
    out: &mut Buf,
) -> Result<()> {
    let op = "attention";
    check_batch(op, batch)?;
    check_groups(op, dims.heads, dims.kv_heads)?;
    check_window(op, mask)?;
    kv.fits(op, dims.kv())?;
    let (n, width, head_dim) = (batch.rows(), dims.query_width(), dims.head_dim);
    let q = q.view(op, "q", n, width)?;
    let out = out.view_mut(op, "out", n, width)?;
    if dims.gated {
        proj.view(op, "proj", n, dims.proj_width())?;
    }
    if width == 0 {
        return Ok(());
    }
    let mut blocks = Vec::with_capacity(batch.segments.len());
    for segment in &batch.segments {
        blocks.push(kv.segment_blocks(op, segment)?);
    }
    let keys = |s: &Segment| (s.past + s.rows.len()) * s.rows.len();
    let work = 2 * width * batch.segments.iter().map(keys).sum::<usize>();
    let rows_per_job = n.div_ceil(threads.pieces(work)).clamp(1, ROWS);
    let group = width / dims.kv_heads;
    let mut jobs = Vec::new();
    for (job, rows) in head_rows(batch, out, width, group).into_iter().enumerate() {
        let (index, kv_head) = (job / dims.kv_heads, job % dims.kv_heads);
        let mut rows = rows.into_iter().enumerate().peekable();
        while rows.peek().is_some() {
            let part: Vec<_> = rows.by_ref().take(rows_per_job).collect();
            jobs.push((index, kv_head, part));
        }
    }
    threads.run(work, jobs, |(index, kv_head, part)| {
        let segment = &batch.segments[index];
        let row = |(i, out)| Row {
            visible: Visible::new(segment, mask, i),
            q: &q[(segment.rows.start + i) * width + kv_head * group..][..group],
            out,
        };
        let group = Group {
            kv,
            kv_head,
            head_dim,
            blocks: blocks[index],
            tokens: segment.past + segment.rows.len(),
            rows: part.into_iter().map(row).collect(),
        };
        group.attend();
    });
    if dims.gated {
        gate(dims, proj.view(op, "proj", n, dims.proj_width())?, out);
    }
    Ok(())
}

/// `out *= sigmoid(gate)`; the gate of a head lies behind its query.
fn gate(dims: AttentionDims, proj: &[f32], out: &mut [f32]) {
    let rows = proj.chunks_exact(dims.proj_width());
    for (row, out) in rows.zip(out.chunks_exact_mut(dims.query_width())) {
        let pairs = row.chunks_exact(2 * dims.head_dim);
        for (pair, out) in pairs.zip(out.chunks_exact_mut(dims.head_dim)) {
            let gates = &pair[dims.head_dim..];
            out.iter_mut()
                .zip(gates)
                .for_each(|(out, &gate)| *out *= sigmoid(gate));
        }
    }
}

/// A window holds at least the query itself.
fn check_window(op: &'static str, mask: AttentionMask) -> Result<()> {
    match mask.window {
        Some(0) => Err(Error::Shape {
            op,
            what: "window",
            expected: "at least 1".into(),
            got: "0".into(),
        }),
        _ => Ok(()),
    }
}
