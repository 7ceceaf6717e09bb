//! The same data on the CPU, the oracle, and on the device under test.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use volley_kernels::CudaOps;
use volley_ops::{Batch, Dtype, GdnRows, KvDims, Ops, Result, Segment};
use volley_ops_candle::CandleOps;

type CpuBuf = <CandleOps as Ops>::Buf;
type GpuBuf = <CudaOps as Ops>::Buf;

/// Both devices, and the numbers that the inputs are drawn from.
pub struct Devices<'a> {
    pub cpu: &'a CandleOps,
    pub gpu: &'a CudaOps,
    pub rng: ChaCha8Rng,
}

/// One matrix on both devices.
pub struct Pair {
    pub cpu: CpuBuf,
    pub gpu: GpuBuf,
    rows: usize,
}

impl Pair {
    /// Two buffers of equal shape.
    pub fn new(cpu: CpuBuf, gpu: GpuBuf) -> Self {
        let rows = cpu.rows();
        Self { cpu, gpu, rows }
    }
}

/// A weight on both devices.
pub struct WeightPair {
    pub cpu: <CandleOps as Ops>::Weight,
    pub gpu: <CudaOps as Ops>::Weight,
}

/// A cache on both devices.
pub struct KvPair {
    pub cpu: <CandleOps as Ops>::Kv,
    pub gpu: <CudaOps as Ops>::Kv,
}

/// Nearest bf16, so that both devices start from the same number.
fn rounded(x: f32) -> f32 {
    half::bf16::from_f32(x).to_f32()
}

impl Devices<'_> {
    /// A number between -1 and 1.
    pub fn unit(&mut self) -> f32 {
        self.rng.random_range(-1.0..1.0)
    }

    /// Numbers between `-scale` and `scale`.
    pub fn numbers(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n).map(|_| scale * self.unit()).collect()
    }

    pub fn pair(
        &self,
        mut data: Vec<f32>,
        rows: usize,
        width: usize,
        dtype: Dtype,
    ) -> Result<Pair> {
        if dtype == Dtype::Activation {
            data.iter_mut().for_each(|x| *x = rounded(*x));
        }
        Ok(Pair {
            cpu: self.cpu.upload(&data, rows, width, dtype)?,
            gpu: self.gpu.upload(&data, rows, width, dtype)?,
            rows,
        })
    }

    /// Random activations.
    pub fn random(&mut self, rows: usize, width: usize, scale: f32) -> Result<Pair> {
        let data = self.numbers(rows * width, scale);
        self.pair(data, rows, width, Dtype::Activation)
    }

    /// Random f32 values.
    pub fn random_f32(&mut self, rows: usize, width: usize, scale: f32) -> Result<Pair> {
        let data = self.numbers(rows * width, scale);
        self.pair(data, rows, width, Dtype::F32)
    }

    /// An output: NaN in every value, and one row more than will be written.
    pub fn output(&self, rows: usize, width: usize, dtype: Dtype) -> Result<Pair> {
        self.pair(vec![f32::NAN; (rows + 1) * width], rows + 1, width, dtype)
    }

    pub fn weight(&mut self, out: usize, input: usize) -> Result<WeightPair> {
        let data: Vec<f32> = self
            .numbers(out * input, 1.0)
            .into_iter()
            .map(rounded)
            .collect();
        Ok(WeightPair {
            cpu: self.cpu.weight(data.clone(), out, input)?,
            gpu: self.gpu.weight(data, out, input)?,
        })
    }

    pub fn kv(&self, dims: KvDims, blocks: usize) -> Result<KvPair> {
        Ok(KvPair {
            cpu: self.cpu.kv(dims, blocks)?,
            gpu: self.gpu.kv(dims, blocks)?,
        })
    }

    /// Rows of a gated-delta-net layer: unit keys, short queries, gates from strong to none.
    pub fn gdn_rows(
        &mut self,
        rows: usize,
        key_heads: usize,
        value_heads: usize,
    ) -> Result<GdnRows<Pair>> {
        let mut units = |scale: f32| {
            let mut data = self.numbers(rows * key_heads * 128, 1.0);
            for head in data.chunks_exact_mut(128) {
                let length = head.iter().map(|x| x * x).sum::<f32>().sqrt();
                head.iter_mut().for_each(|x| *x *= scale / length);
            }
            data
        };
        let (q, k) = (units(0.0884), units(1.0));
        let g = (0..rows * value_heads).map(|i| match i % 7 {
            0 => 0.0,
            1 => -20.0 * self.rng.random::<f32>(),
            _ => -self.rng.random::<f32>(),
        });
        let g = g.collect();
        let beta = (0..rows * value_heads)
            .map(|_| self.rng.random::<f32>())
            .collect();
        let v = self.numbers(rows * value_heads * 128, 1.0);
        let f32 = Dtype::F32;
        Ok(GdnRows {
            q: self.pair(q, rows, key_heads * 128, f32)?,
            k: self.pair(k, rows, key_heads * 128, f32)?,
            v: self.pair(v, rows, value_heads * 128, f32)?,
            g: self.pair(g, rows, value_heads, f32)?,
            beta: self.pair(beta, rows, value_heads, f32)?,
            u: self.output(rows, value_heads * 128, f32)?,
        })
    }

    /// Relative distance of the first `rows` rows; infinite when a value is not a number or a row
    /// behind them was written.
    pub fn distance(&self, pair: &Pair, rows: usize) -> Result<f64> {
        let expected = self.cpu.read(&pair.cpu, 0..rows)?;
        let got = self.gpu.read(&pair.gpu, 0..rows)?;
        let behind = self.gpu.read(&pair.gpu, rows..pair.rows)?;
        let behind_expected = self.cpu.read(&pair.cpu, rows..pair.rows)?;
        let untouched = behind
            .iter()
            .zip(&behind_expected)
            .all(|(a, b)| a == b || (a.is_nan() && b.is_nan()));
        Ok(if untouched {
            relative(&got, &expected)
        } else {
            f64::INFINITY
        })
    }
}

