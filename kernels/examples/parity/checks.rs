//! Every operation on both devices over awkward shapes.

use volley_ops::{
    AttentionDims, AttentionMask, Batch, Dtype, GdnDims, Keep, NormKind, Ops, Result, RopeTable,
};

use crate::pair::{Devices, Pair, Shape, batch, path, split};

/// Rounding of bf16 outputs.
const BF16: f64 = 4e-3;
/// Rounding of f32 sums.
const F32: f64 = 2e-5;

/// What one comparison came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub op: &'static str,
    pub case: String,
    pub error: f64,
    pub tolerance: f64,
    pub failure: Option<String>,
}

impl Outcome {
    pub fn passed(&self) -> bool {
        self.failure.is_none() && self.error <= self.tolerance
    }
}

/// How many shapes to go through.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Small shapes, for the emulation.
    Small,
    /// The shapes of the 27B model and its drafter too.
    Full,
}

/// Collects outcomes; a failed case does not stop the others.
pub struct Checks<'a> {
    pub devices: Devices<'a>,
    pub scale: Scale,
    pub outcomes: Vec<Outcome>,
}

/// An operation's checks, by name.
pub type Check = fn(&mut Checks);

/// All of them.
pub const ALL: &[(&str, Check)] = &[
    ("rows", rows),
    ("norm", norms),
    ("swiglu", swiglu),
    ("linear", linear),
    ("gdn_prepare", gdn_prepare),
    ("gdn_verify", gdn_verify),
    ("gdn_commit", gdn_commit),
    ("gdn_prefill", gdn_prefill),
    ("conv_commit", conv_commit),
    ("gated_norm", gated_norm),
    ("attention_prepare", attention_prepare),
    ("attention", attention),
    ("kv_commit", kv_commit),
];

impl Checks<'_> {
    fn full(&self) -> bool {
        self.scale == Scale::Full
    }

    /// Runs one case; `run` gives the distance of each output and its tolerance.
    fn case(
        &mut self,
        op: &'static str,
        case: String,
        run: impl FnOnce(&mut Devices) -> Result<Vec<(f64, f64)>>,
    ) {
        let outcome = |error, tolerance, failure| Outcome {
            op,
            case: case.clone(),
            error,
            tolerance,
            failure,
        };
        let worst = match run(&mut self.devices) {
            Ok(outputs) => {
                let worse = |a: &(f64, f64), b: &(f64, f64)| (a.0 / a.1).total_cmp(&(b.0 / b.1));
                let (error, tolerance) = outputs.into_iter().max_by(worse).unwrap_or((0.0, 1.0));
                outcome(error, tolerance, None)
            }
            Err(error) => outcome(f64::INFINITY, 0.0, Some(error.to_string())),
        };
        self.outcomes.push(worst);
    }
}

fn rows(checks: &mut Checks) {
    for (n, width) in [(1, 8), (5, 64), (17, 1288), (33, 260)] {
        checks.case("embed", format!("{n} x {width}"), |d| {
            let table = d.weight(50, width)?;
            let ids: Vec<u32> = (0..n).map(|i| (i as u32 * 37) % 90).collect();
            let mut out = d.output(n, width, Dtype::Activation)?;
            d.cpu.embed(&ids, &table.cpu, 20, &mut out.cpu)?;
            d.gpu.embed(&ids, &table.gpu, 20, &mut out.gpu)?;
            Ok(vec![(d.distance(&out, n)?, 0.0)])
        });
        for dtype in [Dtype::Activation, Dtype::F32] {
            checks.case("gather", format!("{n} x {width} {dtype:?}"), |d| {
                let data = d.numbers(40 * width, 1.0);
                let x = d.pair(data, 40, width, dtype)?;
                let index: Vec<u32> = (0..n).map(|i| (i as u32 * 13) % 40).collect();
                let mut out = d.output(n, width, dtype)?;
                d.cpu.gather(&x.cpu, &index, &mut out.cpu)?;
                d.gpu.gather(&x.gpu, &index, &mut out.gpu)?;
                Ok(vec![(d.distance(&out, n)?, 0.0)])
            });
        }
        for column in [0, 8, 3] {
            checks.case("copy_columns", format!("{n} x {width} at {column}"), |d| {
                let x = d.random(n, width, 1.0)?;
                let mut out = d.output(n, width + 24, Dtype::Activation)?;
                d.cpu.copy_columns(&x.cpu, n, &mut out.cpu, column)?;
                d.gpu.copy_columns(&x.gpu, n, &mut out.gpu, column)?;
                // The other columns are still not numbers: only those written are compared.
                let part = |all: Vec<f32>| -> Vec<f32> {
                    let rows = all.chunks_exact(width + 24);
                    rows.flat_map(|row| row[column..column + width].to_vec())
                        .collect()
                };
                let same = part(d.cpu.read(&out.cpu, 0..n)?) == part(d.gpu.read(&out.gpu, 0..n)?);
                Ok(vec![(if same { 0.0 } else { f64::INFINITY }, 0.0)])
            });
        }
    }
}

