//! Records: what was measured, on what, by which command.

use std::path::Path;
use std::process::Command;

use serde::Serialize;
use serde_json::{Value, json};

use crate::args::Device;
use crate::error::{Error, Result};

/// Writes `{"machine", "commit", "command", "rows"}` to `path`.
pub fn write<R: Serialize>(path: &Path, device: Device, rows: &[R]) -> Result<()> {
    let record = json!({
        "machine": machine(device),
        "commit": commit(),
        "command": command(),
        "rows": rows,
    });
    let text = format!("{record:#}\n");
    std::fs::write(path, text).map_err(|source| Error::Write {
        path: path.to_path_buf(),
        source,
    })
}

/// The command line, with the program by its name only.
fn command() -> String {
    let arguments = std::env::args().skip(1);
    std::iter::once("volley".to_string())
        .chain(arguments)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Commit of the working folder; null outside a repository.
fn commit() -> Option<String> {
    let output = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_string())
}

fn machine(device: Device) -> Value {
    let gpu = match device {
        Device::Cpu => None,
        Device::Cuda => gpu(),
    };
    let (name, driver) = gpu.unzip();
    let model = std::fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_string())
        });
    json!({
        "cpu": model,
        "cores": std::thread::available_parallelism().ok().map(usize::from),
        "gpu": name,
        "count": usize::from(name.is_some()),
        "driver": driver,
    })
}

/// Name and driver of the first GPU, as the driver's own tool tells them.
fn gpu() -> Option<(String, String)> {
    let query = ["--query-gpu=name,driver_version", "--format=csv,noheader"];
    let output = Command::new("nvidia-smi").args(query).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (name, driver) = text.lines().next()?.split_once(", ")?;
    Some((name.to_string(), driver.to_string()))
}

/// Median of a sample; 0 for an empty one.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

/// Value below which a share of a sample lies (nearest rank); 0 for an empty one.
pub fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (share * values.len() as f64).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::{median, quantile};

    #[test]
    fn quantiles() {
        let mut values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(quantile(&mut values, 0.99), 99.0);
        assert_eq!(quantile(&mut values, 0.5), 50.0);
        assert_eq!(quantile(&mut [7.0], 0.99), 7.0);
        assert_eq!(quantile(&mut [], 0.5), 0.0);
    }

    #[test]
    fn medians() {
        assert_eq!(median(&mut []), 0.0);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
