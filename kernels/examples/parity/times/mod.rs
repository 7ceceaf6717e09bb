//! Times at the shapes of Qwen3.6-27B and its drafter. Operands rotate through more memory than the
//! L2 cache holds; a graph of several launches is replayed and the median of many replays taken.

mod kernels;
mod step;

use serde_json::{Value, json};
use volley_kernels::{Cuda, CudaOps, Driver, Error};
use volley_ops::{AttentionDims, Batch, Dtype, GdnDims, NormKind, Ops, Result, Segment};

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
    ("step", step::steps),
    ("linear", kernels::linear),
    ("norm", kernels::norms),
    ("gdn", kernels::gdn),
    ("gdn_prefill", kernels::gdn_prefill),
    ("attention", kernels::attention),
    ("attention_prefill", kernels::attention_prefill),
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
        let us = self.replays(|| (0..LAUNCHES).try_for_each(|i| run(i % sets)))?;
        self.tell(op, case, us / LAUNCHES as f64, bytes, flop);
        Ok(())
    }

    /// Times `run`, which is long and reads much memory.
    fn time_once(
        &mut self,
        op: &'static str,
        case: String,
        bytes: usize,
        mut run: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        run()?;
        let us = self.replays(run)?;
        self.tell(op, case, us, bytes, 0);
        Ok(())
    }

    /// Microseconds of `run`'s work as a graph, median of the replays.
    fn replays(&self, run: impl FnOnce() -> Result<()>) -> Result<f64> {
        self.cuda.synchronize().map_err(in_cuda)?;
        let graph = self.cuda.capture(|| run().map_err(out_of_cuda));
        let graph = graph.map_err(in_cuda)?;
        self.cuda.replay(&graph).map_err(in_cuda)?;
        let mut times = Vec::with_capacity(REPLAYS);
        for _ in 0..REPLAYS {
            let ms = self.cuda.time(&mut || self.cuda.replay(&graph));
            times.push(f64::from(ms.map_err(in_cuda)?) * 1e3);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[REPLAYS / 2])
    }

    fn tell(&self, op: &str, case: String, us: f64, bytes: usize, flop: usize) {
        (self.tell)(&json!({"op": op, "case": case, "us": us, "bytes": bytes, "flop": flop}));
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
