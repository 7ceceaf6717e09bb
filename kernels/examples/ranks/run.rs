use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use half::bf16;
use serde_json::{Value, json};
use volley_kernels::{Cuda, CudaOps, Driver, Error, Limits, Route, Wiring};
use volley_ops::{Dtype, NormKind, Ops, Result};

type Buf = <CudaOps as Ops>::Buf;

const WIDTH: usize = 5120;
/// Rows of the sums in turn.
const ROWS: [usize; 6] = [1, 16, 2, 1, 64, 5];
/// Sums per graph.
const LAUNCHES: usize = 96;
const REPLAYS: usize = 25;

struct Options {
    gpus: usize,
    sums: usize,
    limit: Duration,
    nccl: bool,
    host: bool,
    json: Option<String>,
}

impl Options {
    fn parse() -> std::result::Result<Self, String> {
        let mut options = Self {
            gpus: 2,
            sums: 1_000_000,
            limit: Duration::from_secs(120),
            nccl: true,
            host: false,
            json: None,
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or(format!("{arg} needs a value"));
            let number = |text: String| text.parse().map_err(|_| format!("{text} is no number"));
            match arg.as_str() {
                "--gpus" => options.gpus = number(value()?)?,
                "--sums" => options.sums = number(value()?)?,
                "--seconds" => options.limit = Duration::from_secs(number(value()?)? as u64),
                "--no-nccl" => options.nccl = false,
                "--host" => options.host = true,
                "--json" => options.json = Some(value()?),
                _ => return Err(format!("{arg} is not known")),
            }
        }
        Ok(options)
    }
}

/// One rank with its device.
struct Rank {
    cuda: Arc<Cuda>,
    ops: CudaOps,
}

fn device_error(error: Error) -> volley_ops::Error {
    volley_ops::Error::Device {
        op: "ranks",
        message: error.to_string(),
    }
}

fn group(devices: &[Arc<Cuda>], route: Route, patience: Duration) -> Result<Vec<Rank>> {
    let drivers = devices.iter().map(|d| Arc::clone(d) as Arc<dyn Driver>);
    let wiring = Wiring {
        route,
        patience,
        ..Wiring::default()
    };
    let ops = CudaOps::group(drivers.collect(), limits(), wiring)?;
    let rank = |(cuda, ops): (&Arc<Cuda>, CudaOps)| Rank {
        cuda: Arc::clone(cuda),
        ops,
    };
    Ok(devices.iter().zip(ops).map(rank).collect())
}

fn limits() -> Limits {
    Limits {
        rows: 4096,
        segments: 8,
        blocks: 1024,
        scratch_bytes: 1 << 20,
    }
}

