//! `volley doctor`: the GPUs of this machine and their links, measured, and what they are good for.

use std::io::Write;
use std::process::Command;

use clap::Args;
use serde::Serialize;
use volley_engine::{GpuReport, LinkReport, gpus, links};
use volley_model::{DrafterConfig, Shard, TargetConfig, Traffic};

use crate::bench;
use crate::cards;
use crate::error::{Error, Result};
use crate::terminal::outln;

/// Context of the expected step, tokens.
const CONTEXT: usize = 512;

/// `volley doctor`.
#[derive(Args, Clone, Debug)]
pub struct DoctorArgs {
    /// Known model whose step time is told.
    #[arg(default_value = "qwen3.6-27b")]
    pub model: String,
    /// Measure the step too, on random weights of the model's shapes.
    #[arg(long, conflicts_with = "json")]
    pub measure: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// What the GPUs need for a step of a model.
#[derive(Debug, Serialize)]
struct Expected {
    model: &'static str,
    /// GPUs that share the model.
    ranks: usize,
    /// Weights of target and drafter on each, bytes.
    weight_bytes: usize,
    /// Whether they fit.
    fits: bool,
    /// Least time of a step without speculation.
    none_ms: f64,
    /// Least time of a step with a DFlash draft.
    dflash_ms: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    gpus: Vec<GpuReport>,
    /// Between the GPUs, if there are several.
    links: Option<LinkReport>,
    /// PCIe generation and width of each GPU now, then at most; NVLink between them, as the driver's
    /// own tool tells them.
    connections: Connections,
    expected: Vec<Expected>,
}

/// What connects the GPUs.
#[derive(Debug, Default, PartialEq, Serialize)]
struct Connections {
    pcie: Vec<String>,
    /// For each pair: the first, the second, and such as NV4 (an NVLink bridge), PIX, PHB, NODE or SYS.
    pairs: Vec<(usize, usize, String)>,
}

impl Connections {
    fn ask() -> Self {
        let query = "--query-gpu=pcie.link.gen.current,pcie.link.width.current,\
                     pcie.link.gen.max,pcie.link.width.max";
        let pcie = told(&[query, "--format=csv,noheader"]);
        Self {
            pcie: pcie.lines().map(pcie_link).collect(),
            pairs: pairs(&told(&["topo", "-m"])),
        }
    }
}

/// What nvidia-smi says; nothing if it is not there.
fn told(args: &[&str]) -> String {
    let output = Command::new("nvidia-smi").args(args).output();
    let output = output.ok().filter(|output| output.status.success());
    output.map_or(String::new(), |output| {
        String::from_utf8_lossy(&output.stdout).into_owned()
    })
}

fn pcie_link(line: &str) -> String {
    let fields: Vec<&str> = line.split(", ").collect();
    match fields[..] {
        [generation, width, most, widest] => {
            format!("PCIe {generation} x{width} (at most {most} x{widest})")
        }
        _ => line.to_string(),
    }
}

/// Pairs of GPUs from the matrix of `nvidia-smi topo -m`.
fn pairs(matrix: &str) -> Vec<(usize, usize, String)> {
    let mut pairs = Vec::new();
    for line in matrix.lines() {
        let mut cells = line.split('\t').map(str::trim);
        let first = cells.next().and_then(|name| name.strip_prefix("GPU"));
        let Some(first) = first.and_then(|number| number.parse::<usize>().ok()) else {
            continue;
        };
        let kinds = ["NV", "PIX", "PXB", "PHB", "NODE", "SYS"];
        for (second, cell) in cells.enumerate() {
            if second > first && kinds.iter().any(|kind| cell.starts_with(kind)) {
                pairs.push((first, second, cell.to_string()));
            }
        }
    }
    pairs
}

/// Looks at every GPU. Without one, or with a driver or library missing, it fails and says why.
pub fn run(args: &DoctorArgs) -> Result<()> {
    let card = cards::find(&args.model).ok_or_else(|| {
        let known: Vec<&str> = cards::CARDS.iter().map(|card| card.name).collect();
        let known = known.join(", ");
        Error::Usage(format!("{} is not known; known are {known}", args.model))
    })?;
    let gpus = gpus()?;
    let mut expected = Vec::new();
    for ranks in [1, gpus.len()] {
        if let Some(gpu) = gpus.first()
            && expected.iter().all(|e: &Expected| e.ranks != ranks)
        {
            expected.extend(expect(card, gpu, ranks)?);
        }
    }
    let report = Report {
        links: links()?,
        connections: Connections::ask(),
        gpus,
        expected,
    };
    let mut out = std::io::stdout().lock();
    if args.json {
        let text = serde_json::to_string_pretty(&report).map_err(std::io::Error::from)?;
        writeln!(out, "{text}")?;
        return Ok(());
    }
    for (i, gpu) in report.gpus.iter().enumerate() {
        writeln!(
            out,
            "GPU {i}: {}, compute capability {}.{}, driver for CUDA {}.{}, {:.1} of {:.1} GB free",
            gpu.name,
            gpu.capability.0,
            gpu.capability.1,
            gpu.driver_cuda.0,
            gpu.driver_cuda.1,
            gpu.free_bytes as f64 / 1e9,
            gpu.total_bytes as f64 / 1e9,
        )?;
        writeln!(
            out,
            "       reads {:.0} GB/s, copies {:.0} GB/s (read and written), measured",
            gpu.read_bandwidth / 1e9,
            gpu.copy_bandwidth / 1e9,
        )?;
    }
    for (i, link) in report.connections.pcie.iter().enumerate() {
        writeln!(out, "GPU {i}: {link}")?;
    }
    for (first, second, kind) in &report.connections.pairs {
        writeln!(out, "GPU {first} and GPU {second}: {kind}")?;
    }
    if let Some(links) = &report.links {
        for link in &links.speeds {
            let speed = match link.speed {
                Some(speed) => format!("copies at {:.1} GB/s", speed / 1e9),
                None => "cannot reach it; see docs/deploy.md, section 2".into(),
            };
            writeln!(out, "GPU {} to GPU {}: {speed}", link.from, link.to)?;
        }
        writeln!(out, "{}", links.sums)?;
    }
    for e in &report.expected {
        writeln!(
            out,
            "{} on {} of them: weights {:.1} GB each, {}; a step behind {CONTEXT} tokens reads for \
             at least {:.2} ms, with a DFlash draft {:.2} ms",
            e.model,
            e.ranks,
            e.weight_bytes as f64 / 1e9,
            if e.fits { "they fit" } else { "too much" },
            e.none_ms,
            e.dflash_ms,
        )?;
    }
    drop(out);
    if !args.measure {
        outln!("--measure tells what a step really takes");
        return Ok(());
    }
    for e in report.expected.iter().filter(|e| e.fits) {
        outln!("{} on {} of them, measured:", e.model, e.ranks);
        bench::step_of(e.model, e.ranks)?;
    }
    Ok(())
}

/// None when so many ranks cannot share the model.
fn expect(card: &'static cards::Card, gpu: &GpuReport, ranks: usize) -> Result<Option<Expected>> {
    let config = TargetConfig::read(&card.target()?)?;
    let drafter = DrafterConfig::read(&card.drafter(&config)?, Some(&config))?;
    let shard = Shard { rank: 0, ranks };
    let (Ok(target), Ok(drafter)) = (config.traffic(shard), drafter.traffic(shard)) else {
        return Ok(None);
    };
    let Traffic {
        weights,
        head,
        kv_per_token,
        states_per_sequence,
    } = target;
    let ms = |bytes: usize| bytes as f64 / gpu.read_bandwidth * 1e3;
    let plain = weights + head + CONTEXT * kv_per_token + 3 * states_per_sequence;
    let draft = drafter.weights + head + CONTEXT * drafter.kv_per_token;
    let table = if config.tie_word_embeddings { 0 } else { head };
    let weight_bytes = weights + head + table + drafter.weights;
    Ok(Some(Expected {
        model: card.name,
        ranks,
        weight_bytes,
        fits: weight_bytes < gpu.free_bytes,
        none_ms: ms(plain),
        dflash_ms: ms(plain + draft),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read_from_the_driver_s_tool() {
        let matrix = "\t\u{1b}[4mGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\u{1b}[0m\n\
                      GPU0\t X \tNV18\t0-31\t0\t\tN/A\nGPU1\tNV18\t X \t0-31\t0\t\tN/A\n\n\
                      Legend:\n";
        assert_eq!(pairs(matrix), [(0, 1, "NV18".to_string())]);
        assert_eq!(pairs(""), []);
        assert_eq!(pcie_link("4, 16, 4, 16"), "PCIe 4 x16 (at most 4 x16)");
    }
}