fn norms(checks: &mut Checks) {
    let widths: &[usize] = if checks.full() { &[64, 2056, 5120] } else { &[64, 2056] };
    for &width in widths {
        for (n, kind) in [(1, NormKind::ZeroCentred), (16, NormKind::Plain), (33, NormKind::Plain)] {
            let case = format!("{n} x {width} {kind:?}");
            checks.case("rms_norm", case.clone(), |d| {
                let (x, w) = (d.random(n, width, 3.0)?, d.random(1, width, 1.0)?);
                let mut out = d.output(n, width, Dtype::Activation)?;
                d.cpu.rms_norm(&x.cpu, n, &w.cpu, kind, 1e-6, &mut out.cpu)?;
                d.gpu.rms_norm(&x.gpu, n, &w.gpu, kind, 1e-6, &mut out.gpu)?;
                Ok(vec![(d.distance(&out, n)?, BF16)])
            });
            checks.case("add_rms_norm", case.clone(), |d| {
                let (x, w) = (d.random(n, width, 3.0)?, d.random_f32(1, width, 1.0)?);
                let mut sum = d.random(n, width, 3.0)?;
                let mut out = d.output(n, width, Dtype::Activation)?;
                let (cpu, gpu) = (d.cpu, d.gpu);
                cpu.add_rms_norm(&x.cpu, n, &mut sum.cpu, &w.cpu, kind, 1e-6, &mut out.cpu)?;
                gpu.add_rms_norm(&x.gpu, n, &mut sum.gpu, &w.gpu, kind, 1e-6, &mut out.gpu)?;
                Ok(vec![(d.distance(&sum, n)?, BF16), (d.distance(&out, n)?, BF16)])
            });
            checks.case("add", case, |d| {
                let (x, mut sum) = (d.random(n, width, 3.0)?, d.random(n, width, 3.0)?);
                d.cpu.add(&x.cpu, n, &mut sum.cpu)?;
                d.gpu.add(&x.gpu, n, &mut sum.gpu)?;
                Ok(vec![(d.distance(&sum, n)?, BF16)])
            });
        }
    }
}

fn swiglu(checks: &mut Checks) {
    for (n, width) in [(1, 8), (15, 264), (17, 2560)] {
        checks.case("swiglu", format!("{n} x {width}"), |d| {
            let x = d.random(n, 2 * width, 8.0)?;
            let mut out = d.output(n, width, Dtype::Activation)?;
            d.cpu.swiglu(&x.cpu, n, &mut out.cpu)?;
            d.gpu.swiglu(&x.gpu, n, &mut out.gpu)?;
            Ok(vec![(d.distance(&out, n)?, BF16)])
        });
    }
}

