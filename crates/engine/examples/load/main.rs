//! Load, soak and latency of an engine on the demo pair, on the CPU; prints one JSON record.
//!
//! `cargo run --release -p volley-engine --example load -- SECONDS [PART...]`; the parts are `latency`,
//! `soak` and `streams`, all of them if none is named. SECONDS is how long the streams run.

mod demo;
mod latency;
mod soak;
mod streams;

use std::time::Duration;

use serde_json::json;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let seconds: u64 = args.first().map_or(Ok(30), |text| text.parse())?;
    let wanted = args.get(1..).unwrap_or_default();
    let parts = ["latency", "soak", "streams"];
    if let Some(unknown) = wanted.iter().find(|part| !parts.contains(&part.as_str())) {
        return Err(format!(
            "no part is called {unknown}; there are {}",
            parts.join(", ")
        )
        .into());
    }
    let demo = demo::Demo::open()?;
    let mut all = json!({
        "what": "load, soak and latency of one engine, demo pair with DFlash, CPU",
        "command": format!(
            "cargo run --release -p volley-engine --example load -- {}",
            args.join(" ")
        ),
        "debug_assertions": cfg!(debug_assertions),
        "version": env!("CARGO_PKG_VERSION"),
        "processors": std::thread::available_parallelism()?.get(),
    });
    for part in parts {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == part) {
            continue;
        }
        all[part] = match part {
            "latency" => latency::measure(&demo)?,
            "soak" => soak::measure(&demo)?,
            _ => streams::measure(&demo, Duration::from_secs(seconds))?,
        };
        eprintln!("{:#}", all[part]);
    }
    println!("{all:#}");
    let failures = ["lost", "mixed"].map(|what| all["streams"][what].as_u64().unwrap_or(0));
    match failures {
        [0, 0] => Ok(()),
        _ => Err("streams were lost or mixed".into()),
    }
}
