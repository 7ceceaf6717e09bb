//! `volley bench`: measurements with a record that can be kept.

mod chats;
mod choice;
mod kernels;
mod methods;
mod progress;
mod quality;
mod record;
mod serve;
mod simulate;
mod start;
mod step;
mod svg;
mod texts;

use clap::{Args, Subcommand};

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
    }
}