fn linear(checks: &mut Checks) {
    let mut shapes = vec![(1, 64, 48), (16, 256, 128), (33, 128, 264)];
    if checks.full() {
        shapes.extend([(16, 5120, 1024), (15, 1024, 5120), (300, 512, 768)]);
    }
    for (n, input, out_width) in shapes {
        for dtype in [Dtype::Activation, Dtype::F32] {
            checks.case("linear", format!("{n} x {input} -> {out_width} {dtype:?}"), |d| {
                let (x, w) = (d.random(n, input, 1.0)?, d.weight(out_width, input)?);
                let mut out = d.output(n, out_width, dtype)?;
                d.cpu.linear(&x.cpu, n, &w.cpu, &mut out.cpu)?;
                d.gpu.linear(&x.gpu, n, &w.gpu, &mut out.gpu)?;
                let tolerance = if dtype == Dtype::F32 { F32 } else { BF16 };
                Ok(vec![(d.distance(&out, n)?, tolerance)])
            });
        }
    }
}

fn gdn_dims(key_heads: usize, value_heads: usize) -> GdnDims {
    GdnDims {
        key_heads,
        value_heads,
        key_dim: 128,
        value_dim: 128,
        conv_kernel: 4,
    }
}

/// Batches for the gated-delta-net operations: rows around the tile sizes, chains and trees.
fn gdn_batches(checks: &Checks) -> Vec<Vec<Shape>> {
    let (chain, tree) = (Shape::chain, Shape::tree);
    let mut all = vec![
        vec![chain(1, 0)],
        vec![chain(2, 7), tree(15, 3), chain(1, 9)],
        vec![tree(16, 20)],
        vec![chain(17, 5), tree(31, 0)],
        vec![tree(33, 2)],
        vec![chain(64, 1), tree(64, 9)],
    ];
    if checks.full() {
        all.extend([vec![chain(16, 0); 8], vec![tree(32, 50); 3], vec![chain(33, 0); 2]]);
    }
    all
}

fn heads(checks: &Checks) -> GdnDims {
    if checks.full() { gdn_dims(16, 48) } else { gdn_dims(2, 4) }
}

fn gdn_prepare(checks: &mut Checks) {
    let dims = heads(checks);
    for shapes in gdn_batches(checks) {
        checks.case("gdn_prepare", format!("{shapes:?}"), |d| {
            let (batch, _, slots) = batch(d, &shapes);
            let (n, heads) = (batch.rows(), dims.value_heads);
            let proj = d.random(n, dims.proj_width(), 4.0)?;
            let conv_w = d.random_f32(dims.conv_channels(), 4, 1.0)?;
            let a_log = d.random_f32(1, heads, 2.0)?;
            let dt_bias = d.random_f32(1, heads, 20.0)?;
            let state = d.random(slots, dims.conv_state_len(), 4.0)?;
            let out = |d: &Devices, width| d.output(n, width, Dtype::F32);
            let (mut cpu, mut gpu) = split(volley_ops::GdnRows {
                q: out(d, dims.key_heads * 128)?,
                k: out(d, dims.key_heads * 128)?,
                v: out(d, dims.value_width())?,
                g: out(d, heads)?,
                beta: out(d, heads)?,
                u: out(d, dims.value_width())?,
            });
            let (c, g) = (d.cpu, d.gpu);
            let (w, a, b, s) = (&conv_w, &a_log, &dt_bias, &state);
            c.gdn_prepare(dims, &proj.cpu, &w.cpu, &a.cpu, &b.cpu, &s.cpu, &batch, &mut cpu)?;
            g.gdn_prepare(dims, &proj.gpu, &w.gpu, &a.gpu, &b.gpu, &s.gpu, &batch, &mut gpu)?;
            let pairs = [
                (cpu.q, gpu.q),
                (cpu.k, gpu.k),
                (cpu.v, gpu.v),
                (cpu.g, gpu.g),
                (cpu.beta, gpu.beta),
            ];
            distances(d, n, pairs)
        });
    }
}

fn distances<const N: usize>(
    d: &Devices,
    n: usize,
    pairs: [(volley_ops_candle::Buf, volley_kernels::Buf); N],
) -> Result<Vec<(f64, f64)>> {
    let pairs = pairs.into_iter().map(|(cpu, gpu)| Pair::new(cpu, gpu));
    pairs
        .map(|pair| Ok((d.distance(&pair, n)?, F32)))
        .collect()
}

