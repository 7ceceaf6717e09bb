//! Records: what was measured, on what, by which command.

use std::path::Path;
use std::process::Command;

use serde::Serialize;
use serde_json::{Value, json};
use volley_engine::DeviceKind;

use crate::error::{Error, Result};

/// Writes `{"machine", "commit", "command", "rows"}` to `path`.
pub fn write<R: Serialize>(path: &Path, device: DeviceKind, rows: &[R]) -> Result<()> {
    let record = json!({
        "machine": machine(device),
        "commit": commit(),
        "command": command(),
        "rows": rows,
    });
    write_file(path, format!("{record:#}\n").as_bytes())
}

/// Writes a file.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).map_err(|source| Error::Write {
        path: path.to_path_buf(),
        source,
    })
}

/// The command line, with the program by its name only and without keys.
fn command() -> String {
    spelled(std::env::args().skip(1))
}

fn spelled(arguments: impl Iterator<Item = String>) -> String {
    const SECRET: &str = "--api-key";
    let mut line = "volley".to_string();
    let mut is_secret = false;
    for argument in arguments {
        let flag = argument.replace('_', "-");
        let shown = match flag.split_once('=') {
            _ if is_secret => "...",
            Some((SECRET, _)) => "--api-key=...",
            _ => &argument,
        };
        line = format!("{line} {shown}");
        is_secret = flag == SECRET;
    }
    line
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

fn machine(device: DeviceKind) -> Value {
    let gpus = match device {
        DeviceKind::Cuda => gpus(),
        _ => None,
    };
    let Gpus {
        name,
        driver,
        count,
    } = gpus.unwrap_or_default();
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
        "count": count,
        "driver": driver,
    })
}

/// The machine's GPUs.
#[derive(Debug, Default, PartialEq)]
struct Gpus {
    /// Of the first.
    name: Option<String>,
    driver: Option<String>,
    count: usize,
}

impl Gpus {
    /// From lines of names and driver versions.
    fn read(text: &str) -> Option<Self> {
        let (name, driver) = text.lines().next()?.split_once(", ")?;
        Some(Self {
            name: Some(name.to_string()),
            driver: Some(driver.to_string()),
            count: text.lines().count(),
        })
    }
}

/// As the driver's own tool tells them.
fn gpus() -> Option<Gpus> {
    let query = ["--query-gpu=name,driver_version", "--format=csv,noheader"];
    let output = Command::new("nvidia-smi").args(query).output().ok()?;
    Gpus::read(&String::from_utf8(output.stdout).ok()?)
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
    use super::{Gpus, median, quantile, spelled};

    #[test]
    fn keys_stay_out_of_records() {
        for (line, kept) in [
            (
                "bench serve x --api-key sk-1 --rate 2",
                "bench serve x --api-key ... --rate 2",
            ),
            (
                "bench serve x --api_key=sk-1",
                "bench serve x --api-key=...",
            ),
            ("bench step --context 5", "bench step --context 5"),
        ] {
            let arguments = line.split(' ').map(str::to_owned);
            assert_eq!(spelled(arguments), format!("volley {kept}"));
        }
    }

    #[test]
    fn all_gpus_are_counted() {
        let gpus = Gpus::read("NVIDIA H200, 580.159.04\nNVIDIA H200, 580.159.04\n").unwrap();
        assert_eq!(gpus.name.as_deref(), Some("NVIDIA H200"));
        assert_eq!(gpus.driver.as_deref(), Some("580.159.04"));
        assert_eq!(gpus.count, 2);
        assert_eq!(Gpus::read(""), None);
    }

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
