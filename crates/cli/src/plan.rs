//! `volley plan`: what a model takes of the memory of GPUs that need not be there.

use std::io::Write;

use clap::Args;
use serde::Serialize;
use volley_engine::{EngineOptions, MemoryPlan, Room, memory_plan};

use crate::args::values::positive;
use crate::args::{Device, ModelArgs};
use crate::error::Result;
use crate::load::{self, Scheduling};

/// `volley plan`.
#[derive(Args, Clone, Debug)]
pub struct PlanArgs {
    /// Model and drafting.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Memory of each GPU as its driver tells it, in MiB [default: of an RTX A6000].
    #[arg(long, value_name = "MIB", default_value_t = 49_140, value_parser = positive)]
    pub gpu_memory_mib: usize,
    /// Multiprocessors of each GPU [default: of an RTX A6000].
    #[arg(long, value_name = "N", default_value_t = 84, value_parser = positive)]
    pub multiprocessors: usize,
    /// Requests that run at once.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = positive)]
    pub max_num_seqs: usize,
    /// Beginnings of texts of which the states are kept.
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub max_prefix_checkpoints: usize,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// A plan, and what follows from it.
#[derive(Serialize)]
struct Report {
    ranks: usize,
    max_model_len: Option<usize>,
    plan: MemoryPlan,
    /// Sequences of full length that the cache holds at once.
    sequences: usize,
}

/// Counts what a rank would allocate, and gives the cache what is left; an error with the numbers
/// where it does not fit.
pub fn run(args: &PlanArgs) -> Result<()> {
    let scheduling = Scheduling {
        max_running: args.max_num_seqs,
        checkpoints: args.max_prefix_checkpoints,
        ..Scheduling::ALONE
    };
    let model = ModelArgs {
        device: Device::Cpu,
        ..args.model.clone()
    };
    let (options, sources) = load::unloaded(&model, scheduling)?;
    let options = EngineOptions {
        prefill_chunk: load::prefill_chunk(volley_engine::DeviceKind::Cuda),
        ..options
    };
    let memory = (args.gpu_memory_mib << 20) as f64;
    let room = Room {
        available: (memory * options.memory_fraction) as usize,
        multiprocessors: args.multiprocessors,
    };
    let plan = memory_plan(&options, &sources, room)?;
    let report = Report {
        ranks: options.ranks,
        max_model_len: options.max_model_len,
        sequences: plan.sequences(),
        plan,
    };
    let mut out = std::io::stdout().lock();
    if args.json {
        let text = serde_json::to_string(&report).map_err(std::io::Error::from)?;
        writeln!(out, "{text}")?;
        return Ok(());
    }
    writeln!(out, "each of {} GPUs: {plan}", report.ranks)?;
    writeln!(
        out,
        "sequences of {} tokens at once: {}",
        report.max_model_len.unwrap_or(0),
        report.sequences
    )?;
    Ok(())
}