/// `|got - expected| / |expected|`, infinite for what is not a number.
pub fn relative(got: &[f32], expected: &[f32]) -> f64 {
    let (mut error, mut size) = (0.0, 0.0);
    for (&got, &expected) in got.iter().zip(expected) {
        error += (f64::from(got) - f64::from(expected)).powi(2);
        size += f64::from(expected).powi(2);
    }
    let distance = (error / size.max(1e-30)).sqrt();
    if distance.is_nan() {
        f64::INFINITY
    } else {
        distance
    }
}

/// The rows of the two sides of a pair of layers.
pub fn split(rows: GdnRows<Pair>) -> (GdnRows<CpuBuf>, GdnRows<GpuBuf>) {
    let GdnRows {
        q,
        k,
        v,
        g,
        beta,
        u,
    } = rows;
    (
        GdnRows {
            q: q.cpu,
            k: k.cpu,
            v: v.cpu,
            g: g.cpu,
            beta: beta.cpu,
            u: u.cpu,
        },
        GdnRows {
            q: q.gpu,
            k: k.gpu,
            v: v.gpu,
            g: g.gpu,
            beta: beta.gpu,
            u: u.gpu,
        },
    )
}

/// Shape of one segment of a test batch.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub rows: usize,
    pub past: usize,
    pub tree: bool,
}

impl Shape {
    pub const fn chain(rows: usize, past: usize) -> Self {
        let tree = false;
        Self { rows, past, tree }
    }

    pub const fn tree(rows: usize, past: usize) -> Self {
        let tree = true;
        Self { rows, past, tree }
    }
}

/// A batch of these segments with blocks and slots in no order, and the number of blocks and slots.
pub fn batch(devices: &mut Devices, shapes: &[Shape]) -> (Batch, usize, usize) {
    let needed = |shape: &Shape| (shape.past + shape.rows).div_ceil(16);
    let blocks = shapes.iter().map(needed).sum::<usize>() + 3;
    let slots = shapes.len() + 2;
    let mut free = shuffled(devices, blocks);
    let free_slots = shuffled(devices, slots);
    let mut next = 0;
    let mut segments = Vec::new();
    for (shape, slot) in shapes.iter().zip(free_slots) {
        let parents = shape.tree.then(|| {
            (0..shape.rows as u32)
                .map(|i| {
                    // A spine with branches, now and then a new root.
                    let back = 1 + devices.rng.random_range(0..4u32).saturating_sub(1);
                    i.checked_sub(back)
                })
                .collect()
        });
        segments.push(Segment {
            rows: next..next + shape.rows,
            slot: slot as usize,
            past: shape.past,
            blocks: free.split_off(free.len() - needed(shape)),
            parents,
        });
        next += shape.rows;
    }
    (Batch { segments }, blocks, slots)
}

fn shuffled(devices: &mut Devices, n: usize) -> Vec<u32> {
    let mut all: Vec<u32> = (0..n as u32).collect();
    for i in (1..n).rev() {
        all.swap(i, devices.rng.random_range(0..=i));
    }
    all
}

/// A random path from the context: kept rows of one segment.
pub fn path(devices: &mut Devices, segment: &Segment) -> Vec<u32> {
    let mut kept: Vec<u32> = Vec::new();
    loop {
        let last = kept.last().map(|&row| row as usize);
        let children: Vec<usize> = (0..segment.rows.len())
            .filter(|&row| segment.parent(row) == last)
            .collect();
        if children.is_empty() || devices.rng.random_range(0..12) == 0 {
            return kept;
        }
        kept.push(children[devices.rng.random_range(0..children.len())] as u32);
    }
}
