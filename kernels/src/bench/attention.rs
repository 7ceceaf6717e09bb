use volley_ops::{AttentionDims, AttentionMask, Batch, Dtype, Ops, Result, RopeTable, Segment};

use super::Shapes;
use super::clock::{Clock, Work, batch, sets};
use crate::buf::{Buf, Kv};

/// A short and a long context.
const PASTS: [usize; 2] = [512, 16_000];
/// Contexts of prompt chunks.
const CHUNK_PASTS: [usize; 3] = [0, 6000, 14_000];
/// Rows of a cache that are filled at a time.
const PIECE: usize = 4096;

pub fn time(clock: &mut Clock, shapes: &Shapes) -> Result<()> {
    let (dims, block) = (shapes.attention, shapes.block);
    let causal = AttentionMask::CAUSAL;
    let mut batches = Vec::new();
    for past in PASTS {
        batches.push(batch(1, 1, past, false));
        batches.push(batch(1, block, past, false));
    }
    for past in PASTS {
        batches.push(batch(1, 2 * block, past, true));
    }
    batches.push(batch(1, 4 * block, PASTS[0], true));
    batches.push(batch(8, 1, PASTS[0], false));
    batches.push(batch(8, block, PASTS[0], false));
    let chunks = CHUNK_PASTS.map(|past| batch(1, shapes.chunk, past, false));
    for batch in batches.iter().chain(&chunks) {
        attend(clock, "target", dims, causal, batch)?;
    }
    if let Some((dims, masks)) = &shapes.drafter {
        let mut seen: Vec<AttentionMask> = Vec::new();
        for mask in masks {
            if seen.contains(mask) {
                continue;
            }
            seen.push(*mask);
            let name = match mask.window {
                Some(window) => format!("drafter, window of {window}"),
                None => "drafter".to_string(),
            };
            for (segments, past) in [(1, PASTS[0]), (1, PASTS[1]), (8, PASTS[0])] {
                attend(
                    clock,
                    &name,
                    *dims,
                    *mask,
                    &batch(segments, block, past, false),
                )?;
            }
        }
    }
    Ok(())
}

/// Attention over caches of random tokens, and what comes before it.
fn attend(
    clock: &mut Clock,
    name: &str,
    dims: AttentionDims,
    mask: AttentionMask,
    batch: &Batch,
) -> Result<()> {
    let ops = clock.ops;
    let (n, segments) = (batch.rows(), batch.segments.len());
    let segment = &batch.segments[0];
    let (tokens, rows) = (segment.past + segment.rows.len(), segment.rows.len());
    let blocks: usize = batch.segments.iter().map(|s| s.blocks.len()).sum();
    let sets = sets(4 * blocks * 16 * dims.kv_width()).min(8);
    let half = dims.rotary_dim / 2;
    let inv_freq = ops.upload(&clock.numbers(half, 0.0, 1.0), 1, half, Dtype::F32)?;
    let rope = RopeTable {
        inv_freq,
        scale: 1.0,
    };
    let norm = clock.activations(1, dims.head_dim)?;
    let mut caches = (0..sets)
        .map(|_| filled(clock, dims, &rope, &norm, batch, blocks))
        .collect::<Result<Vec<_>>>()?;
    let proj = clock.activations(n, dims.proj_width())?;
    let mut q = clock.activations(n, dims.query_width())?;
    let mut out = ops.alloc(n, dims.query_width(), Dtype::Activation)?;

    let shape = if segment.parents.is_some() {
        ", tree"
    } else {
        ""
    };
    let case = format!(
        "{name}: {segments} x {rows} rows{shape}, {} past",
        segment.past
    );
    let seen = mask
        .window
        .map_or(tokens, |window| tokens.min(window + rows));
    // On average a row sees half of the rows of its segment.
    let average = match mask.causal {
        true => seen - (rows - 1).min(seen) / 2,
        false => seen,
    };
    let work = Work {
        kernel: "attention",
        case: case.clone(),
        bytes: segments * seen * dims.kv_width() * 4 + n * dims.query_width() * 4,
        flop: 4 * n * average * dims.query_width(),
    };
    clock.time(work, sets, |set| {
        ops.attention(dims, &q, &proj, &caches[set], mask, batch, &mut out)
    })?;
    let work = Work {
        kernel: "attention_prepare",
        case,
        bytes: n * (dims.proj_width() + dims.query_width() + 2 * dims.kv_width()) * 2,
        flop: 0,
    };
    clock
        .time(work, sets, |set| {
            let cache = &mut caches[set];
            ops.attention_prepare(dims, &proj, &norm, &norm, &rope, batch, &mut q, cache)
        })
        .map(drop)
}

/// A cache that holds random tokens.
fn filled(
    clock: &Clock,
    dims: AttentionDims,
    rope: &RopeTable<Buf>,
    norm: &Buf,
    batch: &Batch,
    blocks: usize,
) -> Result<Kv> {
    let ops = clock.ops;
    let mut kv = ops.kv(dims.kv(), blocks)?;
    for segment in &batch.segments {
        let tokens = segment.past + segment.rows.len();
        for past in (0..tokens).step_by(PIECE) {
            let rows = PIECE.min(tokens - past);
            let piece = Batch {
                segments: vec![Segment {
                    rows: 0..rows,
                    past,
                    parents: None,
                    ..segment.clone()
                }],
            };
            let proj = clock.activations(rows, 2 * dims.kv_width())?;
            ops.kv_append(dims, &proj, norm, rope, &piece, &mut kv)?;
        }
    }
    Ok(kv)
}
