//! The chat completions request.

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::fields::{Fields, parse_body};
use crate::messages;
use crate::recorder::Recorder;
use crate::request::{
    Features, GenerationRequest, IGNORED_FIELDS, MAX_TOP_LOGPROBS, read_choices, read_format,
    read_stop, read_stream_options, read_tool_choice, read_tools,
};
use crate::surface::Surface;

/// A checked chat completions request. It has nothing of its own: other surfaces map to it.
pub type ChatRequest = GenerationRequest;

impl GenerationRequest {
    /// Reads and checks a chat completions request for a server without extra features.
    ///
    /// # Errors
    /// 400 that names the field at fault.
    pub fn from_json(body: &[u8]) -> Result<Self, ApiError> {
        Self::from_json_with(body, &Features::default())
    }

    /// Reads and checks a chat completions request. Unknown fields are ignored, null means absent.
    ///
    /// # Errors
    /// 400 that names the field at fault.
    pub fn from_json_with(body: &[u8], features: &Features) -> Result<Self, ApiError> {
        Self::from_body(&parse_body(body)?, features)
    }

    pub(crate) fn from_body(
        body: &Map<String, Value>,
        features: &Features,
    ) -> Result<Self, ApiError> {
        let recorder = Recorder::names();
        let mut request = read_chat(&Fields::root(body, &recorder), features)?;
        let unknown = recorder.unknown_fields(body, IGNORED_FIELDS);
        request.notices.extend(unknown);
        Ok(request)
    }
}

pub(crate) fn read_chat(body: &Fields, features: &Features) -> Result<ChatRequest, ApiError> {
    let mut notices = Vec::new();
    let messages = messages::parse(body, &mut notices)?;
    let mut request = ChatRequest::read_common(body, features, Surface::Chat)?;
    request.notices.extend(notices);
    request.set_messages(messages);
    request.read_continuation(body, features)?;
    request.stream_options = read_stream_options(body, request.stream)?;
    request.n = read_choices(body, features)?;
    request.stop = read_stop(body, "stop")?;
    request.logprobs = read_logprobs(body, features)?;
    request.constraint = read_format(body, features, Surface::Chat)?;
    let tools = read_tools(body, features)?;
    let choice = read_tool_choice(body, &tools.functions, features)?;
    request.set_tools(tools, choice)?;
    request.parallel_tool_calls = body.boolean("parallel_tool_calls")?.unwrap_or(true);
    Ok(request)
}

/// `logprobs` switches them on, `top_logprobs` says how many more.
fn read_logprobs(body: &Fields, features: &Features) -> Result<Option<usize>, ApiError> {
    let wanted = match body.union("logprobs", &["boolean", "null"]) {
        None => false,
        Some(Value::Bool(wanted)) => *wanted,
        Some(Value::Number(number)) if number.as_f64() == Some(0.0) => false,
        Some(other) => return Err(ApiError::wrong_type("logprobs", "true or false", other)),
    };
    let top = body.integer("top_logprobs", 0..=MAX_TOP_LOGPROBS as i64)?;
    let top = top.unwrap_or(0) as usize;
    if !features.logprobs && (wanted || top > 0) {
        let name = if wanted { "logprobs" } else { "top_logprobs" };
        let message = format!("{name} is not supported; leave it out");
        return Err(ApiError::unsupported_parameter(name, message));
    }
    if top > 0 && !wanted {
        let message = "top_logprobs needs logprobs to be true";
        return Err(ApiError::invalid_value("top_logprobs", message));
    }
    Ok(wanted.then_some(top))
}
