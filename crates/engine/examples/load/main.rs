//! Load, soak and latency of an engine on the demo pair, on the CPU; prints one JSON record.
//!
//! `cargo run --release -p volley-engine --example load -- SECONDS [PART...]`; the parts are `latency`,
//! `soak` and `streams`, all of them if none is named. SECONDS is how long the streams run.

mod demo;
mod latency;
mod soak;
mod streams;

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let seconds: u64 = args.first().map_or(Ok(30), |text| text.parse())?;
    let wanted = args.get(1..).unwrap_or_default();
    let parts = ["latency", "soak", "streams"];
    if let Some(unknown) = wanted.iter().find(|part| !parts.contains(&part.as_str())) {
        return Err(format!(
            "no part is called {unknown}; there are {}",
            parts.join(", ")
        )
        .into());
    }
    let demo = demo::Demo::open()?;
    let mut rows = Vec::new();
    for part in parts {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == part) {
            continue;
        }
        let mut row = match part {
            "latency" => latency::measure(&demo)?,
            "soak" => soak::measure(&demo)?,
            _ => streams::measure(&demo, Duration::from_secs(seconds))?,
        };
        row["part"] = part.into();
        eprintln!("{row:#}");
        rows.push(row);
    }
    println!("{:#}", record(&args, &rows)?);
    let of = |what: &str| rows.iter().find_map(|row| row[what].as_u64()).unwrap_or(0);
    match ["lost", "mixed"].map(of) {
        [0, 0] => Ok(()),
        _ => Err("streams were lost or mixed".into()),
    }
}

/// What was measured, on what, by which command.
fn record(args: &[String], rows: &[Value]) -> demo::Result<Value> {
    let info = std::fs::read_to_string("/proc/cpuinfo")?;
    let model = info.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| Some(line.split_once(':')?.1.trim()));
    let commit = Command::new("git").args(["rev-parse", "HEAD"]).output();
    let commit = commit.ok().filter(|output| output.status.success());
    let commit = commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let cores = std::thread::available_parallelism()?.get();
    Ok(json!({
        "machine": {"cpu": model, "cores": cores, "gpu": null, "count": 0, "driver": null},
        "commit": commit,
        "command": format!(
            "cargo run --release -p volley-engine --example load -- {}",
            args.join(" ")
        ),
        "debug_assertions": cfg!(debug_assertions),
        "rows": rows,
    }))
}
