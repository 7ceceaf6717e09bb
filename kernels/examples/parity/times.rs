//! Times at the shapes of Qwen3.6-27B and its drafter. Operands rotate through more memory than the
//! L2 cache holds; a graph of several launches is replayed and the median of many replays taken.

use serde_json::{Value, json};
use volley_kernels::{Cuda, CudaOps, Driver, Error, LinearKernel};
use volley_ops::{
    AttentionDims, AttentionMask, Batch, Dtype, GdnDims, GdnRows, Keep, NormKind, Ops, Result,
    RopeTable, Segment,
};

type Buf = <CudaOps as Ops>::Buf;
type Weight = <CudaOps as Ops>::Weight;

/// Launches per graph, and replays.
const LAUNCHES: usize = 24;
const REPLAYS: usize = 15;
/// Memory that operands rotate through.
const ROTATION_BYTES: usize = 256 << 20;

pub struct Clock<'a> {
    cuda: &'a Cuda,
    gpu: &'a CudaOps,
    /// Told of every time at once: the process may not live to the end.
    tell: fn(&Value),
    noise: Vec<f32>,
}

/// A family's times, by name.
type Time = fn(&mut Clock) -> Result<()>;

pub const ALL: &[(&str, Time)] = &[
    ("linear", linear),
    ("norm", norms),
    ("gdn", gdn),
    ("gdn_prefill", gdn_prefill),
    ("attention", attention),
    ("attention_prefill", attention_prefill),
];

const GDN: GdnDims = GdnDims {
    key_heads: 16,
    value_heads: 48,
    key_dim: 128,
    value_dim: 128,
    conv_kernel: 4,
};

const TARGET: AttentionDims = AttentionDims {
    heads: 24,
    kv_heads: 4,
    head_dim: 256,
    rotary_dim: 64,
    gated: true,
    norm: NormKind::ZeroCentred,
    eps: 1e-6,
};

const DRAFTER: AttentionDims = AttentionDims {
    heads: 32,
    kv_heads: 8,
    head_dim: 128,
    rotary_dim: 128,
    gated: false,
    norm: NormKind::Plain,
    eps: 1e-6,
};

fn in_cuda(error: Error) -> volley_ops::Error {
    volley_ops::Error::Device {
        op: "time",
        message: error.to_string(),
    }
}

fn out_of_cuda(error: volley_ops::Error) -> Error {
    Error::Call {
        call: "operation",
        message: error.to_string(),
    }
}

impl<'a> Clock<'a> {
    pub fn new(cuda: &'a Cuda, gpu: &'a CudaOps, tell: fn(&Value)) -> Self {
        let mut state = 1u32;
        let noise = (0..1 << 20).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        });
        Self {
            cuda,
            gpu,
            tell,
            noise: noise.collect(),
        }
    }

    fn numbers(&self, n: usize, scale: f32) -> Vec<f32> {
        let noise = self.noise.iter().cycle().take(n);
        noise.map(|x| scale * x).collect()
    }

    fn buf(&self, rows: usize, width: usize, dtype: Dtype) -> Result<Buf> {
        self.gpu
            .upload(&self.numbers(rows * width, 1.0), rows, width, dtype)
    }

    fn weight(&self, out: usize, input: usize) -> Result<Weight> {
        self.gpu.weight(self.numbers(out * input, 0.02), out, input)
    }

    /// Times `run(i)` for operand set `i % sets`; `bytes` and `flop` are those of one launch.
    fn time(
        &mut self,
        op: &'static str,
        case: String,
        sets: usize,
        bytes: usize,
        flop: usize,
        mut run: impl FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        // The first run copies tables and chooses algorithms.
        for set in 0..sets {
            run(set)?;
        }
        self.cuda.synchronize().map_err(in_cuda)?;
        let graph = self
            .cuda
            .capture(|| {
                (0..LAUNCHES)
                    .try_for_each(|i| run(i % sets))
                    .map_err(out_of_cuda)
            })
            .map_err(in_cuda)?;
        self.cuda.replay(&graph).map_err(in_cuda)?;
        let mut times = Vec::with_capacity(REPLAYS);
        for _ in 0..REPLAYS {
            let ms = self
                .cuda
                .time(&mut || self.cuda.replay(&graph))
                .map_err(in_cuda)?;
            times.push(f64::from(ms) * 1e3 / LAUNCHES as f64);
        }
        times.sort_by(f64::total_cmp);
        let us = times[REPLAYS / 2];
        (self.tell)(&json!({"op": op, "case": case, "us": us, "bytes": bytes, "flop": flop}));
        Ok(())
    }
}

