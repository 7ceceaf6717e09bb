//! `volley inspect`.

use std::io::Write;

use clap::Args;
use volley_model::inspect;

use crate::args::LoadFormat;
use crate::demo;
use crate::drafting::Source;
use crate::error::Result;
use crate::open;

/// `volley inspect`.
#[derive(Args, Clone, Debug)]
pub struct InspectArgs {
    /// Folder or .safetensors file of a target or drafter, or "demo" for both of the pair.
    pub model: String,
    /// Print one JSON object for each checkpoint, on a line of its own.
    #[arg(long)]
    pub json: bool,
}

/// Describes a checkpoint; for the demo both of the pair.
pub fn run(args: &InspectArgs) -> Result<()> {
    let source = Source::of(&args.model, LoadFormat::Auto);
    let mut inspections = vec![inspect(&open::target(&source)?)?];
    if source == Source::Demo {
        inspections.push(inspect(&demo::drafter()?)?);
    }
    let mut out = std::io::stdout().lock();
    for inspection in &inspections {
        if args.json {
            let line = serde_json::to_string(inspection).map_err(std::io::Error::from)?;
            writeln!(out, "{line}")?;
        } else {
            writeln!(out, "{inspection}")?;
        }
    }
    Ok(())
}
