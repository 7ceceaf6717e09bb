//! `volley bench`: measurements with a record that can be kept.

mod chats;
mod choice;
mod floor;
mod kernels;
mod methods;
mod picture;
mod progress;
mod quality;
mod record;
mod serve;
mod simulate;
mod start;
mod step;
mod streams;
mod svg;
mod texts;

use clap::{Args, Parser, Subcommand};

use crate::error::Result;

/// `volley bench`.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// What to measure.
    #[command(subcommand)]
    pub command: BenchCommand,
}

/// The measurements.
#[derive(Clone, Debug, Subcommand)]
pub enum BenchCommand {
    /// Speed of the same prompts by every way to draft, on one engine.
    Methods(Box<methods::MethodsArgs>),
    /// Right answers and acceptance length per kind of task.
    Quality(Box<quality::QualityArgs>),
    /// Steps that each way to draft would take, counted from recorded answers.
    Simulate(Box<simulate::SimulateArgs>),
    /// Load on an OpenAI-compatible server, ours or another one.
    Serve(Box<serve::ServeArgs>),
    /// Every kernel at the shapes of a model: time, speed, share of the ceiling.
    Kernels(Box<kernels::KernelsArgs>),
    /// Greedy answers on a device and with drafts, against those of the CPU without.
    Texts(Box<texts::TextsArgs>),
    /// Seconds from the command to a model that takes requests.
    Start(Box<start::StartArgs>),
    /// Milliseconds per step as served, against the least that memory allows.
    Step(Box<step::StepArgs>),
    /// Many requests at once on one engine: throughput, and how long streams wait.
    Streams(Box<streams::StreamsArgs>),
}

/// Runs one measurement.
pub fn run(args: BenchArgs) -> Result<()> {
    match args.command {
        BenchCommand::Kernels(args) => kernels::run(&args),
        BenchCommand::Methods(args) => methods::run(&args),
        BenchCommand::Quality(args) => quality::run(&args),
        BenchCommand::Serve(args) => serve::run(&args),
        BenchCommand::Simulate(args) => simulate::run(&args),
        BenchCommand::Start(args) => start::run(&args),
        BenchCommand::Step(args) => step::run(&args),
        BenchCommand::Texts(args) => texts::run(&args),
        BenchCommand::Streams(args) => streams::run(&args),
    }
}

/// Measures the step of a known model on random weights, on so many GPUs, and prints it.
pub fn step_of(model: &'static str, ranks: usize) -> Result<()> {
    let ranks = ranks.to_string();
    let flags = ["step", model, "--load-format", "dummy", "--device", "cuda"];
    let flags = [&flags[..], &["--tensor-parallel-size", &ranks]].concat();
    let args = step::Alone::try_parse_from(flags);
    let args = args.expect("the flags are sound: this is a bug");
    step::run(&args.step)
}
