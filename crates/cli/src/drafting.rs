//! How a model drafts, from the flags that say so.

use std::path::PathBuf;

use serde_json::Value;
use volley_engine::Speculation;
use volley_speculate::{Method, TreeOrder};

use crate::args::{LoadFormat, ModelArgs};
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

/// The choice made; sizes that are left out are the method's usual ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drafting {
    /// How requests draft that do not choose.
    pub method: Method,
    /// Weights of a DFlash drafter.
    pub drafter: Option<Source>,
    /// Most drafts of a chain per step.
    pub max_drafts: Option<usize>,
    /// Most nodes of a tree per step.
    pub tree_budget: Option<usize>,
    /// Whether a tree begins with a chain.
    pub seeded: Option<bool>,
    /// What orders the nodes of trees when tokens are sampled.
    pub tree_order: Option<TreeOrder>,
    /// Shortest repeat that lookup goes on from.
    pub lookup_min: Option<usize>,
    /// Whether the MTP head is loaded though the method does without [default: with the demo pair].
    pub mtp: Option<bool>,
    /// Remarks on keys that change nothing.
    pub notices: Vec<String>,
}

impl Drafting {
    /// Reads the flags. The demo target brings its drafter along; other targets draft by DFlash
    /// only if one is named.
    pub fn of(args: &ModelArgs) -> Result<Self> {
        let own = match Source::of(&args.model, args.load_format) {
            own @ (Source::Demo | Source::Card(_)) => Some(own),
            _ => None,
        };
        if let Some(json) = &args.speculative_config {
            return from_config(json, own, args.load_format)
                .map_err(|message| Error::Usage(format!("--speculative-config: {message}")));
        }
        let named = args.drafter.as_deref();
        let named = named.map(|name| Source::of(name, args.load_format));
        let drafter = named.clone().or(own);
        let method = match (args.spec, &drafter) {
            (Some(spec), _) => spec,
            (None, Some(_)) => Method::Dflash,
            (None, None) => Method::None,
        };
        let drafter = match (method, drafter) {
            (Method::Dflash | Method::Ddtree, None) => {
                return Err(Error::Usage(format!(
                    "--spec {method}: name the drafter of {} with --drafter PATH",
                    args.model
                )));
            }
            (Method::None | Method::Ngram | Method::Mtp, _) if named.is_some() => {
                return Err(conflict(&format!("--spec {method}"), "--drafter"));
            }
            (Method::None | Method::Ngram | Method::Mtp, _) => None,
            (_, drafter) => drafter,
        };
        if method == Method::None && args.num_speculative_tokens.is_some() {
            return Err(conflict(
                "--num-speculative-tokens",
                "a model without drafter",
            ));
        }
        Ok(Self {
            method,
            drafter,
            max_drafts: args.num_speculative_tokens,
            ..Self::default()
        })
    }
}

fn conflict(one: &str, other: &str) -> Error {
    Error::Usage(format!("{one} does not go with {other}"))
}

/// Reads vLLM's JSON form. `own` is the drafter that comes with the target.
fn from_config(json: &str, own: Option<Source>, format: LoadFormat) -> Result<Drafting, String> {
    let value: Value =
        serde_json::from_str(json).map_err(|error| format!("{json:?} is not JSON: {error}"))?;
    let Value::Object(mut fields) = value else {
        return Err(format!("{json} is not a JSON object"));
    };
    fields.retain(|_, value| !value.is_null());
    let method = match fields.shift_remove("method") {
        None => return Err("\"method\" is missing; \"dflash\" is supported".into()),
        Some(Value::String(name)) => method(&name)?,
        Some(other) => return Err(format!("method must be a name, but is {other}")),
    };
    let named = match fields.shift_remove("model") {
        Some(Value::String(model)) => Some(Source::of(&model, format)),
        Some(other) => return Err(format!("model must be a path, but is {other}")),
        None => None,
    };
    let drafter = match method {
        Method::Dflash | Method::Ddtree => Some(
            named
                .or(own)
                .ok_or("\"model\" is missing: the folder of the drafter")?,
        ),
        Method::Auto => named.or(own),
        Method::None | Method::Ngram | Method::Mtp => match named {
            Some(_) => return Err(format!("method {method} takes no model")),
            None => None,
        },
    };
    let mut count = |key: &str, least: u64| match fields.shift_remove(key) {
        None => Ok(None),
        Some(value) => match value.as_u64() {
            Some(count) if count >= least => Ok(Some(count as usize)),
            _ if least > 0 => Err(format!("{key} must be a positive integer, but is {value}")),
            _ => Err(format!(
                "{key} must be an integer of 0 or more, but is {value}"
            )),
        },
    };
    let max_drafts = count("num_speculative_tokens", 1)?;
    let tree_budget = count("tree_budget", 0)?;
    let lookup_min = count("prompt_lookup_min", 1)?;
    if let Some(budget) = tree_budget.filter(|&budget| budget > Speculation::MOST_DRAFTS) {
        return Err(format!(
            "tree_budget is {budget}, and it can be {} at most",
            Speculation::MOST_DRAFTS
        ));
    }
    let seeded = match fields.shift_remove("tree_seeded") {
        None => None,
        Some(Value::Bool(seeded)) => Some(seeded),
        Some(other) => return Err(format!("tree_seeded must be true or false, but is {other}")),
    };
    let mtp = match fields.shift_remove("mtp") {
        None => None,
        Some(Value::Bool(mtp)) => Some(mtp),
        Some(other) => return Err(format!("mtp must be true or false, but is {other}")),
    };
    let tree_order = match fields.shift_remove("tree_order") {
        None => None,
        Some(Value::String(name)) => Some(name.parse().map_err(|e| format!("tree_order: {e}"))?),
        Some(other) => return Err(format!("tree_order must be a name, but is {other}")),
    };
    let notice = |key: &String| format!("--speculative-config: {key:?} changes nothing here");
    Ok(Drafting {
        method,
        drafter,
        max_drafts,
        tree_budget,
        seeded,
        tree_order,
        lookup_min,
        mtp,
        notices: fields.keys().map(notice).collect(),
    })
}

