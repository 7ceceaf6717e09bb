use volley_ops::{Batch, Dtype, Ops, Result, Segment};

use super::KernelTime;
use crate::buf::{Buf, Weight};
use crate::cuda::Cuda;
use crate::driver::Driver;
use crate::error::{Error, in_op};
use crate::rank::CudaOps;

/// Launches per graph, and replays.
const LAUNCHES: usize = 24;
const REPLAYS: usize = 15;
/// Memory that operands rotate through.
const ROTATION_BYTES: usize = 256 << 20;
/// Random numbers that are repeated.
const NUMBERS: usize = 1 << 20;

/// Times kernels on one GPU.
pub struct Clock<'a> {
    cuda: &'a Cuda,
    pub ops: &'a CudaOps,
    tell: &'a mut dyn FnMut(KernelTime),
    numbers: Vec<f32>,
}

/// What one launch does.
pub struct Work {
    pub kernel: &'static str,
    pub case: String,
    pub bytes: usize,
    pub flop: usize,
}

impl<'a> Clock<'a> {
    pub fn new(cuda: &'a Cuda, ops: &'a CudaOps, tell: &'a mut dyn FnMut(KernelTime)) -> Self {
        let mut state = 1u32;
        let numbers = (0..NUMBERS).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        });
        Self {
            cuda,
            ops,
            tell,
            numbers: numbers.collect(),
        }
    }

    /// Numbers between `from` and `to`.
    pub fn numbers(&self, n: usize, from: f32, to: f32) -> Vec<f32> {
        let numbers = self.numbers.iter().cycle().take(n);
        numbers
            .map(|x| from + (to - from) * (x + 1.0) / 2.0)
            .collect()
    }

    /// Numbers between -1 and 1, in f32.
    pub fn floats(&self, rows: usize, width: usize) -> Result<Buf> {
        let numbers = self.numbers(rows * width, -1.0, 1.0);
        self.ops.upload(&numbers, rows, width, Dtype::F32)
    }

    /// Activations between -1 and 1.
    pub fn activations(&self, rows: usize, width: usize) -> Result<Buf> {
        let numbers = self.numbers(rows * width, -1.0, 1.0);
        self.ops.upload(&numbers, rows, width, Dtype::Activation)
    }

    /// As many weights as exceed the cache together.
    pub fn weights(&self, out: usize, input: usize) -> Result<Vec<Weight>> {
        let sets = 0..sets(2 * out * input) as u32;
        let weight = |seed| self.ops.dummy_weight(out, input, seed, 0.02);
        sets.map(weight).collect()
    }

    /// Times `run(i)` for operand set `i % sets` and tells; microseconds.
    pub fn time(
        &mut self,
        work: Work,
        sets: usize,
        mut run: impl FnMut(usize) -> Result<()>,
    ) -> Result<f64> {
        // The first run copies tables and chooses algorithms.
        for set in 0..sets {
            run(set)?;
        }
        let us = self.replays(|| (0..LAUNCHES).try_for_each(|i| run(i % sets)))?;
        let us = us / LAUNCHES as f64;
        (self.tell)(KernelTime {
            kernel: work.kernel,
            case: work.case,
            us,
            bytes: work.bytes,
            flop: work.flop,
        });
        Ok(us)
    }

    /// Microseconds of `run`'s work as a graph, median of the replays.
    fn replays(&self, run: impl FnOnce() -> Result<()>) -> Result<f64> {
        let failed = in_op("time");
        self.cuda.synchronize().map_err(&failed)?;
        let recorded = self.cuda.capture(|| {
            run().map_err(|error| Error::Call {
                call: "operation",
                message: error.to_string(),
            })
        });
        let graph = recorded.map_err(&failed)?;
        self.cuda.replay(&graph).map_err(&failed)?;
        let mut times = Vec::with_capacity(REPLAYS);
        for _ in 0..REPLAYS {
            let ms = self.cuda.time(&mut || self.cuda.replay(&graph));
            times.push(f64::from(ms.map_err(&failed)?) * 1e3);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[REPLAYS / 2])
    }
}

/// Operand sets so that they exceed the cache together.
pub fn sets(bytes: usize) -> usize {
    ROTATION_BYTES.div_ceil(bytes).clamp(1, LAUNCHES)
}

/// Segments of `rows` rows behind `past` tokens; of a tree each row continues one of the two before.
pub fn batch(segments: usize, rows: usize, past: usize, tree: bool) -> Batch {
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
