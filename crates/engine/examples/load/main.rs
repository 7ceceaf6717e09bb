//! Load, soak and latency of an engine on the demo pair, on the CPU; prints one JSON record.
//!
//! `cargo run --release -p volley-engine --example load -- SECONDS [RECORD]`

mod demo;
mod latency;
mod soak;
mod streams;

use std::time::Duration;

use serde_json::json;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let seconds: u64 = match args.next() {
        Some(text) => text.parse()?,
        None => 30,
    };
    let record = args.next();
    let demo = demo::Demo::open()?;
    let latency = latency::measure(&demo)?;
    eprintln!("{latency:#}");
    let soak = soak::measure(&demo)?;
    eprintln!("{soak:#}");
    let streams = streams::measure(&demo, Duration::from_secs(seconds))?;
    eprintln!("{streams:#}");
    let command = format!("cargo run --release -p volley-engine --example load -- {seconds}");
    let all = json!({
        "what": "load, soak and latency of one engine, demo pair with DFlash, CPU",
        "command": command,
        "debug_assertions": cfg!(debug_assertions),
        "version": env!("CARGO_PKG_VERSION"),
        "processors": std::thread::available_parallelism()?.get(),
        "latency": latency,
        "soak": soak,
        "streams": streams,
    });
    let text = format!("{all:#}\n");
    match record {
        Some(path) => std::fs::write(path, text)?,
        None => print!("{text}"),
    }
    let failures = streams["lost"].as_u64().unwrap_or(1) + streams["mixed"].as_u64().unwrap_or(1);
    match failures {
        0 => Ok(()),
        _ => Err("streams were lost or mixed".into()),
    }
}
