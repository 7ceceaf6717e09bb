//! `volley bench kernels`: what each kernel takes at the shapes of a model, against its ceiling.

use std::path::PathBuf;

use clap::Args;
use volley_engine::{DeviceKind, KernelReport, Sources, time_kernels};
use volley_model::TargetConfig;

use super::{progress, record};
use crate::args::ModelArgs;
use crate::args::values::new_file;
use crate::drafting::{Drafting, Source};
use crate::error::Result;
use crate::terminal::outln;
use crate::{load, open};

/// `volley bench kernels`.
#[derive(Args, Clone, Debug)]
pub struct KernelsArgs {
    /// Model whose shapes are taken; its weights are not read.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Where to write the record.
    #[arg(long, value_name = "PATH", value_parser = new_file)]
    pub json: Option<PathBuf>,
}

/// Times all kernels and prints a line for each.
pub fn run(args: &KernelsArgs) -> Result<()> {
    let source = Source::of(&args.model.model, args.model.load_format);
    let target = open::target(&source)?;
    let config = TargetConfig::read(&target)?;
    let drafter = match Drafting::of(&args.model)?.drafter {
        Some(source) => Some(open::drafter(&source, &config)?),
        None => None,
    };
    let sources = Sources { target, drafter };
    let bar = progress::counter("kernels");
    let chunk = load::prefill_chunk(DeviceKind::Cuda);
    let report = time_kernels(&sources, chunk, &mut |kernel| {
        bar.inc(1);
        bar.set_message(kernel.to_string());
    })?;
    bar.finish_and_clear();
    print(&report);
    match &args.json {
        Some(path) => record::write(path, DeviceKind::Cuda, &report.rows),
        None => Ok(()),
    }
}

fn print(report: &KernelReport) {
    outln!(
        "reads {:.0} GB/s, products {:.0} TFLOP/s",
        report.read / 1e9,
        report.product / 1e12
    );
    outln!(
        "{:<18}{:<48}{:>10}{:>8}{:>10}{:>12}",
        "kernel",
        "case",
        "us",
        "GB/s",
        "TFLOP/s",
        "of ceiling"
    );
    for row in &report.rows {
        outln!(
            "{:<18}{:<48}{:>10.2}{:>8.0}{:>10.1}{:>10.0} %",
            row.kernel,
            row.case,
            row.us,
            row.gb_per_s,
            row.tflop_per_s,
            100.0 * row.share_of_ceiling
        );
    }
}
