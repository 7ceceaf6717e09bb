//! `volley bench step`: what a step costs as it is served, host work included.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;
use volley_engine::{EngineOptions, Meter, MeterCase, MeterSource, Metered, Sources, Speculation};
use volley_model::{DrafterConfig, Shard, TargetConfig};
use volley_speculate::SamplingParams;

use super::floor::{Drafter, Floor};
use super::{progress, record};
use crate::args::ModelArgs;
use crate::args::values::{new_file, positive};
use crate::drafting::{Drafting, Source};
use crate::error::{Error, Result};
use crate::terminal::outln;
use crate::{load, open};

/// `volley bench step`.
#[derive(Args, Clone, Debug)]
pub struct StepArgs {
    /// Model and drafting.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Methods to measure [default: none, and dflash where there is a drafter].
    #[arg(long, value_enum, value_delimiter = ',')]
    pub methods: Vec<Method>,
    /// Prompt tokens of each sequence.
    #[arg(long, value_name = "TOKENS", value_delimiter = ',', default_value = "512", value_parser = positive)]
    pub context: Vec<usize>,
    /// Sequences that run at once.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1", value_parser = positive)]
    pub sequences: Vec<usize>,
    /// Temperatures of the sequences, without top-k and top-p: tokens are drawn from whole rows.
    #[arg(long, value_name = "T", value_delimiter = ',', default_value = "0")]
    pub temperature: Vec<f32>,
    /// Presence penalty of the sequences: with one, drafts are seen by the host, and tokens are
    /// drawn from changed rows.
    #[arg(
        long,
        value_name = "P",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    pub presence_penalty: f32,
    /// Steps that are timed in each case.
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = positive)]
    pub steps: usize,
    /// Where to write the record.
    #[arg(long, value_name = "PATH", value_parser = new_file)]
    pub json: Option<PathBuf>,
}

/// The flags by themselves.
#[derive(Debug, clap::Parser)]
pub struct Alone {
    #[command(flatten)]
    pub step: StepArgs,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Method {
    /// One token per step.
    None,
    /// Drafts by DFlash, verified as a chain.
    Dflash,
    /// Drafts by DFlash, verified as a tree; its size is --speculative-config's "tree_budget".
    Ddtree,
    /// Drafts by the MTP head, chained.
    Mtp,
    /// As many drafts that no model made: what their rows cost alone.
    Given,
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Dflash => "dflash",
            Self::Ddtree => "ddtree",
            Self::Mtp => "mtp",
            Self::Given => "given",
        }
    }

    fn source(self) -> MeterSource {
        match self {
            Self::None | Self::Given => MeterSource::Given,
            Self::Dflash => MeterSource::Chain,
            Self::Ddtree => MeterSource::Tree,
            Self::Mtp => MeterSource::Mtp,
        }
    }

    fn speculation(self, drafts: usize) -> Speculation {
        let of = |method| Speculation {
            max_drafts: drafts,
            ..Speculation::of(method)
        };
        match self {
            Self::None => Speculation::none(),
            Self::Dflash => Speculation::dflash(drafts),
            Self::Ddtree => Speculation {
                tree_budget: drafts,
                ..Speculation::of(volley_speculate::Method::Ddtree)
            },
            Self::Mtp => of(volley_speculate::Method::Mtp),
            Self::Given => of(volley_speculate::Method::Ngram),
        }
    }
}

/// Drafts that are given, if nobody says how many.
const GIVEN_DRAFTS: usize = 15;
/// Nodes of a tree beside the anchor, and drafts of the MTP head, likewise.
const TREE_DRAFTS: usize = 31;
const MTP_DRAFTS: usize = 3;
/// Steps before those that are timed: shapes are run, recorded and repeated in them.
const WARM_STEPS: usize = 6;

