//! The attention operations.

use volley_ops::{
    AttentionDims, AttentionMask, Batch, Dtype, NormKind, Ops, Result, RopeTable, Segment,
};

use super::{BF16, Checks, keep};
use crate::pair::{Devices, KvPair, Shape, batch};

/// The target's attention (head 256, gated, a quarter rotated) and the drafter's (head 128).
pub(super) fn attention_dims(checks: &Checks) -> [AttentionDims; 2] {
    let full = checks.full();
    let target = AttentionDims {
        heads: if full { 24 } else { 6 },
        kv_heads: if full { 4 } else { 1 },
        head_dim: 256,
        rotary_dim: 64,
        gated: true,
        norm: NormKind::ZeroCentred,
        eps: 1e-6,
    };
    let drafter = AttentionDims {
        heads: if full { 32 } else { 8 },
        kv_heads: if full { 8 } else { 2 },
        head_dim: 128,
        rotary_dim: 128,
        gated: false,
        norm: NormKind::Plain,
        eps: 1e-6,
    };
    [target, drafter]
}

fn rope(
    d: &Devices,
    dims: AttentionDims,
) -> Result<(
    RopeTable<volley_ops_candle::Buf>,
    RopeTable<volley_kernels::Buf>,
)> {
    let half = dims.rotary_dim / 2;
    let frequency = |i| 1e7f32.powf(-(i as f32) / half as f32);
    let table = d.pair((0..half).map(frequency).collect(), 1, half, Dtype::F32)?;
    let scale = 1.25;
    Ok((
        RopeTable {
            inv_freq: table.cpu,
            scale,
        },
        RopeTable {
            inv_freq: table.gpu,
            scale,
        },
    ))
}

/// The caches are compared through what attention sees of them.
pub fn attention_prepare(checks: &mut Checks) {
    let (chain, tree) = (Shape::chain, Shape::tree);
    let cases = [
        vec![chain(1, 0)],
        vec![chain(15, 1), tree(17, 14)],
        vec![tree(33, 31), chain(16, 16)],
        vec![chain(3, 16_000)],
    ];
    for dims in attention_dims(checks) {
        for shapes in &cases {
            let case = format!("head {} {shapes:?}", dims.head_dim);
            checks.case("attention_prepare", case.clone(), |d| {
                let (batch, blocks, _) = batch(d, shapes);
                let n = batch.rows();
                let proj = d.random(n, dims.proj_width(), 3.0)?;
                let (q_norm, k_norm) = (
                    d.random(1, dims.head_dim, 1.0)?,
                    d.random(1, dims.head_dim, 1.0)?,
                );
                let (rope_cpu, rope_gpu) = rope(d, dims)?;
                let mut q = d.output(n, dims.query_width(), Dtype::Activation)?;
                let mut kv = d.kv(dims.kv(), blocks)?;
                let (c, g) = (d.cpu, d.gpu);
                c.attention_prepare(
                    dims,
                    &proj.cpu,
                    &q_norm.cpu,
                    &k_norm.cpu,
                    &rope_cpu,
                    &batch,
                    &mut q.cpu,
                    &mut kv.cpu,
                )?;
                g.attention_prepare(
                    dims,
                    &proj.gpu,
                    &q_norm.gpu,
                    &k_norm.gpu,
                    &rope_gpu,
                    &batch,
                    &mut q.gpu,
                    &mut kv.gpu,
                )?;
                let mut outputs = vec![(d.distance(&q, n)?, BF16)];
                outputs.extend(seen(d, dims, &batch, &kv)?);
                Ok(outputs)
            });
            checks.case("kv_append", case, |d| {
                let (batch, blocks, _) = batch(d, shapes);
                let proj = d.random(batch.rows(), 2 * dims.kv_width(), 3.0)?;
                let k_norm = d.random_f32(1, dims.head_dim, 1.0)?;
                let (rope_cpu, rope_gpu) = rope(d, dims)?;
                let mut kv = d.kv(dims.kv(), blocks)?;
                d.cpu
                    .kv_append(dims, &proj.cpu, &k_norm.cpu, &rope_cpu, &batch, &mut kv.cpu)?;
                d.gpu
                    .kv_append(dims, &proj.gpu, &k_norm.gpu, &rope_gpu, &batch, &mut kv.gpu)?;
                seen(d, dims, &batch, &kv)
            });
        }
    }
}