fn gdn_verify(checks: &mut Checks) {
    let dims = heads(checks);
    for shapes in gdn_batches(checks) {
        checks.case("gdn_verify", format!("{shapes:?}"), |d| {
            let (batch, _, slots) = batch(d, &shapes);
            let n = batch.rows();
            let (mut cpu, mut gpu) = split(d.gdn_rows(n, dims.key_heads, dims.value_heads)?);
            let state = d.random_f32(slots, dims.state_len(), 0.5)?;
            let mut out = d.output(n, dims.value_width(), Dtype::Activation)?;
            d.cpu.gdn_verify(dims, &mut cpu, &batch, &state.cpu, &mut out.cpu)?;
            d.gpu.gdn_verify(dims, &mut gpu, &batch, &state.gpu, &mut out.gpu)?;
            let mut outputs = distances(d, n, [(cpu.u, gpu.u)])?;
            outputs.push((d.distance(&out, n)?, BF16));
            Ok(outputs)
        });
    }
}

/// Some kept rows for each segment: all, none, or a path.
fn keep(d: &mut Devices, batch: &Batch) -> Keep {
    let segments = batch.segments.iter().enumerate();
    segments
        .map(|(i, segment)| match (i % 3, &segment.parents) {
            (0, None) => (0..segment.rows.len() as u32).collect(),
            (1, _) if i % 2 == 0 => vec![],
            _ => path(d, segment),
        })
        .collect()
}

fn gdn_commit(checks: &mut Checks) {
    let dims = heads(checks);
    for shapes in gdn_batches(checks) {
        checks.case("gdn_commit", format!("{shapes:?}"), |d| {
            let (batch, _, slots) = batch(d, &shapes);
            let keep = keep(d, &batch);
            let n = batch.rows();
            let mut rows = d.gdn_rows(n, dims.key_heads, dims.value_heads)?;
            rows.u = d.random_f32(n, dims.value_width(), 1.0)?;
            let (cpu, gpu) = split(rows);
            let mut state = d.random_f32(slots, dims.state_len(), 0.5)?;
            d.cpu.gdn_commit(dims, &cpu, &batch, &keep, &mut state.cpu)?;
            d.gpu.gdn_commit(dims, &gpu, &batch, &keep, &mut state.gpu)?;
            Ok(vec![(d.distance(&state, slots)?, F32)])
        });
    }
}

fn gdn_prefill(checks: &mut Checks) {
    let dims = heads(checks);
    let chain = Shape::chain;
    let mut all = vec![
        vec![chain(1, 0)],
        vec![chain(64, 0), chain(63, 5)],
        vec![chain(65, 0), chain(17, 4), chain(200, 30)],
    ];
    if checks.full() {
        all.extend([vec![chain(1000, 0)], vec![chain(300, 9); 3]]);
    }
    for shapes in all {
        checks.case("gdn_prefill", format!("{shapes:?}"), |d| {
            let (batch, _, slots) = batch(d, &shapes);
            let n = batch.rows();
            let (cpu, gpu) = split(d.gdn_rows(n, dims.key_heads, dims.value_heads)?);
            let mut state = d.random_f32(slots, dims.state_len(), 0.5)?;
            let mut out = d.output(n, dims.value_width(), Dtype::Activation)?;
            d.cpu.gdn_prefill(dims, &cpu, &batch, &mut state.cpu, &mut out.cpu)?;
            d.gpu.gdn_prefill(dims, &gpu, &batch, &mut state.gpu, &mut out.gpu)?;
            Ok(vec![(d.distance(&state, slots)?, F32), (d.distance(&out, n)?, BF16)])
        });
    }
}

