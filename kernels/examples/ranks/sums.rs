//! Sums of random numbers against what they must be, bit for bit.

use std::time::{Duration, Instant};

use half::bf16;
use volley_kernels::CudaOps;
use volley_ops::{Dtype, NormKind, Ops, Result};

use super::{Buf, LAUNCHES, Rank, WIDTH, capture, device_error};

/// Rows of the sums in turn.
const ROWS: [usize; 6] = [1, 16, 2, 1, 64, 5];

/// Numbers that both host and device draw from (xorshift); bf16 of any sign, magnitudes below 2,
/// small ones and zeros among them.
struct Noise(u64);

impl Noise {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn values(&mut self, n: usize) -> Vec<f32> {
        let mut values = Vec::with_capacity(n + 3);
        while values.len() < n {
            let word = self.next();
            for i in 0..4 {
                let bits = (word >> (16 * i)) as u16 & 0xbfff;
                values.push(bf16::from_bits(bits).to_f32());
            }
        }
        values.truncate(n);
        values
    }
}

/// Random sums of changing sizes until `sums` are done or the time is over; gives how many.
pub fn stress(rank: &mut Rank, sums: usize, limit: Duration) -> Result<usize> {
    const POOL: usize = 96;
    let ops = &rank.ops;
    let (own, ranks) = (ops.rank(), ops.ranks());
    let begun = Instant::now();
    let most = ROWS.into_iter().max().unwrap_or(1);
    let mut x = ops.alloc(most, WIDTH, Dtype::Activation)?;
    let mut line = ops.alloc(1, POOL * WIDTH, Dtype::Activation)?;
    let (mut done, mut batch) = (0, 0u64);
    loop {
        let parts: Vec<Vec<f32>> = (0..ranks as u64)
            .map(|rank| Noise::new(batch * 64 + rank + 1).values(POOL * WIDTH))
            .collect();
        let pool = ops.upload(&parts[own], POOL, WIDTH, Dtype::Activation)?;
        // Rows of `pool` that each sum takes; the first of them is looked at.
        let mut firsts = Vec::new();
        for i in 0..POOL {
            let rows = ROWS[(i + batch as usize) % ROWS.len()];
            let index: Vec<u32> = (0..rows).map(|r| ((i + 7 * r) % POOL) as u32).collect();
            ops.gather(&pool, &index, &mut x)?;
            ops.all_reduce(&mut x, rows)?;
            ops.copy_columns(&x, 1, &mut line, i * WIDTH)?;
            firsts.push(index[0]);
            // Every row of the last sum.
            if i + 1 == POOL {
                let got = ops.read(&x, 0..rows)?;
                for (row, got) in index.iter().zip(got.chunks(WIDTH)) {
                    expect(&parts, *row, None, got)?;
                }
            }
        }
        let got = ops.read(&line, 0..1)?;
        for (row, got) in firsts.iter().zip(got.chunks(WIDTH)) {
            expect(&parts, *row, None, got)?;
        }
        done += POOL;
        batch += 1;
        let over = [f32::from(begun.elapsed() > limit)];
        if done >= sums || agreed(ops, &over)? {
            return Ok(done);
        }
    }
}

/// Whether any rank says so; the same on all.
fn agreed(ops: &CudaOps, own: &[f32]) -> Result<bool> {
    let x = ops.upload(own, 1, 1, Dtype::F32)?;
    let mut all = ops.alloc(1, ops.ranks(), Dtype::F32)?;
    ops.all_gather(&x, 1, &mut all)?;
    Ok(ops.read(&all, 0..1)?.contains(&1.0))
}

