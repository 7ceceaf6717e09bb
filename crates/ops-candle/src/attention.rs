//! Softmax attention over the paged cache. Keys are taken in token order, so a row's bits depend
//! on what it sees and not on the rows beside it.

use std::ops::Range;

use pulp::{Simd, WithSimd};
use volley_ops::{AttentionDims, AttentionMask, Batch, Result, Segment};

use crate::buf::Buf;
use crate::checks::{check_batch, check_groups};
use crate::kv::Kv;
use crate::math::{exp, sigmoid};
use crate::simd::{add_weighted, dispatch, dot};
use crate::threads::Threads;

/// Context tokens and rows of the segment that row `i` sees.
struct Visible {
    context: Range<usize>,
    rows: Vec<usize>,
}

impl Visible {
    fn new(segment: &Segment, mask: AttentionMask, i: usize) -> Self {
        let position = segment.position(i);
        let first = mask
            .window
            .map_or(0, |window| (position + 1).saturating_sub(window));
        let mut rows: Vec<usize> = if mask.causal {
            std::iter::successors(Some(i), |&row| segment.parent(row)).collect()
        } else {
            (0..segment.rows.len()).rev().collect()
        };
        rows.retain(|&row| segment.position(row) >= first);
        rows.reverse();
        Self {
            context: first.min(segment.past)..segment.past,
            rows,
        }
    }

    /// Places in the cache, in token order.
    fn places(&self, segment: &Segment, places: &[usize]) -> Vec<usize> {
        let rows = self.rows.iter().map(|&row| places[segment.past + row]);
        places[self.context.clone()]
            .iter()
            .copied()
            .chain(rows)
            .collect()
    }
}

/// One row: all its heads.
struct Row<'a> {
    dims: AttentionDims,
    kv: &'a Kv,
    q: &'a [f32],
    /// Cache places of the visible tokens.
    places: Vec<usize>,
    out: &'a mut [f32],
}

impl WithSimd for Row<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (dims, kv, head_dim) = (self.dims, self.kv, self.dims.head_dim);
        let width = kv.width();
        let scale = (head_dim as f32).powf(-0.5);
        let mut weights = vec![0.0f32; self.places.len()];
        let heads = self.q.chunks_exact(head_dim);
        for (head, (q, out)) in heads.zip(self.out.chunks_exact_mut(head_dim)).enumerate() {
            let offset = head / (dims.heads / dims.kv_heads) * head_dim;
            let mut highest = f32::NEG_INFINITY;
            for (weight, &place) in weights.iter_mut().zip(&self.places) {
                let key = &kv.keys[place * width + offset..][..head_dim];
                *weight = dot(simd, q, key) * scale;
                highest = highest.max(*weight);
            }
            for weight in &mut weights {
                *weight = exp(*weight - highest);
            }
            let sum: f32 = weights.iter().sum();
            let value = |j: usize| &kv.values[self.places[j] * width + offset..][..head_dim];
            out.fill(0.0);
            add_weighted(simd, &weights, value, out);
            out.iter_mut().for_each(|out| *out /= sum);
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
    kv.fits(op, dims.kv())?;
    let (n, width) = (batch.rows(), dims.query_width());
    let q = q.view(op, "q", n, width)?;
    let out = out.view_mut(op, "out", n, width)?;
    let gates = if dims.gated {
        Some(proj.view(op, "proj", n, dims.proj_width())?)
    } else {
        None
    };
    if width == 0 {
        return Ok(());
    }
    let mut places = Vec::with_capacity(batch.segments.len());
    for segment in &batch.segments {
        places.push(kv.places(op, segment)?);
    }
    let owners = batch.segments.iter().enumerate();
    let owners = owners.flat_map(|(index, s)| (0..s.rows.len()).map(move |i| (index, i)));
    let jobs: Vec<_> = owners.zip(out.chunks_exact_mut(width)).collect();
    let keys: usize = batch
        .segments
        .iter()
        .map(|s| (s.past + s.rows.len()) * s.rows.len())
        .sum();
    threads.run(2 * keys * width, jobs, |((index, i), out)| {
        let segment = &batch.segments[index];
        let row = segment.rows.start + i;
        let row_out = &mut *out;
        dispatch(Row {
            dims,
            kv,
            q: &q[row * width..][..width],
            places: Visible::new(segment, mask, i).places(segment, &places[index]),
            out: row_out,
        });
        if let Some(proj) = gates {
            let packed = &proj[row * dims.proj_width()..][..2 * width];
            let gates = packed
                .chunks_exact(2 * dims.head_dim)
                .map(|pair| &pair[dims.head_dim..]);
            for (out, &gate) in out.iter_mut().zip(gates.flatten()) {
                *out *= sigmoid(gate);
            }
        }
    });
    Ok(())
}