/// Operand sets so that they exceed the cache together.
fn sets(bytes: usize) -> usize {
    ROTATION_BYTES.div_ceil(bytes).clamp(1, LAUNCHES)
}

fn batch(segments: usize, rows: usize, past: usize, tree: bool) -> Batch {
    let blocks = (past + rows).div_ceil(16);
    let segment = |i: usize| Segment {
        rows: i * rows..(i + 1) * rows,
        slot: i,
        past,
        blocks: (0..blocks).map(|b| (i * blocks + b) as u32).collect(),
        parents: tree.then(|| (0..rows as u32).map(|r| r.checked_sub(1 + r % 2)).collect()),
    };
    Batch {
        segments: (0..segments).map(segment).collect(),
    }
}

fn linear(clock: &mut Clock) -> Result<()> {
    let gpu = clock.gpu;
    let shapes = [
        ("gdn in", 5120, GDN.proj_width(), Dtype::Activation),
        ("gdn out, attention out", 6144, 5120, Dtype::Activation),
        ("attention in", 5120, TARGET.proj_width(), Dtype::Activation),
        ("gate, up", 5120, 34_816, Dtype::Activation),
        ("down", 17_408, 5120, Dtype::Activation),
        ("lm_head", 5120, 248_320, Dtype::F32),
    ];
    for (name, input, output, dtype) in shapes {
        let weights = (0..sets(2 * input * output))
            .map(|_| clock.weight(output, input))
            .collect::<Result<Vec<_>>>()?;
        let rows: &[usize] = if output > 100_000 {
            &[1, 16]
        } else {
            &[1, 16, 32, 64, 2048]
        };
        for &n in rows {
            let x = clock.buf(n, input, Dtype::Activation)?;
            let mut out = gpu.alloc(n, output, dtype)?;
            let bytes = 2 * (input * output + n * input + n * output);
            let flop = 2 * n * input * output;
            for (op, kernel) in [
                ("linear, own", LinearKernel::Own),
                ("linear, cuBLASLt", LinearKernel::Library),
            ] {
                if kernel == LinearKernel::Own && n > 64 {
                    continue;
                }
                gpu.choose_linear(kernel);
                let case = format!("{name}: {n} x {input} -> {output}");
                clock.time(op, case, weights.len(), bytes, flop, |set| {
                    gpu.linear(&x, n, &weights[set], &mut out)
                })?;
            }
        }
    }
    Ok(())
}

fn norms(clock: &mut Clock) -> Result<()> {
    let gpu = clock.gpu;
    for n in [1, 16, 2048] {
        let (x, w) = (
            clock.buf(n, 5120, Dtype::Activation)?,
            clock.buf(1, 5120, Dtype::Activation)?,
        );
        let (mut residual, mut out) = (
            clock.buf(n, 5120, Dtype::Activation)?,
            clock.buf(n, 5120, Dtype::Activation)?,
        );
        let kind = NormKind::ZeroCentred;
        clock.time(
            "rms_norm",
            format!("{n} x 5120"),
            1,
            n * 5120 * 4,
            0,
            |_| gpu.rms_norm(&x, n, &w, kind, 1e-6, &mut out),
        )?;
        clock.time(
            "add_rms_norm",
            format!("{n} x 5120"),
            1,
            n * 5120 * 8,
            0,
            |_| gpu.add_rms_norm(&x, n, &mut residual, &w, kind, 1e-6, &mut out),
        )?;
        let wide = clock.buf(n, 34_816, Dtype::Activation)?;
        let mut narrow = gpu.alloc(n, 17_408, Dtype::Activation)?;
        clock.time(
            "swiglu",
            format!("{n} x 17408"),
            1,
            n * 17_408 * 6,
            0,
            |_| gpu.swiglu(&wide, n, &mut narrow),
        )?;
        let proj = clock.buf(n, GDN.proj_width(), Dtype::Activation)?;
        let (y, head) = (
            clock.buf(n, 6144, Dtype::Activation)?,
            clock.buf(1, 128, Dtype::F32)?,
        );
        let mut normed = gpu.alloc(n, 6144, Dtype::Activation)?;
        clock.time(
            "gated_norm",
            format!("{n} x 6144"),
            1,
            n * 6144 * 6,
            0,
            |_| gpu.gated_norm(GDN, &y, &proj, n, &head, 1e-6, &mut normed),
        )?;
    }
    Ok(())
}

