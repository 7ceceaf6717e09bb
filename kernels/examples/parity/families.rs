//! One process per family of kernels.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use volley_kernels::{Cuda, CudaOps, Limits, load_libraries};
use volley_ops_candle::CandleOps;

use crate::checks::{ALL, Checks, Outcome, Scale, goldens};
use crate::pair::Devices;
use crate::report::print;

/// Longest that a family may take.
const MOST: Duration = Duration::from_secs(100);
/// Families at a time.
const AT_A_TIME: usize = 13;

#[derive(Clone, Default)]
struct Arguments {
    json: Option<String>,
    only: Option<String>,
    small: bool,
    libraries: Option<String>,
    goldens: Option<String>,
    gpu: usize,
    child: Option<String>,
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed = Arguments::default();
    let mut rest = std::env::args().skip(1);
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--json" => parsed.json = Some(value()?),
            "--only" => parsed.only = Some(value()?),
            "--libraries" => parsed.libraries = Some(value()?),
            "--goldens" => parsed.goldens = Some(value()?),
            "--small" => parsed.small = true,
            "--gpu" => parsed.gpu = value()?.parse().map_err(|e| format!("--gpu: {e}"))?,
            "--child" => parsed.child = Some(value()?),
            _ => return Err(format!("unknown argument {argument}")),
        }
    }
    Ok(parsed)
}

pub fn main() -> ExitCode {
    match arguments().and_then(|arguments| {
        if let Some(folder) = &arguments.libraries {
            load_libraries(Path::new(folder)).map_err(|error| error.to_string())?;
        }
        match &arguments.child {
            Some(family) => child(&arguments, family).map(|()| true),
            None => parent(&arguments),
        }
    }) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// Runs all families and reports; whether all checks passed.
fn parent(arguments: &Arguments) -> Result<bool, String> {
    let begun = Instant::now();
    // Says what is missing before a dozen processes do.
    let machine = Cuda::new(arguments.gpu, 1024)
        .and_then(|cuda| cuda.name())
        .map_err(|error| error.to_string())?;
    let wanted = |name: &str| arguments.only.as_deref().is_none_or(|only| only == name);
    let names = ALL.iter().map(|(name, _)| *name);
    let names: Vec<&str> = names.filter(|name| wanted(name)).collect();
    let mut records = Vec::new();
    for group in names.chunks(AT_A_TIME) {
        let running: Vec<_> = group
            .iter()
            .map(|name| {
                let (arguments, name) = (arguments.clone(), (*name).to_string());
                std::thread::spawn(move || run(&arguments, &name))
            })
            .collect();
        for family in running {
            let family = family.join().map_err(|_| "a family's thread panicked")?;
            records.extend(family);
        }
    }
    let passed = print(&machine, &records);
    println!("{:.0} s", begun.elapsed().as_secs_f64());
    if let Some(path) = &arguments.json {
        let record = json!({"machine": machine, "rows": records});
        std::fs::write(path, format!("{record:#}\n")).map_err(|e| format!("{path}: {e}"))?;
    }
    Ok(passed)
}

/// Runs one family in a process of its own; a process that fails adds a record that says so.
fn run(arguments: &Arguments, family: &str) -> Vec<Value> {
    let begun = Instant::now();
    let failure = |message: String| json!({"family": family, "failure": message});
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return vec![failure(error.to_string())],
    };
    let spawned = Command::new(program)
        .args(["--child", family, "--gpu", &arguments.gpu.to_string()])
        .args(arguments.small.then_some("--small"))
        .args(folder("--libraries", &arguments.libraries))
        .args(folder("--goldens", &arguments.goldens))
        .stdout(Stdio::piped())
        .spawn();
    let mut process = match spawned {
        Ok(process) => process,
        Err(error) => return vec![failure(error.to_string())],
    };
    let output = process
        .stdout
        .take()
        .expect("stdout is piped: this is a bug");
    let reader = std::thread::spawn(move || {
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        lines
            .filter_map(|line| serde_json::from_str(&line).ok())
            .collect::<Vec<Value>>()
    });
    let status = loop {
        match process.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) if begun.elapsed() > MOST => {
                _ = process.kill();
                _ = process.wait();
                break Err(format!("stopped after {} s", MOST.as_secs()));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(20)),
            Err(error) => break Err(error.to_string()),
        }
    };
    let mut records = reader.join().unwrap_or_default();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => records.push(failure(status.to_string())),
        Err(message) => records.push(failure(message)),
    }
    eprintln!(
        "{family}: {} records, {:.1} s",
        records.len(),
        begun.elapsed().as_secs_f64()
    );
    records
}

/// A folder as it was given, if it was.
fn folder<'a>(name: &'a str, given: &'a Option<String>) -> impl Iterator<Item = &'a str> {
    given.iter().flat_map(move |folder| [name, folder])
}

fn child(arguments: &Arguments, family: &str) -> Result<(), String> {
    let limits = Limits::default();
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    let cuda = Cuda::new(arguments.gpu, limits.stage_bytes()).map_err(|e| failed(&e))?;
    let gpu = CudaOps::with_driver(Arc::new(cuda), limits).map_err(|e| failed(&e))?;
    let (_, run) = ALL
        .iter()
        .find(|(known, _)| *known == family)
        .ok_or(format!("unknown family {family}"))?;
    let cpu = CandleOps::single(candle_core::Device::Cpu);
    let mut checks = Checks {
        devices: Devices {
            cpu: &cpu,
            gpu: &gpu,
            rng: ChaCha8Rng::seed_from_u64(7),
        },
        scale: if arguments.small {
            Scale::Small
        } else {
            Scale::Full
        },
        goldens: arguments
            .goldens
            .as_ref()
            .map_or_else(goldens, PathBuf::from),
        outcomes: Vec::new(),
        tell,
    };
    run(&mut checks);
    Ok(())
}

fn tell(outcome: &Outcome) {
    emit(&json!({
        "op": outcome.op,
        "case": outcome.case,
        "error": outcome.error.is_finite().then_some(outcome.error),
        "tolerance": outcome.tolerance,
        "failure": outcome.failure,
        "passed": outcome.passed(),
    }));
}

fn emit(record: &Value) {
    let mut out = std::io::stdout().lock();
    // The parent may be gone; then nobody reads.
    _ = writeln!(out, "{record}");
}
