//! `volley doctor`: the GPUs of this machine, measured, and what they are good for.

use std::io::Write;

use clap::Args;
use serde::Serialize;
use volley_engine::{GpuReport, gpus};
use volley_model::{DrafterConfig, Shard, TargetConfig, Traffic};

use crate::cards;
use crate::error::{Error, Result};

/// Context of the expected step, tokens.
const CONTEXT: usize = 512;

/// `volley doctor`.
#[derive(Args, Clone, Debug)]
pub struct DoctorArgs {
    /// Known model whose step time is told.
    #[arg(default_value = "qwen3.6-27b")]
    pub model: String,
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
    expected: Vec<Expected>,
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
    let report = Report { gpus, expected };
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
    writeln!(
        out,
        "volley bench step {} --load-format dummy --device cuda measures it",
        card.name
    )?;
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