fn conv_commit(checks: &mut Checks) {
    let dims = heads(checks);
    for shapes in gdn_batches(checks) {
        checks.case("conv_commit", format!("{shapes:?}"), |d| {
            let (batch, _, slots) = batch(d, &shapes);
            let keep = keep(d, &batch);
            let proj = d.random(batch.rows(), dims.proj_width(), 4.0)?;
            let mut state = d.random(slots, dims.conv_state_len(), 4.0)?;
            d.cpu.conv_commit(dims, &proj.cpu, &batch, &keep, &mut state.cpu)?;
            d.gpu.conv_commit(dims, &proj.gpu, &batch, &keep, &mut state.gpu)?;
            Ok(vec![(d.distance(&state, slots)?, 0.0)])
        });
    }
}

fn gated_norm(checks: &mut Checks) {
    let dims = heads(checks);
    for n in [1, 15, 33] {
        checks.case("gated_norm", format!("{n} rows"), |d| {
            let x = d.random(n, dims.value_width(), 0.1)?;
            let proj = d.random(n, dims.proj_width(), 4.0)?;
            let w = d.random_f32(1, 128, 1.0)?;
            let mut out = d.output(n, dims.value_width(), Dtype::Activation)?;
            let (cpu, gpu) = (d.cpu, d.gpu);
            cpu.gated_norm(dims, &x.cpu, &proj.cpu, n, &w.cpu, 1e-6, &mut out.cpu)?;
            gpu.gated_norm(dims, &x.gpu, &proj.gpu, n, &w.gpu, 1e-6, &mut out.gpu)?;
            Ok(vec![(d.distance(&out, n)?, BF16)])
        });
    }
}

/// The target's attention (head 256, gated, a quarter rotated) and the drafter's (head 128).
fn attention_dims(checks: &Checks) -> [AttentionDims; 2] {
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

fn rope(d: &Devices, dims: AttentionDims) -> Result<(RopeTable<volley_ops_candle::Buf>, RopeTable<volley_kernels::Buf>)> {
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

/// Keys and values of every token of the batch are read back through attention of one row each
/// would be slow; instead the caches are compared where attention sees them: see `attention`.
fn attention_prepare(checks: &mut Checks) {
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
                let (q_norm, k_norm) = (d.random(1, dims.head_dim, 1.0)?, d.random(1, dims.head_dim, 1.0)?);
                let (rope_cpu, rope_gpu) = rope(d, dims)?;
                let mut q = d.output(n, dims.query_width(), Dtype::Activation)?;
                let mut kv = d.kv(dims.kv(), blocks)?;
                let (c, g) = (d.cpu, d.gpu);
                c.attention_prepare(dims, &proj.cpu, &q_norm.cpu, &k_norm.cpu, &rope_cpu, &batch, &mut q.cpu, &mut kv.cpu)?;
                g.attention_prepare(dims, &proj.gpu, &q_norm.gpu, &k_norm.gpu, &rope_gpu, &batch, &mut q.gpu, &mut kv.gpu)?;
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
                d.cpu.kv_append(dims, &proj.cpu, &k_norm.cpu, &rope_cpu, &batch, &mut kv.cpu)?;
                d.gpu.kv_append(dims, &proj.gpu, &k_norm.gpu, &rope_gpu, &batch, &mut kv.gpu)?;
                seen(d, dims, &batch, &kv)
            });
        }
    }
}

/// What attention of fresh queries makes of two caches.
fn seen(
    d: &mut Devices,
    dims: AttentionDims,
    batch: &Batch,
    kv: &crate::pair::KvPair,
) -> Result<Vec<(f64, f64)>> {
    let n = batch.rows();
    let dims = AttentionDims { gated: false, ..dims };
    let q = d.random(n, dims.query_width(), 2.0)?;
    let mut out = d.output(n, dims.query_width(), Dtype::Activation)?;
    // A window of the rows themselves: the context of these caches is empty.
    let mask = AttentionMask {
        causal: true,
        window: Some(4),
    };
    d.cpu.attention(dims, &q.cpu, &q.cpu, &kv.cpu, mask, batch, &mut out.cpu)?;
    d.gpu.attention(dims, &q.gpu, &q.gpu, &kv.gpu, mask, batch, &mut out.gpu)?;
    Ok(vec![(d.distance(&out, n)?, 2.0 * BF16)])
}

