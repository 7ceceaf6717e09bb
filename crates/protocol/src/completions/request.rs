//! The completions request.

use serde_json::{Map, Value};

use crate::error::{ApiError, clipped};
use crate::fields::{Fields, integral, parse_body};
use crate::recorder::Recorder;
use crate::request::{
    Features, GenerationRequest, IGNORED_FIELDS, MAX_TOP_LOGPROBS, RawPrompt, read_choices,
    read_format, read_stop, read_stream_options,
};
use crate::surface::Surface;

/// Tokens of an answer unless the request says otherwise, as at OpenAI.
const DEFAULT_MAX_TOKENS: usize = 16;

/// A checked completions request.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionRequest {
    /// Everything but the echo. The prompts are its `raw_prompts`; the choice of prompt `p` and
    /// answer `k` has the index `p * n + k`.
    pub generation: GenerationRequest,
    /// The text begins with the prompt, and so do logprobs. The prompt is to be given to the
    /// reply as the first step.
    pub echo: bool,
}

impl CompletionRequest {
    /// Reads and checks a request body. Unknown fields are ignored, null means absent.
    ///
    /// # Errors
    /// 400 that names the field at fault.
    pub fn from_json(body: &[u8], features: &Features) -> Result<Self, ApiError> {
        Self::from_body(&parse_body(body)?, features)
    }

    pub(crate) fn from_body(
        body: &Map<String, Value>,
        features: &Features,
    ) -> Result<Self, ApiError> {
        let recorder = Recorder::names();
        let mut request = read_completion(&Fields::root(body, &recorder), features)?;
        let unknown = recorder.unknown_fields(body, IGNORED_FIELDS);
        request.generation.notices.extend(unknown);
        Ok(request)
    }
}

pub(crate) fn read_completion(
    body: &Fields,
    features: &Features,
) -> Result<CompletionRequest, ApiError> {
    let raw_prompts = read_prompts(body, features)?;
    let mut generation = GenerationRequest::read_common(body, features, Surface::Completions)?;
    generation.raw_prompts = raw_prompts;
    generation.stream_options = read_stream_options(body, generation.stream)?;
    generation.n = read_choices(body, features)?;
    generation.stop = read_stop(body, "stop")?;
    generation.constraint = read_format(body, features, Surface::Completions)?;
    generation.logprobs = read_logprobs(body, features)?;
    generation
        .sampling
        .max_tokens
        .get_or_insert(DEFAULT_MAX_TOKENS);
    check_best_of(body, generation.n)?;
    if body.string("suffix")?.is_some_and(|text| !text.is_empty()) {
        let message = "filling in before a suffix is not supported; leave it out";
        return Err(ApiError::unsupported_parameter("suffix", message));
    }
    let echo = body.boolean("echo")?.unwrap_or(false);
    if echo && !features.echo {
        let message = "echo is not supported; leave it out or set it to false";
        return Err(ApiError::unsupported_parameter("echo", message));
    }
    Ok(CompletionRequest { generation, echo })
}

fn check_best_of(body: &Fields, n: usize) -> Result<(), ApiError> {
    match body.integer("best_of", 1..=i64::MAX)? {
        Some(best) if best as usize != n => Err(ApiError::unsupported_parameter(
            "best_of",
            format!("best_of is {best}, but only the same as n ({n}) is supported"),
        )),
        _ => Ok(()),
    }
}

fn read_logprobs(body: &Fields, features: &Features) -> Result<Option<usize>, ApiError> {
    let top = body.integer("logprobs", 0..=MAX_TOP_LOGPROBS as i64)?;
    match top {
        Some(top) if !features.logprobs && top > 0 => Err(ApiError::unsupported_parameter(
            "logprobs",
            "logprobs are not supported; leave it out",
        )),
        top if features.logprobs => Ok(top.map(|top| top as usize)),
        _ => Ok(None),
    }
}

/// A text, a list of texts, a list of token ids, or a list of such lists.
fn read_prompts(body: &Fields, features: &Features) -> Result<Vec<RawPrompt>, ApiError> {
    const PARAM: &str = "prompt";
    let prompt = body
        .union(PARAM, &["string", "array"])
        .ok_or_else(|| ApiError::missing(PARAM))?;
    let list = match prompt {
        Value::String(text) => return Ok(vec![text_prompt(text, PARAM)?]),
        Value::Array(list) => list,
        other => {
            let expected = "a string, a list of strings, or token ids";
            return Err(ApiError::wrong_type(PARAM, expected, other));
        }
    };
    if let Some(Value::Number(_)) = list.first() {
        return Ok(vec![token_prompt(list, PARAM)?]);
    }
    let limit = features.max_prompts;
    if list.is_empty() || list.len() > limit {
        let message = format!(
            "prompt must hold 1 to {limit} prompts, but has {}",
            list.len()
        );
        return Err(ApiError::invalid_value(PARAM, message));
    }
    let prompts = list.iter().enumerate().map(|(i, prompt)| {
        let path = format!("{PARAM}[{i}]");
        match prompt {
            Value::String(text) => text_prompt(text, &path),
            Value::Array(ids) => token_prompt(ids, &path),
            other => Err(ApiError::wrong_type(&path, "a string or token ids", other)),
        }
    });
    prompts.collect()
}

fn text_prompt(text: &str, path: &str) -> Result<RawPrompt, ApiError> {
    match text.is_empty() {
        true => Err(ApiError::invalid_value(path, format!("{path} is empty"))),
        false => Ok(RawPrompt::Text(text.to_owned())),
    }
}

fn token_prompt(ids: &[Value], path: &str) -> Result<RawPrompt, ApiError> {
    if ids.is_empty() {
        return Err(ApiError::invalid_value(path, format!("{path} is empty")));
    }
    let tokens = ids.iter().enumerate().map(|(i, id)| {
        let path = format!("{path}[{i}]");
        let Value::Number(number) = id else {
            return Err(ApiError::wrong_type(&path, "a token id", id));
        };
        let token = integral(number).and_then(|id| u32::try_from(id).ok());
        token.ok_or_else(|| {
            let shown = clipped(&number.to_string());
            ApiError::invalid_value(&path, format!("{path} is no token id: {shown}"))
        })
    });
    tokens.collect::<Result<_, _>>().map(RawPrompt::Tokens)
}
