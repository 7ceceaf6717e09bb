//! The binary `volley`: serve, chat, generate, inspect, plan, replay, bench, doctor.

mod args;
mod bench;
mod cards;
mod chat;
mod demo;
mod doctor;
mod drafting;
mod error;
mod generate;
mod inspect;
mod load;
mod open;
mod plan;
mod replay;
mod serve;
mod terminal;
mod texts;

use std::process::ExitCode;
use std::time::Duration;

use args::Command;

/// How long a process that has lost its engine may take to end.
const FAREWELL: Duration = Duration::from_secs(3);

/// Ends the process the hard way if it does not end by itself: what a lost rank was doing in the driver
/// may hold up the driver's own end.
fn cut_short() {
    std::thread::spawn(|| {
        std::thread::sleep(FAREWELL);
        std::process::abort();
    });
}

fn main() -> ExitCode {
    let result = match args::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Chat(args) => chat::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Bench(args) => bench::run(args),
        Command::Doctor(args) => doctor::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_closed_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("volley: {error}");
            if error.is_engine_lost() {
                cut_short();
            }
            error.exit_code()
        }
    }
}
