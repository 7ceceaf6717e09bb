//! `volley bench start`: from the command to a model that takes requests.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use volley_engine::Engine;

use super::record;
use crate::args::ModelArgs;
use crate::args::values::{new_file, positive};
use crate::error::Result;
use crate::load::{self, Scheduling};
use crate::terminal::outln;

/// `volley bench start`.
#[derive(Args, Clone, Debug)]
pub struct StartArgs {
    /// Model and drafting.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Starts, one after another; files are in the page cache from the second on.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = positive)]
    pub starts: usize,
    /// Where to write the record.
    #[arg(long, value_name = "PATH", value_parser = new_file)]
    pub json: Option<PathBuf>,
}

/// One start.
#[derive(Serialize)]
struct Row {
    model: String,
    /// Target and drafter as they lie on disk, or would.
    weight_bytes: usize,
    /// Headers and configs.
    open_s: f64,
    /// Until the engine takes requests: device, weights, first passes.
    ready_s: f64,
    gb_per_s: f64,
}

/// Starts the engine a few times.
pub fn run(args: &StartArgs) -> Result<()> {
    let mut rows = Vec::with_capacity(args.starts);
    for _ in 0..args.starts {
        let begun = Instant::now();
        let (options, sources) = load::unloaded(&args.model, Scheduling::ALONE)?;
        let weights = [Some(&sources.target), sources.drafter.as_ref()];
        let weight_bytes = weights.into_iter().flatten().map(|w| w.bytes()).sum();
        let open_s = begun.elapsed().as_secs_f64();
        let engine = Engine::start(options, sources)?;
        let ready_s = begun.elapsed().as_secs_f64();
        engine.shutdown();
        let row = Row {
            model: args.model.model.clone(),
            weight_bytes,
            open_s,
            ready_s,
            gb_per_s: weight_bytes as f64 / 1e9 / ready_s,
        };
        outln!(
            "{:.2} GB ready in {ready_s:.2} s, {:.2} GB/s ({open_s:.2} s to open)",
            weight_bytes as f64 / 1e9,
            row.gb_per_s
        );
        rows.push(row);
    }
    match &args.json {
        Some(path) => record::write(path, load::device(args.model.device), &rows),
        None => Ok(()),
    }
}