fn gdn_rows(clock: &Clock, n: usize) -> Result<GdnRows<Buf>> {
    let key = |scale| {
        clock
            .gpu
            .upload(&clock.numbers(n * 2048, scale), n, 2048, Dtype::F32)
    };
    let value = || clock.buf(n, 6144, Dtype::F32);
    let gate = |from: f32, to: f32| {
        let numbers = clock.numbers(n * 48, 0.5).into_iter();
        let data: Vec<f32> = numbers.map(|x| from + (to - from) * (x + 0.5)).collect();
        clock.gpu.upload(&data, n, 48, Dtype::F32)
    };
    Ok(GdnRows {
        q: key(0.01)?,
        k: key(0.1)?,
        v: value()?,
        g: gate(-1.0, 0.0)?,
        beta: gate(0.0, 1.0)?,
        u: value()?,
    })
}

fn gdn(clock: &mut Clock) -> Result<()> {
    let gpu = clock.gpu;
    let state_bytes = 4 * GDN.state_len();
    for (segments, rows, tree) in [
        (1, 1, false),
        (1, 16, false),
        (1, 16, true),
        (1, 32, true),
        (1, 64, true),
        (8, 1, false),
        (8, 16, false),
    ] {
        let batch = batch(segments, rows, 100, tree);
        let n = batch.rows();
        let case = format!(
            "{segments} x {rows} rows{}",
            if tree { ", tree" } else { "" }
        );
        let mut all = gdn_rows(clock, n)?;
        let sets = sets(segments * state_bytes);
        let mut states = (0..sets)
            .map(|_| clock.buf(segments, GDN.state_len(), Dtype::F32))
            .collect::<Result<Vec<_>>>()?;
        let mut out = gpu.alloc(n, 6144, Dtype::Activation)?;
        let row_bytes = n * (2 * 2048 + 2 * 6144) * 4 + n * 6144 * 2;
        let bytes = segments * state_bytes + row_bytes;
        let flop = 4 * n * GDN.state_len() + 2 * n * rows * 48 * 128 * 3;
        clock.time("gdn_verify", case.clone(), sets, bytes, flop, |set| {
            gpu.gdn_verify(GDN, &mut all, &batch, &states[set], &mut out)
        })?;
        let mut plain = batch.clone();
        plain.segments.iter_mut().for_each(|s| s.parents = None);
        let keep: Keep = vec![(0..rows as u32).collect(); segments];
        let bytes = 2 * segments * state_bytes + n * (2048 + 6144) * 4;
        let flop = 2 * n * GDN.state_len();
        clock.time("gdn_commit", case.clone(), sets, bytes, flop, |set| {
            gpu.gdn_commit(GDN, &all, &plain, &keep, &mut states[set])
        })?;
        let proj = clock.buf(n, GDN.proj_width(), Dtype::Activation)?;
        let conv_w = clock.buf(GDN.conv_channels(), 4, Dtype::F32)?;
        let (a_log, dt_bias) = (clock.buf(1, 48, Dtype::F32)?, clock.buf(1, 48, Dtype::F32)?);
        let mut conv_state = clock.buf(segments, GDN.conv_state_len(), Dtype::Activation)?;
        let bytes = n * (GDN.proj_width() * 2 + GDN.conv_channels() * 4) + GDN.conv_channels() * 16;
        clock.time("gdn_prepare", case.clone(), 1, bytes, 0, |_| {
            gpu.gdn_prepare(
                GDN,
                &proj,
                &conv_w,
                &a_log,
                &dt_bias,
                &conv_state,
                &batch,
                &mut all,
            )
        })?;
        let bytes = segments * GDN.conv_state_len() * 4;
        clock.time("conv_commit", case, 1, bytes, 0, |_| {
            gpu.conv_commit(GDN, &proj, &plain, &keep, &mut conv_state)
        })?;
    }
    Ok(())
}

