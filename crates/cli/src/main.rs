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
mod plan;
mod replay;
mod serve;
mod terminal;

use std::process::ExitCode;

use args::Command;

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
            error.exit_code()
        }
    }
}
