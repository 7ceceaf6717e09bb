//! Random inputs and comparisons.

use candle_core::Device;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use volley_ops::{Batch, Dtype, Ops, Segment};
use volley_ops_candle::{Buf, CandleOps};

pub fn cpu() -> CandleOps {
    CandleOps::single(Device::Cpu)
}

pub struct Random(ChaCha8Rng);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0.random_range(0..n)
    }

    /// From `low..=high`.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        self.0.random_range(low..=high)
    }

    pub fn coin(&mut self) -> bool {
        self.0.random_range(0..2) == 0
    }

    pub fn value(&mut self, low: f32, high: f32) -> f32 {
        self.0.random_range(low..high)
    }

    /// Values around zero, of variance one.
    pub fn values(&mut self, n: usize) -> Vec<f32> {
        let edge = 3.0f32.sqrt();
        (0..n).map(|_| self.value(-edge, edge)).collect()
    }

    pub fn shuffled(&mut self, n: usize) -> Vec<u32> {
        let mut ids: Vec<u32> = (0..n as u32).collect();
        for i in (1..n).rev() {
            ids.swap(i, self.below(i + 1));
        }
        ids
    }

    /// Parents of a random tree of `n` rows whose root is row 0; sometimes a forest on the context.
    pub fn tree(&mut self, n: usize) -> Vec<Option<u32>> {
        let forest = self.below(4) == 0;
        (0..n)
            .map(|i| match i {
                0 => None,
                _ if forest && self.below(4) == 0 => None,
                // Mostly deep: real drafts are.
                _ => Some(self.between(i.saturating_sub(3), i - 1) as u32),
            })
            .collect()
    }

    /// A random path from the context, possibly empty.
    pub fn path(&mut self, segment: &Segment) -> Vec<u32> {
        let n = segment.rows.len();
        let end = self.below(n + 1);
        let mut path: Vec<u32> = match end.checked_sub(1) {
            None => Vec::new(),
            Some(end) => std::iter::successors(Some(end), |&row| segment.parent(row))
                .map(|row| row as u32)
                .collect(),
        };
        path.reverse();
        path
    }
}

pub fn upload(ops: &CandleOps, data: &[f32], width: usize) -> Buf {
    ops.upload(data, data.len() / width, width, Dtype::F32)
        .unwrap()
}

pub fn alloc(ops: &CandleOps, rows: usize, width: usize) -> Buf {
    let mut buf = ops.alloc(rows, width, Dtype::F32).unwrap();
    // What was there before must not matter.
    buf = ops
        .upload(&vec![f32::NAN; rows * width], rows, buf.width(), Dtype::F32)
        .unwrap();
    buf
}

pub fn zeros(ops: &CandleOps, rows: usize, width: usize) -> Buf {
    ops.upload(&vec![0.0; rows * width], rows, width, Dtype::F32)
        .unwrap()
}

pub fn read(ops: &CandleOps, buf: &Buf, rows: usize) -> Vec<f32> {
    ops.read(buf, 0..rows).unwrap()
}

pub fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

pub fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Largest difference over the largest value.
pub fn relative_error(got: &[f32], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    let largest = want.iter().fold(1e-30f64, |m, x| m.max(x.abs()));
    let differences = got
        .iter()
        .zip(want)
        .map(|(&g, &w)| (f64::from(g) - w).abs());
    // A NaN must not pass for a small difference.
    differences.fold(0.0f64, |m, d| if d.is_nan() { f64::NAN } else { m.max(d) }) / largest
}

#[track_caller]
pub fn assert_close(what: &str, got: &[f32], want: &[f64], tolerance: f64) {
    let error = relative_error(got, want);
    assert!(error < tolerance, "{what}: relative error {error:e}");
}

/// One sequence alone in a pass, without a cache.
pub fn alone(rows: usize, slot: usize, parents: Option<Vec<Option<u32>>>) -> Batch {
    let segment = Segment {
        rows: 0..rows,
        slot,
        past: 0,
        blocks: Vec::new(),
        parents,
    };
    Batch {
        segments: vec![segment],
    }
}

/// Several chains one after another; segment `i` has slot `slots[i]`.
pub fn chains(lengths: &[usize], slots: &[u32]) -> Batch {
    let mut batch = Batch::default();
    for (&len, &slot) in lengths.iter().zip(slots) {
        let start = batch.rows();
        batch.segments.push(Segment {
            rows: start..start + len,
            slot: slot as usize,
            past: 0,
            blocks: Vec::new(),
            parents: None,
        });
    }
    batch
}

pub fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

pub fn norm(x: &[f64], w: &[f64], shift: f64, eps: f64) -> Vec<f64> {
    let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (mean + eps).sqrt();
    x.iter()
        .zip(w)
        .map(|(x, w)| x * scale * (shift + w))
        .collect()
}