/// A method by our name or by one of vLLM's names of MTP.
fn method(name: &str) -> Result<Method, String> {
    match name {
        "qwen3_5_mtp" | "qwen3_next_mtp" => Ok(Method::Mtp),
        name => name
            .parse()
            .map_err(|error| format!("method {name:?} is not supported: {error}")),
    }
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
        Ok(Drafting {
            method: Method::Dflash,
            drafter: Some(drafter),
            max_drafts,
            ..Drafting::default()
        })
    }

    #[test]
    fn flags_choose_the_drafter() {
        let path = |text: &str| Source::Path(text.into());
        assert_eq!(choose(&[]), dflash(Source::Demo, None));
        assert_eq!(choose(&["--spec", "none"]), Ok(Drafting::default()));
        assert_eq!(choose(&["DIR"]), Ok(Drafting::default()));
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
    fn every_method_has_its_keys() {
        let chosen = |json: &str| choose(&["--speculative-config", json]).unwrap();
        let tree = chosen(r#"{"method": "ddtree", "tree_budget": 31, "tree_seeded": false}"#);
        assert_eq!(
            (tree.method, tree.tree_budget, tree.seeded),
            (Method::Ddtree, Some(31), Some(false))
        );
        assert_eq!(tree.drafter, Some(Source::Demo));
        let tree = chosen(r#"{"method": "ddtree", "tree_order": "marginal"}"#);
        assert_eq!(tree.tree_order, Some(TreeOrder::Marginal));
        let wrong = r#"{"method": "ddtree", "tree_order": "random"}"#;
        assert!(choose(&["--speculative-config", wrong]).is_err());
        let head = chosen(r#"{"method": "qwen3_5_mtp", "num_speculative_tokens": 3}"#);
        assert_eq!((head.method, head.drafter), (Method::Mtp, None));
        let json = r#"{"method": "dflash", "model": "D", "mtp": true}"#;
        let beside = choose(&["DIR", "--speculative-config", json]).unwrap();
        assert_eq!((beside.method, beside.mtp), (Method::Dflash, Some(true)));
        let lookup = chosen(r#"{"method": "ngram", "prompt_lookup_min": 4}"#);
        assert_eq!((lookup.method, lookup.lookup_min), (Method::Ngram, Some(4)));
        assert_eq!(chosen(r#"{"method": "auto"}"#).drafter, Some(Source::Demo));
        assert_eq!(choose(&["DIR", "--spec", "auto"]).unwrap().drafter, None);
        assert_eq!(
            choose(&["DIR", "--spec", "mtp"]).unwrap().method,
            Method::Mtp
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
                &["--speculative-config", r#"{"method": "mtp", "model": "D"}"#],
                "takes no model",
            ),
            (
                &[
                    "--speculative-config",
                    r#"{"method": "auto", "tree_budget": 64}"#,
                ],
                "63 at most",
            ),
            (
                &["--speculative-config", r#"{"method": "eagle3"}"#],
                "\"eagle3\" is not supported",
            ),
            (
                &["DIR", "--speculative-config", r#"{"method": "dflash"}"#],
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
            Ok(drafting) => {
                assert!(drafting.notices[0].contains("draft_tensor_parallel_size"));
            }
            Err(error) => panic!("{error}"),
        }
    }
}
