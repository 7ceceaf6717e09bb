//! `volley serve`.

mod args;
mod http;
mod ignored;

use std::io::{IsTerminal, Write};
use std::time::Duration;

use tracing_subscriber::filter::LevelFilter;
use volley_server::{Replays, Server};

pub use self::args::{LogLevel, ServeArgs};
use crate::error::Result;
use crate::load::{Scheduling, load};
use crate::terminal::say;

/// Serves until a signal ends it.
pub fn run(args: &ServeArgs) -> Result<()> {
    tracing_subscriber::fmt()
        .with_max_level(level(args.log_level))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // A log that nobody reads any more must not cost an answer.
        .log_internal_errors(false)
        .init();
    let ignored = args.ignored.given();
    if !ignored.is_empty() {
        say(&format!(
            "notice: without effect here: {}",
            ignored.join(" ")
        ));
    }
    let options = args.http.options(args.max_num_queued_reqs)?;
    // The port first: a port in use is known before a large model is loaded.
    let mut server = Server::bind(&args.host, args.port)?;
    let replays = match args.replay.as_slice() {
        [] => None,
        paths => Some(Replays::open(paths)?),
    };
    let mut loaded = load(
        &args.model,
        &args.served_model_name,
        Scheduling {
            max_running: args.max_num_seqs,
            prefill_chunk: args.max_num_batched_tokens,
            checkpoints: match args.no_enable_prefix_caching {
                true => 0,
                false => args.max_prefix_checkpoints,
            },
            max_itl: Some(Duration::from_millis(args.max_itl_ms as u64)),
            max_waiting: args.max_num_queued_reqs,
            stall_limit: args.stall_limit,
        },
    )?;
    if let Some(replays) = &replays {
        let fact = format!("{} recordings, not the model's own words", replays.count());
        loaded.facts.push(("answers", fact));
    }
    loaded.model.replays = replays;
    server.loaded();
    let mut out = std::io::stdout().lock();
    writeln!(out, "volley {}", env!("CARGO_PKG_VERSION"))?;
    for (label, text) in &loaded.facts {
        writeln!(out, "{label:<10}{text}")?;
    }
    let url = format!("http://{}", server.address());
    writeln!(
        out,
        "{:<10}{url} as {}",
        "serving",
        loaded.model.names.join(", ")
    )?;
    writeln!(
        out,
        "{:<10}curl {url}/v1/chat/completions -H 'content-type: application/json' \
         -d '{{\"messages\": [{{\"role\": \"user\", \"content\": \"What is 17 + 25?\"}}]}}'",
        "try",
    )?;
    out.flush()?;
    drop(out);
    Ok(server.run(loaded.model, options)?)
}

fn level(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}
