//! Logprobs of the answer's tokens.

use schemars::JsonSchema;
use serde::Serialize;

/// Stands for minus infinity, which JSON has no number for.
const LEAST: f32 = -9999.0;

/// What the engine says about one token.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenLogprob {
    /// Text of the token, perhaps only part of a character.
    pub bytes: Vec<u8>,
    /// Natural logarithm of its probability under the target model; None for the first token of
    /// an echoed prompt, which nothing predicts.
    pub logprob: Option<f32>,
    /// The likeliest tokens, best first.
    pub top: Vec<(Vec<u8>, f32)>,
}

/// Logprobs of a choice, or of the text that a chunk adds.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ChoiceLogprobs {
    /// Tokens of the answer's text; thoughts and calls have none.
    pub content: Vec<LogprobEntry>,
    /// Always null.
    pub refusal: Option<()>,
}

/// One token of the answer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LogprobEntry {
    /// Its text.
    pub token: String,
    /// At most 0, finite.
    pub logprob: f32,
    /// Its text as bytes; they add up to the text even where a token is half a character.
    pub bytes: Vec<u8>,
    /// The likeliest tokens in its place.
    pub top_logprobs: Vec<TopLogprob>,
}

/// One of the likeliest tokens.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TopLogprob {
    /// Its text.
    pub token: String,
    /// At most 0, finite.
    pub logprob: f32,
    /// Its text as bytes.
    pub bytes: Vec<u8>,
}

impl ChoiceLogprobs {
    /// The wire form.
    pub fn new(tokens: &[TokenLogprob]) -> Self {
        Self {
            content: entries(tokens),
            refusal: None,
        }
    }
}

pub(crate) fn entries(tokens: &[TokenLogprob]) -> Vec<LogprobEntry> {
    let entries = tokens.iter().map(|token| LogprobEntry {
        token: text(&token.bytes),
        logprob: finite(token.logprob.unwrap_or_default()),
        bytes: token.bytes.clone(),
        top_logprobs: token
            .top
            .iter()
            .map(|(bytes, logprob)| TopLogprob {
                token: text(bytes),
                logprob: finite(*logprob),
                bytes: bytes.clone(),
            })
            .collect(),
    });
    entries.collect()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn finite(logprob: f32) -> f32 {
    match logprob.is_nan() {
        true => LEAST,
        false => logprob.clamp(LEAST, 0.0),
    }
}