/// What attention of fresh queries makes of two caches.
pub(super) fn seen(
    d: &mut Devices,
    dims: AttentionDims,
    batch: &Batch,
    kv: &KvPair,
) -> Result<Vec<(f64, f64)>> {
    let n = batch.rows();
    let dims = AttentionDims {
        gated: false,
        ..dims
    };
    let q = d.random(n, dims.query_width(), 2.0)?;
    let mut out = d.output(n, dims.query_width(), Dtype::Activation)?;
    // A window of the rows themselves: the context of these caches is empty.
    let mask = AttentionMask {
        causal: true,
        window: Some(4),
    };
    d.cpu
        .attention(dims, &q.cpu, &q.cpu, &kv.cpu, mask, batch, &mut out.cpu)?;
    d.gpu
        .attention(dims, &q.gpu, &q.gpu, &kv.gpu, mask, batch, &mut out.gpu)?;
    Ok(vec![(d.distance(&out, n)?, 2.0 * BF16)])
}

/// A cache filled with `past + rows` tokens of every segment.
pub(super) fn filled(
    d: &mut Devices,
    dims: AttentionDims,
    batch: &Batch,
    blocks: usize,
) -> Result<KvPair> {
    let mut kv = d.kv(dims.kv(), blocks)?;
    let (rope_cpu, rope_gpu) = rope(d, dims)?;
    let k_norm = d.pair(vec![1.0; dims.head_dim], 1, dims.head_dim, Dtype::F32)?;
    let plain = AttentionDims {
        norm: NormKind::Plain,
        ..dims
    };
    // A segment at a time, from the first token on, in pieces.
    for segment in &batch.segments {
        let tokens = segment.past + segment.rows.len();
        for past in (0..tokens).step_by(4096) {
            let rows = 4096.min(tokens - past);
            let piece = Batch {
                segments: vec![Segment {
                    rows: 0..rows,
                    past,
                    parents: None,
                    ..segment.clone()
                }],
            };
            let proj = d.random(rows, 2 * dims.kv_width(), 1.0)?;
            d.cpu.kv_append(
                plain,
                &proj.cpu,
                &k_norm.cpu,
                &rope_cpu,
                &piece,
                &mut kv.cpu,
            )?;
            d.gpu.kv_append(
                plain,
                &proj.gpu,
                &k_norm.gpu,
                &rope_gpu,
                &piece,
                &mut kv.gpu,
            )?;
        }
    }
    Ok(kv)
}

/// Of a window of attention.
const WINDOW: usize = 48;

pub fn attention(checks: &mut Checks) {
    let (chain, tree) = (Shape::chain, Shape::tree);
    let mut cases = vec![
        vec![chain(1, 0)],
        vec![chain(1, 1), tree(15, WINDOW - 1)],
        vec![tree(16, WINDOW)],
        vec![chain(17, WINDOW + 1), chain(31, 130)],
        vec![tree(33, 100)],
        vec![tree(17, WINDOW - 1), tree(64, 20)],
        vec![tree(32, 300)],
        vec![chain(64, 7)],
        vec![chain(16, 1020), chain(3, 200)],
    ];
    if checks.full() {
        cases.extend([
            vec![chain(1, 16_000)],
            vec![tree(64, 4000)],
            vec![tree(32, 512)],
            vec![tree(64, 512)],
            vec![tree(32, 700); 3],
            vec![chain(16, 16_000)],
            vec![chain(16, 500); 8],
        ]);
    }
    attend(checks, cases);
}

