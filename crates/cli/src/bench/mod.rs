//! `volley bench`: measurements with a record that can be kept.

mod chats;
mod methods;
mod progress;
mod quality;
mod record;

use crate::args::{BenchArgs, BenchCommand};
use crate::error::Result;

/// Runs one measurement.
pub fn run(args: BenchArgs) -> Result<()> {
    match args.command {
        BenchCommand::Methods(args) => methods::run(&args),
        BenchCommand::Quality(args) => quality::run(&args),
    }
}
