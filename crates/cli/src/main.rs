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

use args::Command;

/// Ends the process without the exit handlers of libraries: a driver's may wait for what a lost rank was
/// doing, or stumble over it.
fn leave() -> ! {
    // SAFETY: nothing is left to do, and what was printed was flushed line by line.
    unsafe { libc::_exit(1) }
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
            terminal::say(&format!("volley: {error}"));
            if error.is_engine_lost() {
                leave();
            }
            error.exit_code()
        }
    }
}