pub fn attention_of_prompts(checks: &mut Checks) {
    let chain = Shape::chain;
    let mut cases = vec![
        vec![chain(90, 3)],
        vec![chain(66, 61), chain(3, 77), chain(257, 0)],
        vec![chain(256, 203)],
    ];
    if checks.full() {
        cases.extend([
            vec![chain(700, 300)],
            vec![chain(129, 4001), chain(900, 15), chain(5, 2000)],
            vec![chain(2048, 1000)],
            vec![chain(100, 16_000)],
        ]);
    }
    attend(checks, cases);
}

fn attend(checks: &mut Checks, cases: Vec<Vec<Shape>>) {
    let masks = [
        AttentionMask::CAUSAL,
        AttentionMask {
            causal: false,
            window: None,
        },
        AttentionMask {
            causal: true,
            window: Some(WINDOW),
        },
        AttentionMask {
            causal: false,
            window: Some(WINDOW),
        },
    ];
    for dims in attention_dims(checks) {
        for shapes in &cases {
            let long = shapes.iter().any(|shape| shape.past + shape.rows > 300);
            let masks = if long { &masks[..2] } else { &masks[..] };
            for &mask in masks {
                let case = format!("head {} {shapes:?} {mask:?}", dims.head_dim);
                checks.case("attention", case, |d| {
                    let (batch, blocks, _) = batch(d, shapes);
                    let n = batch.rows();
                    let kv = filled(d, dims, &batch, blocks)?;
                    // Sharp enough that a wrong key shows.
                    let q = d.random(n, dims.query_width(), 3.0)?;
                    let proj = d.random(n, dims.proj_width(), 2.0)?;
                    let mut out = d.output(n, dims.query_width(), Dtype::Activation)?;
                    d.cpu.attention(
                        dims,
                        &q.cpu,
                        &proj.cpu,
                        &kv.cpu,
                        mask,
                        &batch,
                        &mut out.cpu,
                    )?;
                    d.gpu.attention(
                        dims,
                        &q.gpu,
                        &proj.gpu,
                        &kv.gpu,
                        mask,
                        &batch,
                        &mut out.gpu,
                    )?;
                    Ok(vec![(d.distance(&out, n)?, 2.0 * BF16)])
                });
            }
        }
    }
}

pub fn kv_commit(checks: &mut Checks) {
    let (chain, tree) = (Shape::chain, Shape::tree);
    let cases = [
        vec![tree(16, 9), chain(17, 15), tree(33, 31)],
        vec![tree(64, 0), tree(15, 40)],
    ];
    for dims in attention_dims(checks) {
        for shapes in &cases {
            checks.case(
                "kv_commit",
                format!("head {} {shapes:?}", dims.head_dim),
                |d| {
                    let (batch, blocks, _) = batch(d, shapes);
                    let keep = keep(d, &batch);
                    let mut kv = filled(d, dims, &batch, blocks)?;
                    d.cpu.kv_commit(dims.kv(), &batch, &keep, &mut kv.cpu)?;
                    d.gpu.kv_commit(dims.kv(), &batch, &keep, &mut kv.gpu)?;
                    // The rows as a chain see what was moved.
                    let mut chains = batch.clone();
                    chains.segments.iter_mut().for_each(|s| s.parents = None);
                    seen(d, dims, &chains, &kv)
                },
            );
        }
        checks.case("copy_block", format!("head {}", dims.head_dim), |d| {
            let (mut batch, blocks, _) = batch(d, &[chain(17, 15), chain(5, 60)]);
            let mut kv = filled(d, dims, &batch, 2 * blocks)?;
            // Every block moves to the upper half.
            for segment in &mut batch.segments {
                for block in &mut segment.blocks {
                    let to = *block + blocks as u32;
                    d.cpu.copy_block(&mut kv.cpu, *block, to)?;
                    d.gpu.copy_block(&mut kv.gpu, *block, to)?;
                    *block = to;
                }
            }
            seen(d, dims, &batch, &kv)
        });
    }
}
