//! Sampling fields of a request, checked and typed.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::ApiError;
use crate::fields::{Fields, integral};

/// Most entries of `stop`.
pub const MAX_STOPS: usize = 16;
const MAX_STOP_BYTES: usize = 1024;
const MAX_STOP_TOKEN_IDS: usize = 128;
const MAX_BIASES: usize = 1024;

/// What the request says about sampling; None leaves the choice to the model's defaults.
/// Token ids are only known to fit 32 bits; the server checks them against the vocabulary.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplingFields {
    /// 0 to 2; 0 is greedy.
    pub temperature: Option<f32>,
    /// Above 0, at most 1.
    pub top_p: Option<f32>,
    /// 0 keeps all.
    pub top_k: Option<usize>,
    /// 0 to 1.
    pub min_p: Option<f32>,
    /// -2 to 2.
    pub presence_penalty: Option<f32>,
    /// -2 to 2.
    pub frequency_penalty: Option<f32>,
    /// Above 0, at most 2.
    pub repetition_penalty: Option<f32>,
    /// Any 64 bits; none for a random one.
    pub seed: Option<u64>,
    /// Logit bias by token id, -100 to 100.
    pub logit_bias: Option<BTreeMap<u32, f32>>,
    /// Extra tokens that end the generation.
    pub stop_token_ids: Option<Vec<u32>>,
    /// Do not end at the model's end tokens.
    pub ignore_eos: Option<bool>,
    /// End tokens are ignored before this many tokens are out.
    pub min_tokens: Option<usize>,
    /// At least 1; the server lowers it to what the context leaves.
    pub max_tokens: Option<usize>,
}

impl SamplingFields {
    pub(crate) fn read(body: &Fields) -> Result<Self, ApiError> {
        let float = |name: &str, low: f64, high: f64| -> Result<Option<f32>, ApiError> {
            Ok(body.number(name, low..=high)?.map(|value| value as f32))
        };
        let positive = |name: &str, high: f64| -> Result<Option<f32>, ApiError> {
            Ok(body.positive(name, high)?.map(|value| value as f32))
        };
        let count = |name: &str, low: i64| -> Result<Option<usize>, ApiError> {
            let value = body.integer(name, low..=i64::from(u32::MAX))?;
            Ok(value.map(|value| value as usize))
        };
        let max_tokens = read_limit(body, "max_tokens")?;
        let fields = Self {
            temperature: float("temperature", 0.0, 2.0)?,
            top_p: positive("top_p", 1.0)?,
            top_k: body
                .integer("top_k", -1..=i64::from(u32::MAX))?
                .map(|k| k.max(0) as usize),
            min_p: float("min_p", 0.0, 1.0)?,
            presence_penalty: float("presence_penalty", -2.0, 2.0)?,
            frequency_penalty: float("frequency_penalty", -2.0, 2.0)?,
            repetition_penalty: positive("repetition_penalty", 2.0)?,
            // Frontends write -1 for a random one.
            seed: body
                .integer("seed", i64::MIN..=i64::MAX)?
                .filter(|seed| *seed != -1)
                .map(|seed| seed as u64),
            logit_bias: read_logit_bias(body)?,
            stop_token_ids: read_stop_token_ids(body)?,
            ignore_eos: body.boolean("ignore_eos")?,
            min_tokens: count("min_tokens", 0)?,
            max_tokens: read_limit(body, "max_completion_tokens")?.or(max_tokens),
        };
        if let (Some(min), Some(max)) = (fields.min_tokens, fields.max_tokens)
            && min > max
        {
            let message = format!("min_tokens is {min}, more than the {max} tokens allowed");
            return Err(ApiError::invalid_value("min_tokens", message));
        }
        Ok(fields)
    }
}

