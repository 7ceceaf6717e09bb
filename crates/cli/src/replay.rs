//! `volley replay`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use volley_protocol::Surface;
use volley_protocol::replay::{ReplayFile, Split, replay};

use crate::error::{Error, Result};

/// `volley replay`.
#[derive(Args, Clone, Debug)]
pub struct ReplayArgs {
    /// File written by `volley serve --record`, or made by hand.
    pub file: PathBuf,
    /// API of the recorded request: chat, completions, responses or messages.
    #[arg(long, value_name = "API")]
    pub api: Surface,
    /// Print server-sent events instead of one JSON body.
    #[arg(long)]
    pub stream: bool,
    /// Cut the output anew: "all" in one single piece, every N bytes, or at random by "seed:N"
    /// [default: as recorded].
    #[arg(long, value_name = "all|N|seed:N")]
    pub split: Option<Split>,
}

/// Prints the response that the server would have given. A refused request is printed too, and
/// fails.
pub fn run(args: &ReplayArgs) -> Result<()> {
    let shown = args.file.display();
    let bytes =
        std::fs::read(&args.file).map_err(|error| Error::Usage(format!("{shown}: {error}")))?;
    let file: ReplayFile = serde_json::from_slice(&bytes)
        .map_err(|error| Error::Usage(format!("{shown} is no recording: {error}")))?;
    let split = args.split.unwrap_or(Split::Recorded);
    let replayed = replay(&file, args.api, args.stream, split);
    let mut out = std::io::stdout().lock();
    out.write_all(&replayed.body)?;
    if !replayed.body.ends_with(b"\n") {
        writeln!(out)?;
    }
    match replayed.status {
        200 => Ok(()),
        status => Err(Error::Refused(status)),
    }
}