/// `start` is what the sum is added to: none, or the zeros of a residual (`-0 + 0` is `0`).
fn expect(parts: &[Vec<f32>], row: u32, start: Option<f32>, got: &[f32]) -> Result<()> {
    let first = row as usize * WIDTH;
    for (i, got) in got.iter().enumerate() {
        let sum = parts[1..]
            .iter()
            .fold(parts[0][first + i], |sum, part| sum + part[first + i]);
        let want = bf16::from_f32(start.map_or(sum, |start| sum + start)).to_f32();
        if got.to_bits() != want.to_bits() {
            return Err(volley_ops::Error::Device {
                op: "stress",
                message: format!("value {i} of row {row} is {got:e}, expected {want:e}"),
            });
        }
    }
    Ok(())
}

/// Buffers of sums that a graph repeats.
pub struct Sum {
    rows: usize,
    part: Buf,
    delta: Buf,
    residual: Buf,
    out: Buf,
}

impl Sum {
    pub fn new(ops: &CudaOps, seed: u64, rows: usize) -> Result<Self> {
        let own = Noise::new(seed * 64 + ops.rank() as u64 + 1).values(rows * WIDTH);
        let alloc = || ops.alloc(rows, WIDTH, Dtype::Activation);
        Ok(Self {
            rows,
            part: ops.upload(&own, rows, WIDTH, Dtype::Activation)?,
            delta: alloc()?,
            residual: alloc()?,
            out: alloc()?,
        })
    }

    pub fn run(&mut self, ops: &CudaOps, w: &Buf) -> Result<()> {
        ops.zero(&mut self.residual, 0..self.rows)?;
        ops.copy_columns(&self.part, self.rows, &mut self.delta, 0)?;
        self.reduce(ops, w)
    }

    pub fn reduce(&mut self, ops: &CudaOps, w: &Buf) -> Result<()> {
        let kind = NormKind::ZeroCentred;
        let Self {
            delta,
            residual,
            out,
            ..
        } = self;
        ops.reduce_add_rms_norm(delta, self.rows, residual, w, kind, 1e-6, out)
    }
}

/// A graph of sums, replayed with pauses of random length on each rank; every sum is checked.
pub fn skewed(rank: &mut Rank) -> Result<usize> {
    let Rank { cuda, ops } = rank;
    let w = ops.upload(&[0.0; WIDTH], 1, WIDTH, Dtype::F32)?;
    let sum = |i: usize| Sum::new(ops, i as u64, ROWS[i % ROWS.len()]);
    let mut sums: Vec<Sum> = (0..32).map(sum).collect::<Result<_>>()?;
    sums.iter_mut().try_for_each(|sum| sum.run(ops, &w))?;
    let graph = capture(cuda, || {
        sums.iter_mut().try_for_each(|sum| sum.run(ops, &w))
    })?;
    let mut pauses = Noise::new(1000 + ops.rank() as u64);
    let mut outs: Vec<Vec<f32>> = Vec::new();
    for _ in 0..60 {
        std::thread::sleep(Duration::from_micros(pauses.next() % 4000));
        cuda.replay(&graph).map_err(device_error)?;
        if !pauses.next().is_multiple_of(4) {
            cuda.replay(&graph).map_err(device_error)?;
        } else {
            cuda.synchronize().map_err(device_error)?;
            std::thread::sleep(Duration::from_micros(pauses.next() % 4000));
            cuda.replay(&graph).map_err(device_error)?;
        }
        for (i, sum) in sums.iter().enumerate() {
            let ranks = 0..ops.ranks() as u64;
            let parts: Vec<_> = ranks
                .map(|r| Noise::new(i as u64 * 64 + r + 1).values(sum.rows * WIDTH))
                .collect();
            let got = ops.read(&sum.residual, 0..sum.rows)?;
            for (row, got) in got.chunks(WIDTH).enumerate() {
                expect(&parts, row as u32, Some(0.0), got)?;
            }
            let out = ops.read(&sum.out, 0..sum.rows)?;
            match outs.get(i) {
                None => outs.push(out),
                Some(first) if *first == out => {}
                Some(_) => {
                    return Err(volley_ops::Error::Device {
                        op: "skewed",
                        message: format!("norm {i} differs from the first replay's"),
                    });
                }
            }
        }
    }
    Ok(120 * sums.len())
}

