use volley_ops::{AttentionDims, Batch, Error, Keep, KvDims, NormKind, Result, RopeTable, Segment};

use crate::buf::{Buf, check, check_index};
use crate::checks::{check_batch, check_groups, check_keep};
use crate::norm::norm_row;
use crate::rope::Rotation;

/// Tokens per cache block.
pub const BLOCK_SIZE: usize = 32;

/// One layer's paged cache, laid out so that attention is matrix products of whole blocks.
pub struct Kv {
    dims: KvDims,
    /// `[blocks, kv_heads, head_dim, BLOCK_SIZE]`.
    keys: Vec<f32>,
    /// `[blocks, kv_heads, BLOCK_SIZE, head_dim]`.
    values: Vec<f32>,
}

impl Kv {
    pub(crate) fn new(dims: KvDims, blocks: usize) -> Self {
        let len = blocks * BLOCK_SIZE * dims.kv_heads * dims.head_dim;
        // Each by itself: zeroed memory costs nothing before it is written, a copy of it does.
        Self {
            dims,
            keys: vec![0.0; len],
            values: vec![0.0; len],
        }
    }

    /// Values of one block of one head, keys or values.
    fn block_len(&self) -> usize {
        BLOCK_SIZE * self.dims.head_dim
    }

    /// Where the block of a head begins.
    fn block_at(&self, block: usize, head: usize) -> usize {
        (block * self.dims.kv_heads + head) * self.block_len()
    }

    /// Keys of a head in a block, `[head_dim, BLOCK_SIZE]`.
    pub(crate) fn keys(&self, block: usize, head: usize) -> &[f32] {
        &self.keys[self.block_at(block, head)..][..self.block_len()]
    }

    /// Values of a head in a block, `[BLOCK_SIZE, head_dim]`.
    pub(crate) fn values(&self, block: usize, head: usize) -> &[f32] {
        &self.values[self.block_at(block, head)..][..self.block_len()]
    }

    /// Writes one token's key and value of a head.
    fn write(&mut self, place: usize, head: usize, key: &[f32], value: &[f32]) {
        let at = self.block_at(place / BLOCK_SIZE, head);
        let token = place % BLOCK_SIZE;
        for (i, &k) in key.iter().enumerate() {
            self.keys[at + i * BLOCK_SIZE + token] = k;
        }
        let at = at + token * self.dims.head_dim;
        self.values[at..at + value.len()].copy_from_slice(value);
    }

    /// Copies one token's keys and values.
    fn copy(&mut self, from: usize, to: usize) {
        let dim = self.dims.head_dim;
        for head in 0..self.dims.kv_heads {
            let old = self.block_at(from / BLOCK_SIZE, head);
            let new = self.block_at(to / BLOCK_SIZE, head);
            let (from, to) = (from % BLOCK_SIZE, to % BLOCK_SIZE);
            for i in 0..dim {
                self.keys[new + i * BLOCK_SIZE + to] = self.keys[old + i * BLOCK_SIZE + from];
            }
            let values = old + from * dim..old + (from + 1) * dim;
            self.values.copy_within(values, new + to * dim);
        }
    }

    /// Block `to` becomes block `from`.
    pub(crate) fn copy_block(&mut self, op: &'static str, from: u32, to: u32) -> Result<()> {
        check_index(op, "block", from as usize, self.blocks())?;
        check_index(op, "block", to as usize, self.blocks())?;
        let len = self.dims.kv_heads * self.block_len();
        let (from, to) = (from as usize * len, to as usize * len);
        self.keys.copy_within(from..from + len, to);
        self.values.copy_within(from..from + len, to);
        Ok(())
    }

    fn blocks(&self) -> usize {
        self.keys.len() / (self.dims.kv_heads * self.block_len()).max(1)
    }

    pub(crate) fn fits(&self, op: &'static str, dims: KvDims) -> Result<()> {
        check(
            op,
            "kv_heads of the cache",
            dims.kv_heads,
            self.dims.kv_heads,
        )?;
        check(
            op,
            "head_dim of the cache",
            dims.head_dim,
            self.dims.head_dim,
        )
    }

    /// The blocks that hold the tokens of a segment, context and rows.
    pub(crate) fn segment_blocks<'a>(
        &self,
        op: &'static str,
        segment: &'a Segment,
    ) -> Result<&'a [u32]> {
        let needed = (segment.past + segment.rows.len()).div_ceil(BLOCK_SIZE);
        let Some(blocks) = segment.blocks.get(..needed) else {
            return Err(Error::Shape {
                op,
                what: "number of blocks of a segment",
                expected: format!("at least {needed}"),
                got: segment.blocks.len().to_string(),
            });
        };
        for &block in blocks {
            check_index(op, "block", block as usize, self.blocks())?;
        }
        Ok(blocks)
    }

    /// Where each row of the segment lies in the cache, in tokens.
    fn row_places(&self, op: &'static str, segment: &Segment) -> Result<Vec<usize>> {
        let blocks = self.segment_blocks(op, segment)?;
        let place = |token| blocks[token / BLOCK_SIZE] as usize * BLOCK_SIZE + token % BLOCK_SIZE;
        let tokens = segment.past..segment.past + segment.rows.len();
        Ok(tokens.map(place).collect())
    }
}