/// One case.
#[derive(Serialize)]
struct Row {
    method: &'static str,
    temperature: f32,
    presence_penalty: f32,
    context: usize,
    sequences: usize,
    tensor_parallel: usize,
    /// Rows of the target per step.
    rows: usize,
    /// Median of the timed steps.
    ms_per_step: f64,
    /// The same of the slowest in ten.
    p90_ms: f64,
    /// What the bytes of the step take at the measured read bandwidth.
    floor_ms: Option<f64>,
    tokens_per_s: f64,
    /// Tokens per step and sequence; on random weights hardly over 1.
    acceptance_length: f64,
    /// Between the ranks' beginnings of a step, microseconds, median and the slowest in ten.
    launch_skew_us: [f64; 2],
    /// In which a device waited for its host between a read and the next launch, microseconds,
    /// median and the slowest in ten.
    idle_us: [f64; 2],
    /// All prompts, from the first chunk to the first tokens.
    prefill_ms: f64,
    /// Device memory, bytes per second, measured in this run.
    read_bandwidth: Option<f64>,
}

/// Measures every method, context and number of sequences.
pub fn run(args: &StepArgs) -> Result<()> {
    for &temperature in &args.temperature {
        let valid = sampling(args, temperature).validate();
        valid.map_err(|error| Error::Usage(error.to_string()))?;
    }
    let rows = measure_all(args)?;
    match &args.json {
        Some(path) => record::write(path, load::device(args.model.device), &rows),
        None => Ok(()),
    }
}

fn sampling(args: &StepArgs, temperature: f32) -> SamplingParams {
    SamplingParams {
        temperature,
        presence_penalty: args.presence_penalty,
        ..SamplingParams::default()
    }
}

fn measure_all(args: &StepArgs) -> Result<Vec<Row>> {
    let device = load::device(args.model.device);
    let bandwidth = load::read_bandwidth(device)?;
    if let Some(bandwidth) = bandwidth {
        outln!("reads {:.0} GB/s", bandwidth / 1e9);
    }
    let methods = match &args.methods[..] {
        [] => match Drafting::of(&args.model)? {
            Drafting { drafter: None, .. } => vec![Method::None],
            _ => vec![Method::None, Method::Dflash],
        },
        methods => methods.to_vec(),
    };
    let mut rows = Vec::new();
    header();
    for method in methods {
        measure(args, method, bandwidth, &mut rows)?;
    }
    Ok(rows)
}

fn measure(
    args: &StepArgs,
    method: Method,
    bandwidth: Option<f64>,
    rows: &mut Vec<Row>,
) -> Result<()> {
    let source = Source::of(&args.model.model, args.model.load_format);
    let target = open::target(&source)?;
    let config = TargetConfig::read(&target)?;
    let (drafter, drafts) = match (method, Drafting::of(&args.model)?) {
        (Method::None, _) => (None, 0),
        (Method::Given, drafting) => (None, drafting.max_drafts.unwrap_or(GIVEN_DRAFTS)),
        (Method::Mtp, drafting) => (None, drafting.max_drafts.unwrap_or(MTP_DRAFTS)),
        (
            Method::Dflash | Method::Ddtree,
            Drafting {
                drafter: Some(drafter),
                max_drafts,
                tree_budget,
                ..
            },
        ) => {
            let checkpoint = open::drafter(&drafter, &config)?;
            let drafter = DrafterConfig::read(&checkpoint, Some(&config))?;
            let most = drafter.block_size - 1;
            let drafts = match method {
                Method::Ddtree => tree_budget.unwrap_or(TREE_DRAFTS),
                _ => max_drafts.unwrap_or(most).min(most),
            };
            (Some((checkpoint, drafter)), drafts)
        }
        (Method::Dflash | Method::Ddtree, Drafting { drafter: None, .. }) => {
            return Err(Error::Usage(format!(
                "--methods {}: name a drafter with --drafter",
                method.name()
            )));
        }
    };
    let most = |values: &[usize]| values.iter().copied().max().unwrap_or(1);
    let ranks = args.model.tensor_parallel_size;
    let floor = Floor {
        target: config.traffic(Shard { rank: 0, ranks })?,
        drafter: match &drafter {
            Some((_, drafter)) => Some(Drafter::of(drafter, Shard { rank: 0, ranks })?),
            None => None,
        },
        head: match method {
            Method::Mtp => Some(config.mtp_traffic(Shard { rank: 0, ranks })?),
            _ => None,
        },
    };
    let max_model_len = most(&args.context) + (WARM_STEPS + args.steps + 2) * (1 + drafts);
    let device = load::device(args.model.device);
    let options = EngineOptions {
        device,
        ranks,
        gpus: args.model.gpus.clone(),
        max_model_len: Some(max_model_len),
        // Of every sequence, with room for a block or a tree of drafts.
        cache_blocks: Some(most(&args.sequences) * ((max_model_len + drafts) / 16 + 3)),
        checkpoints: 0,
        memory_fraction: args.model.gpu_memory_utilization,
        prefill_chunk: load::prefill_chunk(device),
        speculation: method.speculation(drafts),
        max_running: most(&args.sequences),
        ..EngineOptions::default()
    };
    let sources = Sources {
        target,
        drafter: drafter.map(|(checkpoint, _)| checkpoint),
    };
    let mut meter = Meter::start(&options, sources)?;
    for &temperature in &args.temperature {
        let sampling = sampling(args, temperature);
        for &context in &args.context {
            for &sequences in &args.sequences {
                let case = MeterCase {
                    sequences,
                    context,
                    drafts,
                    source: method.source(),
                    warm_steps: WARM_STEPS,
                    steps: args.steps,
                };
                let bar = progress::bar(meter.steps(case) as u64, "steps");
                let metered = meter.measure(case, &sampling, &mut || bar.inc(1))?;
                bar.finish_and_clear();
                let floor_ms =
                    bandwidth.map(|bandwidth| floor.bytes(case) as f64 / bandwidth * 1e3);
                let row = Row {
                    read_bandwidth: bandwidth,
                    temperature,
                    presence_penalty: args.presence_penalty,
                    ..row(method, case, ranks, metered, floor_ms)
                };
                print(&row);
                rows.push(row);
            }
        }
    }
    Ok(())
}

