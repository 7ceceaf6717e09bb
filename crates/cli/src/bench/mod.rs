//! `volley bench`: measurements with a record that can be kept.

mod chats;
mod methods;
mod progress;
mod quality;
mod record;
mod step;

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
    /// Speed of the same prompts with and without speculation.
    Methods(Box<methods::MethodsArgs>),
    /// Right answers and acceptance length per kind of task.
    Quality(Box<quality::QualityArgs>),
    /// Milliseconds per step as served, against the least that memory allows.
    Step(Box<step::StepArgs>),
}

/// Runs one measurement.
pub fn run(args: BenchArgs) -> Result<()> {
    match args.command {
        BenchCommand::Methods(args) => methods::run(&args),
        BenchCommand::Quality(args) => quality::run(&args),
        BenchCommand::Step(args) => step::run(&args),
    }
}