/// Runs `body` on every rank at once, each on its thread.
fn on_all<T: Send>(
    ranks: &mut [Rank],
    body: impl Fn(&mut Rank) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    std::thread::scope(|scope| {
        let body = &body;
        let threads: Vec<_> = ranks
            .iter_mut()
            .map(|rank| scope.spawn(move || body(rank)))
            .collect();
        let results: Vec<_> = threads
            .into_iter()
            .map(|t| t.join().expect("no panic"))
            .collect();
        results.into_iter().collect()
    })
}

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
fn stress(rank: &mut Rank, sums: usize, limit: Duration) -> Result<usize> {
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
struct Sum {
    rows: usize,
    part: Buf,
    delta: Buf,
    residual: Buf,
    out: Buf,
}

impl Sum {
    fn new(ops: &CudaOps, seed: u64, rows: usize) -> Result<Self> {
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

    fn run(&mut self, ops: &CudaOps, w: &Buf) -> Result<()> {
        ops.zero(&mut self.residual, 0..self.rows)?;
        ops.copy_columns(&self.part, self.rows, &mut self.delta, 0)?;
        self.reduce(ops, w)
    }

    fn reduce(&mut self, ops: &CudaOps, w: &Buf) -> Result<()> {
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
fn skewed(rank: &mut Rank) -> Result<usize> {
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
        if pauses.next() % 4 != 0 {
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

fn capture(cuda: &Cuda, run: impl FnOnce() -> Result<()>) -> Result<volley_kernels::Graph> {
    let mut failure = None;
    let graph = cuda.capture(|| {
        failure = run().err();
        Ok(())
    });
    match failure {
        Some(error) => Err(error),
        None => graph.map_err(device_error),
    }
}

/// Microseconds of one sum in a graph of many: median, and the slowest rank.
fn time(ranks: &mut [Rank], rows: usize, library: bool) -> Result<f64> {
    let medians = on_all(ranks, |rank| {
        rank.ops
            .leave_to_library(if library { 0 } else { usize::MAX });
        let Rank { cuda, ops } = &*rank;
        let w = ops.upload(&[0.0; WIDTH], 1, WIDTH, Dtype::F32)?;
        let mut sum = Sum::new(ops, 5, rows)?;
        sum.run(ops, &w)?;
        let graph = capture(cuda, || (0..LAUNCHES).try_for_each(|_| sum.reduce(ops, &w)))?;
        let mut times: Vec<f64> = Vec::new();
        for _ in 0..REPLAYS {
            let ms = cuda
                .time(&mut || cuda.replay(&graph))
                .map_err(device_error)?;
            times.push(1e3 * f64::from(ms) / LAUNCHES as f64);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    });
    on_all(ranks, |rank| {
        rank.ops.leave_to_library(usize::MAX);
        Ok(())
    })?;
    Ok(medians?.into_iter().fold(0.0, f64::max))
}

/// The others hear of a rank that stays away within their patience.
fn absent(devices: &[Arc<Cuda>], route: Route) -> Result<f64> {
    let mut ranks = group(devices, route, Duration::from_millis(500))?;
    let waits = on_all(&mut ranks, |rank| {
        let ops = &rank.ops;
        let mut x = ops.alloc(1, WIDTH, Dtype::Activation)?;
        ops.zero(&mut x, 0..1)?;
        ops.all_reduce(&mut x, 1)?;
        ops.read(&x, 0..1)?;
        if ops.rank() + 1 == ops.ranks() {
            std::thread::sleep(Duration::from_secs(2));
            return Ok(None);
        }
        let begun = Instant::now();
        ops.all_reduce(&mut x, 1)?;
        match ops.read(&x, 0..1) {
            Err(volley_ops::Error::RankLost { .. }) => Ok(Some(begun.elapsed().as_secs_f64())),
            Err(error) => Err(error),
            Ok(_) => Err(volley_ops::Error::Device {
                op: "absent",
                message: "a sum without one of its ranks succeeded".into(),
            }),
        }
    })?;
    Ok(waits.into_iter().flatten().fold(0.0, f64::max))
}

fn run(options: &Options) -> Result<Value> {
    let open = |ordinal| Cuda::new(ordinal, limits().stage_bytes()).map(Arc::new);
    let begun = Instant::now();
    let devices: Vec<_> = (0..options.gpus)
        .map(open)
        .collect::<std::result::Result<_, _>>()
        .map_err(device_error)?;
    let mut route = Cuda::connect(&devices).map_err(device_error)?;
    if options.host {
        route = Route::Host;
    }
    println!(
        "{} GPUs open in {:.2} s, {route:?}",
        options.gpus,
        begun.elapsed().as_secs_f64()
    );

    println!(
        "a rank that stays away is noticed after {:.2} s",
        absent(&devices, route)?
    );
    let mut nccl = false;
    if options.nccl {
        let begun = Instant::now();
        match Cuda::join_nccl(&devices) {
            Ok(()) => nccl = true,
            Err(error) => println!("{error}"),
        }
        println!(
            "NCCL joined: {nccl}, {:.2} s",
            begun.elapsed().as_secs_f64()
        );
    }
    let mut ranks = group(&devices, route, Duration::from_secs(3))?;
    on_all(&mut ranks, |rank| rank.ops.test_collectives())?;
    println!("self-test passed");

    let mut times = Vec::new();
    for rows in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048] {
        let mailbox_us = time(&mut ranks, rows, false)?;
        let nccl_us = if nccl {
            Some(time(&mut ranks, rows, true)?)
        } else {
            None
        };
        println!(
            "{rows:5} rows, {:6} KB: {mailbox_us:8.2} us, NCCL and norm {nccl_us:8.2?}",
            rows * 10
        );
        times.push(
            json!({"rows": rows, "bytes": 2 * rows * WIDTH, "us": mailbox_us, "nccl_us": nccl_us}),
        );
    }
    let begun = Instant::now();
    let skewed = on_all(&mut ranks, skewed)?;
    println!(
        "{} sums in graphs out of step in {:.1} s, none wrong",
        skewed[0],
        begun.elapsed().as_secs_f64()
    );
    let begun = Instant::now();
    let done = on_all(&mut ranks, |rank| stress(rank, options.sums, options.limit))?;
    println!(
        "{} random sums in {:.1} s, no wrong bit",
        done[0],
        begun.elapsed().as_secs_f64()
    );
    Ok(json!({
        "gpus": options.gpus,
        "route": format!("{route:?}"),
        "width": WIDTH,
        "random_sums": done[0],
        "skewed_sums": skewed[0],
        "wrong": 0,
        "rows": times,
    }))
}

pub fn main() -> ExitCode {
    let options = match Options::parse() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(record) => {
            if let Some(path) = &options.json {
                if let Err(error) = std::fs::write(path, format!("{record:#}\n")) {
                    eprintln!("{path}: {error}");
                    return ExitCode::FAILURE;
                }
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("failed: {error}");
            ExitCode::FAILURE
        }
    }
}