/// Sums of random parts that cancel out, in a graph that is repeated: `sums` of them, each a change to
/// the residual that the next one takes back, so that a wrong bit anywhere stays in it.
pub fn repeated(rank: &mut Rank, sums: usize) -> Result<usize> {
    const POOL: usize = 64;
    const REPEATS: usize = 50;
    let Rank { cuda, ops } = rank;
    let w = ops.upload(&[0.0; WIDTH], 1, WIDTH, Dtype::F32)?;
    let most = ROWS.into_iter().max().unwrap_or(1);
    let alloc = |rows| ops.alloc(rows, WIDTH, Dtype::Activation);
    let (mut residual, mut out) = (alloc(most)?, alloc(most)?);
    ops.zero(&mut residual, 0..most)?;
    let rows = |i: usize| ROWS[i / 2 % ROWS.len()];
    let mut deltas: Vec<Buf> = (0..LAUNCHES)
        .map(|i| alloc(rows(i)))
        .collect::<Result<_>>()?;
    let mut sum = |ops: &CudaOps| -> Result<()> {
        for (i, delta) in deltas.iter_mut().enumerate() {
            let kind = NormKind::ZeroCentred;
            ops.reduce_add_rms_norm(delta, rows(i), &mut residual, &w, kind, 1e-6, &mut out)?;
        }
        Ok(())
    };
    let graph = capture(cuda, || sum(ops))?;
    let mut random = Noise::new(77);
    let mut pauses = Noise::new(2000 + ops.rank() as u64);
    let mut done = 0;
    for batch in 0.. {
        if done >= sums {
            break;
        }
        let part = cancelling(
            &mut Noise::new(batch * 16 + 9),
            ops.rank(),
            ops.ranks(),
            POOL,
        );
        let negative: Vec<f32> = part.iter().map(|x| -x).collect();
        let pools = [
            ops.upload(&part, POOL, WIDTH, Dtype::Activation)?,
            ops.upload(&negative, POOL, WIDTH, Dtype::Activation)?,
        ];
        for pair in deltas.chunks_mut(2) {
            let index: Vec<u32> = (0..pair[0].rows())
                .map(|_| (random.next() % POOL as u64) as u32)
                .collect();
            for (delta, pool) in pair.iter_mut().zip(&pools) {
                ops.gather(pool, &index, delta)?;
            }
        }
        for _ in 0..REPEATS {
            if pauses.next().is_multiple_of(16) {
                std::thread::sleep(Duration::from_micros(pauses.next() % 500));
            }
            cuda.replay(&graph).map_err(device_error)?;
        }
        let left = ops.read(&residual, 0..most)?;
        if let Some(i) = left.iter().position(|x| x.to_bits() != 0) {
            return Err(volley_ops::Error::Device {
                op: "repeated",
                message: format!("value {i} is {:e} after {done} sums and a few", left[i]),
            });
        }
        done += REPEATS * LAUNCHES;
    }
    Ok(done)
}

/// Rows of a rank's part: random numbers that the next rank has too, with the other sign; in every
/// eighth column small integers, which sum up to others.
fn cancelling(noise: &mut Noise, rank: usize, ranks: usize, rows: usize) -> Vec<f32> {
    let pairs = ranks / 2;
    let pools: Vec<_> = (0..pairs).map(|_| noise.values(rows * WIDTH)).collect();
    let Some(pool) = pools.get(rank / 2) else {
        return vec![0.0; rows * WIDTH];
    };
    let sign = if rank.is_multiple_of(2) { 1.0 } else { -1.0 };
    let value = |(i, x): (usize, &f32)| match i % 8 {
        7 => (x * 25.0).round() * if rank.is_multiple_of(2) { 1.0 } else { 1.5 },
        _ => sign * x,
    };
    pool.iter().enumerate().map(value).collect()
}