/// A head norm followed by the rotation of positions.
struct NormRotate<'a> {
    weight: &'a [f32],
    kind: NormKind,
    eps: f32,
}

impl NormRotate<'_> {
    fn head(&self, x: &[f32], rotation: &Rotation, out: &mut [f32]) {
        norm_row(x, self.weight, self.kind, self.eps, out);
        rotation.apply(out);
    }
}

/// Writes a row's keys and values, given as `[k | v]`, the keys neither normed nor rotated yet.
fn write_row(kv: &mut Kv, place: usize, row: &[f32], norm: &NormRotate, rotation: &Rotation) {
    let mut key = vec![0.0; kv.dims.head_dim];
    let (k, v) = row.split_at(row.len() / 2);
    let heads = k.chunks_exact(key.len()).zip(v.chunks_exact(key.len()));
    for (head, (k, v)) in heads.enumerate() {
        norm.head(k, rotation, &mut key);
        kv.write(place, head, &key, v);
    }
}

fn check_dims(op: &'static str, dims: AttentionDims) -> Result<()> {
    check_groups(op, dims.heads, dims.kv_heads)?;
    check_index(op, "first of head_dim", 0, dims.head_dim)?;
    check(op, "rotary_dim modulo 2", dims.rotary_dim % 2, 0)?;
    check_index(op, "rotary_dim", dims.rotary_dim, dims.head_dim + 1)
}

#[allow(clippy::too_many_arguments)]
pub fn attention_prepare(
    dims: AttentionDims,
    proj: &Buf,
    q_norm: &Buf,
    k_norm: &Buf,
    rope: &RopeTable<Buf>,
    batch: &Batch,
    q: &mut Buf,
    kv: &mut Kv,
) -> Result<()> {
    let op = "attention_prepare";
    check_batch(op, batch)?;
    check_dims(op, dims)?;
    kv.fits(op, dims.kv())?;
    let (n, head) = (batch.rows(), dims.head_dim);
    let proj = proj.view(op, "proj", n, dims.proj_width())?;
    let norm = |weight| NormRotate {
        weight,
        kind: dims.norm,
        eps: dims.eps,
    };
    let q_norm = norm(q_norm.view(op, "q_norm", 1, head)?);
    let k_norm = norm(k_norm.view(op, "k_norm", 1, head)?);
    let q = q.view_mut(op, "q", n, dims.query_width())?;
    let inv_freq = rope.inv_freq.view(op, "inv_freq", 1, dims.rotary_dim / 2)?;
    let mut rotation = Rotation::new(inv_freq, rope.scale);
    let stride = if dims.gated { 2 * head } else { head };
    for segment in &batch.segments {
        for (i, place) in kv.row_places(op, segment)?.into_iter().enumerate() {
            let row = segment.rows.start + i;
            let packed = &proj[row * dims.proj_width()..][..dims.proj_width()];
            let (query, pair) = packed.split_at(dims.heads * stride);
            rotation.turn_to(segment.position(i));
            let q = &mut q[row * dims.query_width()..][..dims.query_width()];
            for (x, q) in query.chunks_exact(stride).zip(q.chunks_exact_mut(head)) {
                q_norm.head(&x[..head], &rotation, q);
            }
            write_row(kv, place, pair, &k_norm, &rotation);
        }
    }
    Ok(())
}

pub fn kv_append(
    dims: AttentionDims,
    proj: &Buf,
    k_norm: &Buf,
    rope: &RopeTable<Buf>,
    batch: &Batch,
    kv: &mut Kv,
) -> Result<()> {
    let op = "kv_append";
    check_batch(op, batch)?;
    check_dims(op, dims)?;
    kv.fits(op, dims.kv())?;
    let width = 2 * dims.kv_width();
    let proj = proj.view(op, "proj", batch.rows(), width)?;
    let k_norm = NormRotate {
        weight: k_norm.view(op, "k_norm", 1, dims.head_dim)?,
        kind: dims.norm,
        eps: dims.eps,
    };
    let inv_freq = rope.inv_freq.view(op, "inv_freq", 1, dims.rotary_dim / 2)?;
    let mut rotation = Rotation::new(inv_freq, rope.scale);
    for segment in &batch.segments {
        for (i, place) in kv.row_places(op, segment)?.into_iter().enumerate() {
            let row = segment.rows.start + i;
            rotation.turn_to(segment.position(i));
            write_row(kv, place, &proj[row * width..][..width], &k_norm, &rotation);
        }
    }
    Ok(())
}

/// Kept rows move to the tokens right behind the context; a kept row never moves backwards, so
/// going along the path overwrites nothing that is still needed.
pub fn kv_commit(dims: KvDims, batch: &Batch, keep: &Keep, kv: &mut Kv) -> Result<()> {
    let op = "kv_commit";
    check_keep(op, batch, keep)?;
    kv.fits(op, dims)?;
    for (segment, kept) in batch.segments.iter().zip(keep) {
        let places = kv.row_places(op, segment)?;
        for (&to, &row) in places.iter().zip(kept) {
            let from = places[row as usize];
            if from != to {
                kv.copy(from, to);
            }
        }
    }
    Ok(())
}
