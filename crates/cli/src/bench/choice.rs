//! Methods of drafting as the benches name them.

use std::fmt;
use std::str::FromStr;

use volley_engine::{EngineInfo, SpeculateOptions, Speculation};
use volley_speculate::Method;

/// A method with its size: "mtp:3", "ddtree:22", "dflash".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Method.
    pub method: Method,
    /// Most drafts of a chain, or nodes of a tree; all that there are when `None`.
    pub size: Option<usize>,
}

impl Choice {
    /// What a request says for it.
    pub fn options(self) -> SpeculateOptions {
        let size = self.size.unwrap_or(usize::MAX);
        let mut options = SpeculateOptions {
            method: Some(self.method),
            ..SpeculateOptions::default()
        };
        match self.method {
            Method::Ddtree => options.tree_budget = size,
            Method::None => {}
            _ => options.max_drafts = size,
        }
        options
    }

    /// Every method that the engine offers, in some sizes.
    pub fn usual(info: &EngineInfo) -> Vec<Self> {
        const SIZES: [(Method, &[usize]); 3] = [
            (Method::Mtp, &[1, 2, 3, 5, 7]),
            (Method::Dflash, &[7, 15]),
            (Method::Ddtree, &[15, 22, 31, 63]),
        ];
        let sized = |method: Method| {
            let sizes = SIZES.iter().find(|(sized, _)| *sized == method);
            let choice = move |size| Self { method, size };
            match sizes {
                None => vec![choice(None)],
                Some((_, sizes)) => sizes.iter().map(|&size| choice(Some(size))).collect(),
            }
        };
        info.methods.iter().copied().flat_map(sized).collect()
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.size {
            Some(size) => f.pad(&format!("{}:{size}", self.method)),
            None => self.method.fmt(f),
        }
    }
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, size) = match text.split_once(':') {
            Some((name, size)) => (name, Some(size)),
            None => (text, None),
        };
        let method: Method = name.parse()?;
        let size = match size {
            None => None,
            Some(_) if method == Method::None => {
                return Err("none has no size".into());
            }
            Some(size) => match size.parse() {
                Ok(size) if (1..=Speculation::MOST_DRAFTS).contains(&size) => Some(size),
                _ => {
                    return Err(format!(
                        "{text}: the size must be between 1 and {}",
                        Speculation::MOST_DRAFTS
                    ));
                }
            },
        };
        Ok(Self { method, size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_go_both_ways() {
        for text in ["none", "ngram", "mtp:3", "dflash", "ddtree:22", "auto"] {
            assert_eq!(text.parse::<Choice>().unwrap().to_string(), text);
        }
        for text in ["eagle", "mtp:0", "ddtree:64", "dflash:x", "none:1", ""] {
            assert!(text.parse::<Choice>().is_err(), "{text}");
        }
        let tree: Choice = "ddtree:22".parse().unwrap();
        assert_eq!(tree.options().tree_budget, 22);
        assert_eq!(tree.options().max_drafts, usize::MAX);
    }
}