fn gdn_prefill(clock: &mut Clock) -> Result<()> {
    let gpu = clock.gpu;
    for (segments, rows) in [(1, 64), (1, 2048), (4, 512)] {
        let batch = batch(segments, rows, 0, false);
        let n = batch.rows();
        let all = gdn_rows(clock, n)?;
        let mut state = clock.buf(segments, GDN.state_len(), Dtype::F32)?;
        let mut out = gpu.alloc(n, 6144, Dtype::Activation)?;
        let bytes = segments * 8 * GDN.state_len() + n * (2 * 2048 + 6144) * 4 + n * 6144 * 2;
        let flop = 6 * n * GDN.state_len() + 2 * n * 64 * 48 * 128 * 3;
        clock.time(
            "gdn_prefill",
            format!("{segments} x {rows} rows"),
            1,
            bytes,
            flop,
            |_| gpu.gdn_prefill(GDN, &all, &batch, &mut state, &mut out),
        )?;
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
    let gpu = clock.gpu;
    let n = batch.rows();
    let segment = &batch.segments[0];
    let (tokens, rows) = (segment.past + segment.rows.len(), segment.rows.len());
    let blocks = batch.segments.iter().map(|s| s.blocks.len()).sum::<usize>();
    let cache_bytes = 4 * blocks * 16 * dims.kv_width();
    let sets = sets(cache_bytes).min(8);
    let half = dims.rotary_dim / 2;
    let inv_freq = gpu.upload(&clock.numbers(half, 0.5), 1, half, Dtype::F32)?;
    let rope = RopeTable {
        inv_freq,
        scale: 1.0,
    };
    let norm = clock.buf(1, dims.head_dim, Dtype::Activation)?;
    let mut caches = (0..sets)
        .map(|_| gpu.kv(dims.kv(), blocks))
        .collect::<Result<Vec<_>>>()?;
    // Every token once, so that no cache is zeros.
    for kv in &mut caches {
        for segment in &batch.segments {
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
                let proj = clock.buf(rows, 2 * dims.kv_width(), Dtype::Activation)?;
                gpu.kv_append(dims, &proj, &norm, &rope, &piece, kv)?;
            }
        }
    }
    let proj = clock.buf(n, dims.proj_width(), Dtype::Activation)?;
    let mut q = clock.buf(n, dims.query_width(), Dtype::Activation)?;
    let mut out = gpu.alloc(n, dims.query_width(), Dtype::Activation)?;
    let seen = mask
        .window
        .map_or(tokens, |window| tokens.min(window + rows));
    let segments = batch.segments.len();
    let bytes = segments * seen * dims.kv_width() * 4 + n * dims.query_width() * 4;
    let average = if mask.causal {
        seen - (rows - 1).min(seen) / 2
    } else {
        seen
    };
    let flop = 4 * n * average * dims.query_width();
    let case = format!("{name}: {segments} x {rows} rows, {} past", segment.past);
    clock.time("attention", case.clone(), sets, bytes, flop, |set| {
        gpu.attention(dims, &q, &proj, &caches[set], mask, batch, &mut out)
    })?;
    let bytes = n * (dims.proj_width() * 2 + (dims.query_width() + 2 * dims.kv_width()) * 2);
    clock.time("attention_prepare", case, sets, bytes, 0, |set| {
        gpu.attention_prepare(
            dims,
            &proj,
            &norm,
            &norm,
            &rope,
            batch,
            &mut q,
            &mut caches[set],
        )
    })
}

fn attention(clock: &mut Clock) -> Result<()> {
    let causal = AttentionMask::CAUSAL;
    for (segments, rows, past, tree) in [
        (1, 1, 512, false),
        (1, 16, 512, false),
        (1, 1, 16_000, false),
        (1, 16, 16_000, false),
        (1, 32, 16_000, true),
        (8, 1, 512, false),
        (8, 16, 512, false),
    ] {
        attend(
            clock,
            "target",
            TARGET,
            causal,
            &batch(segments, rows, past, tree),
        )?;
    }
    let window = AttentionMask {
        causal: true,
        window: Some(2048),
    };
    let both = AttentionMask {
        causal: false,
        window: None,
    };
    for (segments, past) in [(1, 512), (1, 16_000), (8, 512)] {
        attend(
            clock,
            "drafter, window",
            DRAFTER,
            window,
            &batch(segments, 16, past, false),
        )?;
        attend(
            clock,
            "drafter, full",
            DRAFTER,
            both,
            &batch(segments, 16, past, false),
        )?;
    }
    Ok(())
}

fn attention_prefill(clock: &mut Clock) -> Result<()> {
    for past in [0, 6000, 14_000] {
        attend(
            clock,
            "target",
            TARGET,
            AttentionMask::CAUSAL,
            &batch(1, 2048, past, false),
        )?;
    }
    Ok(())
}
