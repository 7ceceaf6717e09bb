//! `volley serve`.

mod args;
mod http;
mod ignored;
mod refused;

use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::time::Duration;

use tracing_subscriber::filter::LevelFilter;
use volley_server::{Replays, Server};

pub use self::args::{LogLevel, ServeArgs};
use crate::error::Result;
use crate::load::{Loaded, Scheduling, load};
use crate::terminal::say;
use crate::texts;

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
    let mut options = args.http.options(args.max_num_queued_reqs)?;
    // The port first: a port in use is known before a large model is loaded.
    let mut server = Server::bind(&args.host, args.port)?;
    let replays = match args.replay.as_slice() {
        [] => None,
        paths => Some(Replays::open(paths)?),
    };
    let mut loaded = load(
        &args.chosen(),
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
    loaded.model.any_name = args.accept_any_model;
    if let Some(arguments) = &args.default_chat_template_kwargs {
        loaded.model.template_arguments = arguments.clone();
    }
    options.force_usage = args.enable_force_include_usage;
    if args.enable_tokenizer_info_endpoint {
        options.tokenizer_info = Some(texts::tokenizer_info(&args.chosen())?);
    }
    server.loaded();
    // Whoever started the server may have stopped reading.
    let _ = std::io::stdout().write_all(banner(&loaded, server.address()).as_bytes());
    Ok(server.run(loaded.model, options)?)
}

/// What runs and where, and how to try it.
fn banner(loaded: &Loaded, address: SocketAddr) -> String {
    let mut text = format!("volley {}\n", env!("CARGO_PKG_VERSION"));
    let url = format!("http://{address}");
    let serving = format!("{url} as {}", loaded.model.names.join(", "));
    let example = format!(
        "curl {url}/v1/chat/completions -H 'content-type: application/json' \
         -d '{{\"messages\": [{{\"role\": \"user\", \"content\": \"What is 17 + 25?\"}}]}}'"
    );
    let facts = loaded.facts.iter().map(|(label, fact)| (*label, fact));
    for (label, fact) in facts.chain([("serving", &serving), ("try", &example)]) {
        text += &format!("{label:<10}{fact}\n");
    }
    text
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