/// A cache filled with `past + rows` tokens of every segment.
fn filled(
    d: &mut Devices,
    dims: AttentionDims,
    batch: &Batch,
    blocks: usize,
) -> Result<crate::pair::KvPair> {
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
                segments: vec![volley_ops::Segment {
                    rows: 0..rows,
                    past,
                    parents: None,
                    ..segment.clone()
                }],
            };
            let proj = d.random(rows, 2 * dims.kv_width(), 1.0)?;
            d.cpu.kv_append(plain, &proj.cpu, &k_norm.cpu, &rope_cpu, &piece, &mut kv.cpu)?;
            d.gpu.kv_append(plain, &proj.gpu, &k_norm.gpu, &rope_gpu, &piece, &mut kv.gpu)?;
        }
    }
    Ok(kv)
}

fn attention(checks: &mut Checks) {
    let (chain, tree) = (Shape::chain, Shape::tree);
    let window = 48;
    let mut cases = vec![
        vec![chain(1, 0)],
        vec![chain(1, 1), tree(15, window - 1)],
        vec![tree(16, window)],
        vec![chain(17, window + 1), chain(31, 130)],
        vec![tree(33, 100)],
        vec![chain(64, 7)],
        vec![chain(90, 3)],
    ];
    if checks.full() {
        cases.extend([
            vec![chain(1, 16_000)],
            vec![tree(64, 4000)],
            vec![chain(16, 16_000)],
            vec![chain(16, 500); 8],
            vec![chain(700, 300)],
        ]);
    }
    let masks = [
        AttentionMask::CAUSAL,
        AttentionMask {
            causal: true,
            window: Some(window),
        },
        AttentionMask {
            causal: false,
            window: None,
        },
        AttentionMask {
            causal: false,
            window: Some(window),
        },
    ];
    for dims in attention_dims(checks) {
        for shapes in &cases {
            for mask in masks {
                let case = format!("head {} {shapes:?} {mask:?}", dims.head_dim);
                checks.case("attention", case, |d| {
                    let (batch, blocks, _) = batch(d, shapes);
                    let n = batch.rows();
                    let kv = filled(d, dims, &batch, blocks)?;
                    // Sharp enough that a wrong key shows.
                    let q = d.random(n, dims.query_width(), 3.0)?;
                    let proj = d.random(n, dims.proj_width(), 2.0)?;
                    let mut out = d.output(n, dims.query_width(), Dtype::Activation)?;
                    d.cpu.attention(dims, &q.cpu, &proj.cpu, &kv.cpu, mask, &batch, &mut out.cpu)?;
                    d.gpu.attention(dims, &q.gpu, &proj.gpu, &kv.gpu, mask, &batch, &mut out.gpu)?;
                    Ok(vec![(d.distance(&out, n)?, 2.0 * BF16)])
                });
            }
        }
    }
}

fn kv_commit(checks: &mut Checks) {
    let (chain, tree) = (Shape::chain, Shape::tree);
    let cases = [vec![tree(16, 9), chain(17, 15), tree(33, 31)], vec![tree(64, 0), tree(15, 40)]];
    for dims in attention_dims(checks) {
        for shapes in &cases {
            checks.case("kv_commit", format!("head {} {shapes:?}", dims.head_dim), |d| {
                let (batch, blocks, _) = batch(d, shapes);
                let keep = keep(d, &batch);
                let mut kv = filled(d, dims, &batch, blocks)?;
                d.cpu.kv_commit(dims.kv(), &batch, &keep, &mut kv.cpu)?;
                d.gpu.kv_commit(dims.kv(), &batch, &keep, &mut kv.gpu)?;
                // The rows as a chain see what was moved.
                let mut chains = batch.clone();
                chains.segments.iter_mut().for_each(|s| s.parents = None);
                seen(d, dims, &chains, &kv)
            });
        }
    }
}
