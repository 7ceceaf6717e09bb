use volley_ops::{AttentionDims, Batch, Keep, KvDims, NormKind, Result, RopeTable, Segment};

use crate::buf::{Buf, check, check_index};
use crate::checks::{check_batch, check_groups, check_keep};
use crate::norm::norm_row;
use crate::rope::Rotation;

/// Tokens per cache block.
pub const BLOCK_SIZE: usize = 16;

/// One layer's paged cache: keys and values, each `[blocks, BLOCK_SIZE, kv_heads, head_dim]`.
pub struct Kv {
    dims: KvDims,
    pub(crate) keys: Vec<f32>,
    pub(crate) values: Vec<f32>,
}

impl Kv {
    pub(crate) fn new(dims: KvDims, blocks: usize) -> Self {
        let keys = vec![0.0; blocks * BLOCK_SIZE * dims.kv_heads * dims.head_dim];
        let values = keys.clone();
        Self { dims, keys, values }
    }

    /// Values per token of keys (or of values).
    pub(crate) fn width(&self) -> usize {
        self.dims.kv_heads * self.dims.head_dim
    }

    fn blocks(&self) -> usize {
        self.keys.len() / (BLOCK_SIZE * self.width()).max(1)
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

    /// Where the tokens of a segment, context and rows, lie in the cache, in tokens.
    pub(crate) fn places(&self, op: &'static str, segment: &Segment) -> Result<Vec<usize>> {
        let tokens = segment.past + segment.rows.len();
        let needed = tokens.div_ceil(BLOCK_SIZE);
        if segment.blocks.len() < needed {
            // One block too few: the last token has no place.
            check(
                op,
                "number of blocks of a segment",
                segment.blocks.len(),
                needed,
            )?;
        }
        let mut places = Vec::with_capacity(needed * BLOCK_SIZE);
        for &block in &segment.blocks[..needed] {
            check_index(op, "block", block as usize, self.blocks())?;
            let first = block as usize * BLOCK_SIZE;
            places.extend(first..first + BLOCK_SIZE);
        }
        places.truncate(tokens);
        Ok(places)
    }

    /// Where each row of the segment lies, in tokens.
    fn row_places(&self, op: &'static str, segment: &Segment) -> Result<Vec<usize>> {
        Ok(self.places(op, segment)?.split_off(segment.past))
    }
}

/// A head norm followed by the rotation of positions.
struct NormRotate<'a> {
    weight: &'a [f32],
    kind: NormKind,
    eps: f32,
}

impl NormRotate<'_> {
    /// `x` and `out` hold whole heads; gates between them are skipped by `stride`.
    fn heads(&self, x: &[f32], stride: usize, rotation: &Rotation, out: &mut [f32]) {
        let head = self.weight.len();
        for (x, out) in x.chunks(stride).zip(out.chunks_exact_mut(head)) {
            norm_row(&x[..head], self.weight, self.kind, self.eps, out);
            rotation.apply(out);
        }
    }
}

/// Writes the keys and values of a row, both still unnormed in `[k | v]`.
fn write_row(kv: &mut Kv, place: usize, row: &[f32], norm: &NormRotate, rotation: &Rotation) {
    let width = kv.width();
    let (k, v) = row.split_at(width);
    let at = place * width..(place + 1) * width;
    norm.heads(k, norm.weight.len(), rotation, &mut kv.keys[at.clone()]);
    kv.values[at].copy_from_slice(v);
}

fn check_dims(op: &'static str, dims: AttentionDims) -> Result<()> {
    check_groups(op, dims.heads, dims.kv_heads)?;
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
            q_norm.heads(query, stride, &rotation, q);
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
    let width = kv.width();
    for (segment, kept) in batch.segments.iter().zip(keep) {
        let places = kv.row_places(op, segment)?;
        for (&to, &row) in places.iter().zip(kept) {
            let from = places[row as usize];
            if from != to {
                let from = from * width..(from + 1) * width;
                kv.keys.copy_within(from.clone(), to * width);
                kv.values.copy_within(from, to * width);
            }
        }
    }
    Ok(())
}