fn row(
    method: Method,
    case: MeterCase,
    tensor_parallel: usize,
    metered: Metered,
    floor_ms: Option<f64>,
) -> Row {
    let Metered {
        prefill_ms,
        mut step_ms,
        mut skew_us,
        mut idle_us,
        rows,
        tokens,
    } = metered;
    let total: f64 = step_ms.iter().sum();
    let steps = step_ms.len() as f64;
    let ms_per_step = record::median(&mut step_ms);
    let spread = |values: &mut Vec<f64>| [0.5, 0.9].map(|share| record::quantile(values, share));
    Row {
        method: method.name(),
        context: case.context,
        sequences: case.sequences,
        tensor_parallel,
        rows,
        ms_per_step,
        p90_ms: step_ms[step_ms.len() * 9 / 10],
        floor_ms,
        tokens_per_s: tokens as f64 / total * 1e3,
        acceptance_length: tokens as f64 / (steps * case.sequences as f64),
        launch_skew_us: spread(&mut skew_us),
        idle_us: spread(&mut idle_us),
        prefill_ms,
        read_bandwidth: None,
        temperature: 0.0,
        presence_penalty: 0.0,
    }
}

fn header() {
    outln!(
        "{:8}{:>12}{:>9}{:>11}{:>6}{:>13}{:>9}{:>11}{:>8}{:>12}{:>13}",
        "method",
        "temperature",
        "context",
        "sequences",
        "rows",
        "ms per step",
        "p90 ms",
        "floor ms",
        "share",
        "tokens/s",
        "prefill ms"
    );
}

fn print(row: &Row) {
    let floor = row
        .floor_ms
        .map_or("-".to_string(), |ms| format!("{ms:.2}"));
    let share = row.floor_ms.map_or("-".to_string(), |ms| {
        format!("{:.0} %", 100.0 * ms / row.ms_per_step)
    });
    outln!(
        "{:8}{:>12}{:>9}{:>11}{:>6}{:>13.3}{:>9.3}{:>11}{:>8}{:>12.1}{:>13.1}",
        row.method,
        row.temperature,
        row.context,
        row.sequences,
        row.rows,
        row.ms_per_step,
        row.p90_ms,
        floor,
        share,
        row.tokens_per_s,
        row.prefill_ms
    );
}
