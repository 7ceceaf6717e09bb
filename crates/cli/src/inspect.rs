//! `volley inspect`.

use std::io::Write;

use clap::Args;
use volley_model::{Kind, inspect};

use crate::args::LoadFormat;
use crate::demo;
use crate::drafting::Source;
use crate::error::{Error, Result};
use crate::{open, texts};

/// `volley inspect`.
#[derive(Args, Clone, Debug)]
pub struct InspectArgs {
    /// Folder or .safetensors file of a target or drafter, or "demo" for both of the pair.
    pub model: String,
    /// Print one JSON object for each checkpoint, on a line of its own.
    #[arg(long)]
    pub json: bool,
}

/// Describes a checkpoint; for the demo both of the pair. One that could not be served, or loaded as a
/// drafter, is a failure once it is described.
pub fn run(args: &InspectArgs) -> Result<()> {
    let source = Source::of(&args.model, LoadFormat::Auto);
    let checkpoint = open::target(&source)?;
    let mut inspections = vec![inspect(&checkpoint)?];
    if inspections[0].kind == Kind::Target {
        let problems = texts::problems(&checkpoint);
        inspections[0].problems.extend(problems);
    }
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
    let problems: usize = inspections.iter().map(|i| i.problems.len()).sum();
    match problems {
        0 => Ok(()),
        1 => Err(Error::Failed("1 problem: it cannot be loaded".into())),
        many => Err(Error::Failed(format!(
            "{many} problems: it cannot be loaded"
        ))),
    }
}
