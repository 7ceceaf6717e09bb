//! How a model drafts, from the flags that say so.

use std::path::PathBuf;

use serde_json::Value;

use crate::args::{LoadFormat, ModelArgs, Spec};
use crate::cards::{self, Card};
use crate::demo;
use crate::error::{Error, Result};

/// Where a checkpoint comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The embedded pair.
    Demo,
    /// A folder or file.
    Path(PathBuf),
    /// Random weights of a known model.
    Card(&'static Card),
    /// Random weights of the shapes that a folder tells.
    Dummy(PathBuf),
}

impl Source {
    /// "demo" or a path; of random weights, a card or a folder.
    pub fn of(text: &str, format: LoadFormat) -> Self {
        match (format, text) {
            (LoadFormat::Dummy, text) => match cards::find(text) {
                Some(card) => Self::Card(card),
                None => Self::Dummy(text.into()),
            },
            (_, demo::NAME) => Self::Demo,
            (_, path) => Self::Path(path.into()),
        }
    }
}

/// The choice made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Drafting {
    /// One token per step.
    None,
    /// By a DFlash drafter.
    Dflash {
        /// Its weights.
        drafter: Source,
        /// Most drafts per step; all of the block when `None`.
        max_drafts: Option<usize>,
        /// Remarks on keys that change nothing.
        notices: Vec<String>,
    },
}

impl Drafting {
    /// Reads the flags. The demo target brings its drafter along; other targets draft only if one
    /// is named.
    pub fn of(args: &ModelArgs) -> Result<Self> {
        if let Some(json) = &args.speculative_config {
            return from_config(json, args.load_format)
                .map_err(|message| Error::Usage(format!("--speculative-config: {message}")));
        }
        let named = args.drafter.clone().map(|path| match args.load_format {
            LoadFormat::Dummy => Source::Dummy(path),
            _ => Source::Path(path),
        });
        let own = || match Source::of(&args.model, args.load_format) {
            own @ (Source::Demo | Source::Card(_)) => Some(own),
            _ => None,
        };
        let drafter = match (args.spec, named) {
            (Some(Spec::None), Some(_)) => return Err(conflict("--spec none", "--drafter")),
            (Some(Spec::None), None) => None,
            (Some(Spec::Dflash), named) => Some(named.or_else(own).ok_or_else(|| {
                Error::Usage(format!(
                    "--spec dflash: name the drafter of {} with --drafter PATH",
                    args.model
                ))
            })?),
            (None, named) => named.or_else(own),
        };
        match (drafter, args.num_speculative_tokens) {
            (Some(drafter), max_drafts) => Ok(Self::Dflash {
                drafter,
                max_drafts,
                notices: Vec::new(),
            }),
            (None, Some(_)) => Err(conflict(
                "--num-speculative-tokens",
                "a model without drafter",
            )),
            (None, None) => Ok(Self::None),
        }
    }
}

fn conflict(one: &str, other: &str) -> Error {
    Error::Usage(format!("{one} does not go with {other}"))
}

/// Reads vLLM's JSON form.
fn from_config(json: &str, format: LoadFormat) -> Result<Drafting, String> {
    let value: Value =
        serde_json::from_str(json).map_err(|error| format!("{json:?} is not JSON: {error}"))?;
    let Value::Object(mut fields) = value else {
        return Err(format!("{json} is not a JSON object"));
    };
    fields.retain(|_, value| !value.is_null());
    match fields.shift_remove("method") {
        None => return Err("\"method\" is missing; \"dflash\" is supported".into()),
        Some(Value::String(method)) if method == "dflash" => {}
        Some(other) => return Err(format!("method {other} is not supported; \"dflash\" is")),
    }
    let drafter = match fields.shift_remove("model") {
        Some(Value::String(model)) => Source::of(&model, format),
        Some(other) => return Err(format!("model must be a path, but is {other}")),
        None => return Err("\"model\" is missing: the folder of the drafter".into()),
    };
    let max_drafts = match fields.shift_remove("num_speculative_tokens") {
        None => None,
        Some(value) => match value.as_u64() {
            Some(count) if count > 0 => Some(count as usize),
            _ => {
                return Err(format!(
                    "num_speculative_tokens must be a positive integer, but is {value}"
                ));
            }
        },
    };
    let notice = |key: &String| format!("--speculative-config: {key:?} changes nothing here");
    Ok(Drafting::Dflash {
        drafter,
        max_drafts,
        notices: fields.keys().map(notice).collect(),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn choose(line: &[&str]) -> Result<Drafting, String> {
        let line = [&["volley", "serve"], line].concat();
        match Cli::try_parse_from(line).unwrap().command {
            Command::Serve(args) => Drafting::of(&args.model).map_err(|error| error.to_string()),
            other => panic!("{other:?}"),
        }
    }

    fn dflash(drafter: Source, max_drafts: Option<usize>) -> Result<Drafting, String> {
        Ok(Drafting::Dflash {
            drafter,
            max_drafts,
            notices: Vec::new(),
        })
    }

    #[test]
    fn flags_choose_the_drafter() {
        let path = |text: &str| Source::Path(text.into());
        assert_eq!(choose(&[]), dflash(Source::Demo, None));
        assert_eq!(choose(&["--spec", "none"]), Ok(Drafting::None));
        assert_eq!(choose(&["DIR"]), Ok(Drafting::None));
        assert_eq!(choose(&["DIR", "--drafter", "D"]), dflash(path("D"), None));
        assert_eq!(
            choose(&["--num-speculative-tokens", "7"]),
            dflash(Source::Demo, Some(7))
        );
        let json = r#"{"method": "dflash", "model": "D", "num_speculative_tokens": 15}"#;
        assert_eq!(
            choose(&["DIR", "--speculative-config", json]),
            dflash(path("D"), Some(15))
        );
    }

    #[test]
    fn wrong_combinations_say_what_is_wrong() {
        for (line, words) in [
            (&["--spec", "none", "--drafter", "D"][..], "--drafter"),
            (&["DIR", "--spec", "dflash"], "--drafter PATH"),
            (&["DIR", "--num-speculative-tokens", "4"], "without drafter"),
            (&["--speculative-config", "{"], "not JSON"),
            (&["--speculative-config", "[]"], "not a JSON object"),
            (&["--speculative-config", "{}"], "\"method\" is missing"),
            (
                &["--speculative-config", r#"{"method": "eagle3"}"#],
                "\"eagle3\" is not supported",
            ),
            (
                &["--speculative-config", r#"{"method": "dflash"}"#],
                "\"model\" is missing",
            ),
            (
                &[
                    "--speculative-config",
                    r#"{"method": "dflash", "model": "D", "num_speculative_tokens": 0}"#,
                ],
                "positive integer",
            ),
        ] {
            let error = choose(line).unwrap_err();
            assert!(error.contains(words), "{line:?}: {error}");
        }
    }

    #[test]
    fn keys_without_effect_are_noticed() {
        let json = r#"{"method": "dflash", "model": "D", "draft_tensor_parallel_size": 1}"#;
        match choose(&["DIR", "--speculative-config", json]) {
            Ok(Drafting::Dflash { notices, .. }) => {
                assert!(notices[0].contains("draft_tensor_parallel_size"));
            }
            other => panic!("{other:?}"),
        }
    }
}
