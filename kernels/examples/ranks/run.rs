mod lost;
mod sums;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use volley_kernels::{Cuda, CudaOps, Driver, Error, Limits, Route, Wiring};
use volley_ops::{Dtype, Ops, Result};

use lost::{absent, left};
use sums::{Sum, repeated, skewed, stress};

type Buf = <CudaOps as Ops>::Buf;

const WIDTH: usize = 5120;
/// Sums per graph.
const LAUNCHES: usize = 96;
const REPLAYS: usize = 25;
/// Random sums whose result the host works out.
const CHECKED: usize = 20_000;

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

/// A size whose time is out of all proportion to its neighbours'.
fn out_of_line(times: &[(usize, f64)]) -> Option<String> {
    let pairs = times.windows(2);
    let far = pairs.filter(|pair| {
        let [(few, fast), (many, slow)] = [pair[0], pair[1]];
        let doublings = (many / few) as f64 / 2.0;
        slow > 3.0 * doublings * fast || fast > 3.0 * slow
    });
    let text = far.map(|pair| format!("{:?} and {:?}", pair[0], pair[1]));
    text.reduce(|a, b| format!("{a}, {b}"))
}

/// First line of what a program says, if it is there.
fn told(program: &str, args: &[&str]) -> Option<String> {
    let output = std::process::Command::new(program).args(args).output();
    let output = output.ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.lines().next()?.to_string())
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

    let absent_s = absent(&devices, route)?;
    let left_s = left(&devices, route)?;
    println!(
        "a rank that stays away is noticed after {absent_s:.2} s (patience 0.5 s), one that leaves \
         after 0.2 s after {left_s:.3} s"
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

    let (mut times, mut line) = (Vec::new(), Vec::new());
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
        line.push((rows, mailbox_us));
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
    let done = on_all(&mut ranks, |rank| stress(rank, CHECKED, options.limit))?;
    println!(
        "{} random sums, each looked at, in {:.1} s, no wrong bit",
        done[0],
        begun.elapsed().as_secs_f64()
    );
    let begun = Instant::now();
    let repeated = on_all(&mut ranks, |rank| repeated(rank, options.sums))?;
    println!(
        "{} random sums in graphs in {:.1} s, no wrong bit",
        repeated[0],
        begun.elapsed().as_secs_f64()
    );
    if let Some(sizes) = out_of_line(&line) {
        return Err(volley_ops::Error::Device {
            op: "times",
            message: format!("microseconds of so many rows are out of line: {sizes}"),
        });
    }
    let facts = json!({
        "route": format!("{route:?}"),
        "width": WIDTH,
        "sums_looked_at": done[0] + skewed[0],
        "sums_in_graphs": repeated[0],
        "wrong": 0,
        "absent_rank_noticed_s": absent_s,
        "left_rank_noticed_s": left_s - 0.2,
    });
    let mut rows = vec![facts];
    rows.extend(times);
    Ok(json!({
        "machine": {
            "gpu": devices[0].name().map_err(device_error)?,
            "count": options.gpus,
            "driver": told("nvidia-smi", &["--query-gpu=driver_version", "--format=csv,noheader"]),
        },
        "commit": told("git", &["rev-parse", "HEAD"]),
        "command": std::env::args().collect::<Vec<_>>().join(" "),
        "rows": rows,
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
            if let Some(path) = &options.json
                && let Err(error) = std::fs::write(path, format!("{record:#}\n"))
            {
                eprintln!("{path}: {error}");
                return ExitCode::FAILURE;
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("failed: {error}");
            ExitCode::FAILURE
        }
    }
}