/// Most tokens of an answer. Some servers take -1 or 0 for no limit.
fn read_limit(body: &Fields, name: &str) -> Result<Option<usize>, ApiError> {
    let limit = body.integer(name, 1..=i64::from(u32::MAX));
    let limit = limit.map_err(|mut error| {
        if error.code == Some("invalid_value") {
            error.message += "; a large number stands for no limit";
        }
        error
    })?;
    Ok(limit.map(|tokens| tokens as usize))
}

/// Reads a stop list such as `stop`: null, a string, or a list of strings.
pub(crate) fn read_stop(body: &Fields, name: &str) -> Result<Vec<String>, ApiError> {
    let stops = read_strings(body, name, MAX_STOPS)?.unwrap_or_default();
    for (i, text) in stops.iter().enumerate() {
        if text.is_empty() || text.len() > MAX_STOP_BYTES {
            let path = format!("{name}[{i}]");
            let message = format!(
                "{path} must have 1 to {MAX_STOP_BYTES} bytes, but has {}",
                text.len()
            );
            return Err(ApiError::invalid_value(&path, message));
        }
    }
    Ok(stops)
}

/// Reads a string or a list of at most `limit` strings.
pub(crate) fn read_strings(
    fields: &Fields,
    name: &str,
    limit: usize,
) -> Result<Option<Vec<String>>, ApiError> {
    let path = fields.path_of(name);
    let values = match fields.union(name, &["string", "array", "null"]) {
        None => return Ok(None),
        Some(Value::Array(values)) => values.as_slice(),
        Some(single @ Value::String(_)) => std::slice::from_ref(single),
        Some(other) => {
            let expected = "a string or a list of strings";
            return Err(ApiError::wrong_type(&path, expected, other));
        }
    };
    if values.len() > limit {
        let message = format!("{path} has {} strings; the limit is {limit}", values.len());
        return Err(ApiError::invalid_value(&path, message));
    }
    let texts = values.iter().enumerate().map(|(i, value)| match value {
        Value::String(text) => Ok(text.clone()),
        other => Err(ApiError::wrong_type(
            &format!("{path}[{i}]"),
            "a string",
            other,
        )),
    });
    texts.collect::<Result<_, _>>().map(Some)
}

fn read_stop_token_ids(body: &Fields) -> Result<Option<Vec<u32>>, ApiError> {
    let Some(list) = body.list("stop_token_ids")? else {
        return Ok(None);
    };
    if list.len() > MAX_STOP_TOKEN_IDS {
        let message = format!(
            "stop_token_ids has {} ids; the limit is {MAX_STOP_TOKEN_IDS}",
            list.len()
        );
        return Err(ApiError::invalid_value("stop_token_ids", message));
    }
    let ids = list.iter().enumerate().map(|(i, value)| {
        let path = format!("stop_token_ids[{i}]");
        let Value::Number(number) = value else {
            return Err(ApiError::wrong_type(&path, "a token id", value));
        };
        integral(number)
            .and_then(|id| u32::try_from(id).ok())
            .ok_or_else(|| {
                ApiError::invalid_value(&path, format!("{path} is no token id: {value}"))
            })
    });
    ids.collect::<Result<_, _>>().map(Some)
}

fn read_logit_bias(body: &Fields) -> Result<Option<BTreeMap<u32, f32>>, ApiError> {
    let Some(map) = body.object("logit_bias")? else {
        return Ok(None);
    };
    let count = map.names().count();
    if count > MAX_BIASES {
        let message = format!("logit_bias has {count} entries; the limit is {MAX_BIASES}");
        return Err(ApiError::invalid_value("logit_bias", message));
    }
    let mut biases = BTreeMap::new();
    for name in map.names() {
        let id = name.parse::<u32>().map_err(|_| {
            let shown = crate::error::clipped(&format!("{name:?}"));
            ApiError::invalid_value("logit_bias", format!("logit_bias: {shown} is no token id"))
        })?;
        if let Some(bias) = map.number(name, -100.0..=100.0)? {
            biases.insert(id, bias as f32);
        }
    }
    Ok(Some(biases))
}
