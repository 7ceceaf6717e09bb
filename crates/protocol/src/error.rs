//! Errors as clients see them: OpenAI's nested shape, one constructor per row of the API's table.

use serde::Serialize;
use serde_json::{Value, json};

/// Type of an error in OpenAI's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The request cannot be served as it stands.
    InvalidRequestError,
    /// Too many requests at once.
    RateLimitError,
    /// The server failed or is not ready.
    ServerError,
}

/// One error response: HTTP status and the fields of OpenAI's nested body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// HTTP status.
    pub status: u16,
    /// `type` of the body.
    pub kind: ErrorKind,
    /// Text for people; carries the offending values.
    pub message: String,
    /// Field at fault, such as `messages[2].content`.
    pub param: Option<String>,
    /// Stable word for programs.
    pub code: Option<&'static str>,
    /// Value of the `Retry-After` header, in seconds.
    pub retry_after_s: Option<u32>,
    /// Tokens of a prompt that is too long, and the limit.
    too_long: Option<(usize, usize)>,
}

impl ApiError {
    fn new(status: u16, kind: ErrorKind, code: &'static str, message: String) -> Self {
        Self {
            status,
            kind,
            message,
            param: None,
            code: Some(code),
            retry_after_s: None,
            too_long: None,
        }
    }

    pub(crate) fn bad_request(code: &'static str, param: &str, message: String) -> Self {
        let mut error = Self::new(400, ErrorKind::InvalidRequestError, code, message);
        error.param = Some(param.to_owned());
        error
    }

    fn after(mut self, retry_after_s: u32) -> Self {
        self.retry_after_s = Some(retry_after_s);
        self
    }

    /// 400: the body is not JSON, or not an object.
    pub fn malformed_body(detail: impl std::fmt::Display) -> Self {
        let message = format!("The request body is not a valid JSON object: {detail}");
        Self::new(400, ErrorKind::InvalidRequestError, "invalid_json", message)
    }

    /// 400: a known field has another type; `got` is the value sent.
    pub fn wrong_type(param: &str, expected: &str, got: &Value) -> Self {
        let message = format!("{param} must be {expected}, but is {}", shown(got));
        Self::bad_request("invalid_type", param, message)
    }

    /// 400: a field has the right type and an impossible value.
    pub fn invalid_value(param: &str, message: impl Into<String>) -> Self {
        Self::bad_request("invalid_value", param, message.into())
    }

    /// 400: a required field is absent or null.
    pub fn missing(param: &str) -> Self {
        Self::bad_request(
            "missing_required_parameter",
            param,
            format!("{param} is required"),
        )
    }

    /// 400: a field that would change the output and is not implemented.
    pub fn unsupported_parameter(param: &str, message: impl Into<String>) -> Self {
        Self::bad_request("unsupported_parameter", param, message.into())
    }

    /// 400: content that is no text.
    pub fn unsupported_content(param: &str, part_type: &str) -> Self {
        let message = format!(
            "{param} is a part of type {part_type:?}; this model reads text only. Describe the content in words instead."
        );
        Self::bad_request("unsupported_content", param, message)
    }

    /// 400: the chat template refused the messages.
    pub fn template_refused(reason: &str) -> Self {
        let message = format!("The chat template refused the messages: {reason}");
        Self::bad_request("invalid_messages", "messages", message)
    }

    /// 400: the prompt does not leave room for one token. Agents look for these very words.
    pub fn context_length(limit_tokens: usize, prompt_tokens: usize) -> Self {
        let message = format!(
            "This model's maximum context length is {limit_tokens} tokens, but your prompt has {prompt_tokens} tokens. Shorten the messages."
        );
        let mut error = Self::bad_request("context_length_exceeded", "messages", message);
        error.too_long = Some((prompt_tokens, limit_tokens));
        error
    }

    /// 401: the API key is missing or wrong.
    pub fn invalid_api_key() -> Self {
        let message = "The API key is missing or wrong.".to_owned();
        Self::new(
            401,
            ErrorKind::InvalidRequestError,
            "invalid_api_key",
            message,
        )
    }

    /// 404: no such model.
    pub fn model_not_found(model: &str, served: &str) -> Self {
        let model = clipped(&format!("{model:?}"));
        let message = format!("The model {model} does not exist; this server has {served:?}.");
        let mut error = Self::new(
            404,
            ErrorKind::InvalidRequestError,
            "model_not_found",
            message,
        );
        error.param = Some("model".to_owned());
        error
    }

    /// 404: no such path.
    pub fn unknown_path(path: &str) -> Self {
        let message = format!("There is nothing at {}.", clipped(&format!("{path:?}")));
        Self::new(404, ErrorKind::InvalidRequestError, "not_found", message)
    }

    /// 404: no such stored response.
    pub fn response_not_found(id: &str) -> Self {
        let id = clipped(&format!("{id:?}"));
        let message = format!("There is no response {id}; it was not stored, or is gone by now.");
        let kind = ErrorKind::InvalidRequestError;
        Self::new(404, kind, "response_not_found", message)
    }

    /// 404: the request goes on from a response that is not stored.
    pub fn previous_response_not_found(id: &str) -> Self {
        let mut error = Self::response_not_found(id);
        error.code = Some("previous_response_not_found");
        error.param = Some("previous_response_id".to_owned());
        error
    }

    /// 405: the path exists with another method; the server adds the `Allow` header.
    pub fn method_not_allowed(method: &str, path: &str) -> Self {
        let (method, path) = (clipped(method), clipped(path));
        let message = format!("{path} does not take {method}.");
        Self::new(
            405,
            ErrorKind::InvalidRequestError,
            "method_not_allowed",
            message,
        )
    }

    /// 408: the body does not come, or too slowly.
    pub fn slow_body(bytes: usize, seconds: f64) -> Self {
        let message = format!(
            "The request body comes too slowly: {bytes} bytes of it came within {seconds:.1} s."
        );
        let kind = ErrorKind::InvalidRequestError;
        Self::new(408, kind, "request_timeout", message)
    }

    /// 413: the body is over the limit.
    pub fn request_too_large(limit_bytes: usize) -> Self {
        let message = format!("The request body is larger than the limit of {limit_bytes} bytes.");
        Self::new(
            413,
            ErrorKind::InvalidRequestError,
            "request_too_large",
            message,
        )
    }

    /// 415: content type or encoding that the server does not read.
    pub fn unsupported_media(message: impl Into<String>) -> Self {
        Self::new(
            415,
            ErrorKind::InvalidRequestError,
            "unsupported_media_type",
            message.into(),
        )
    }

    /// 429: the waiting queue is full.
    pub fn queue_full(retry_after_s: u32) -> Self {
        let message = format!("Too many requests are waiting; retry in {retry_after_s} s.");
        Self::new(429, ErrorKind::RateLimitError, "queue_full", message).after(retry_after_s)
    }

    /// 429: the key has as many requests under way as it may.
    pub fn too_many_of_key(limit: usize, retry_after_s: u32) -> Self {
        let message = format!(
            "This API key has {limit} requests under way, which is its limit; retry in {retry_after_s} s."
        );
        let kind = ErrorKind::RateLimitError;
        Self::new(429, kind, "concurrency_limit", message).after(retry_after_s)
    }

    /// 500: the engine failed while it worked on this request.
    pub fn engine_failure(detail: &str) -> Self {
        let message = format!("The engine failed: {detail}");
        Self::new(500, ErrorKind::ServerError, "engine_failure", message)
    }

    /// 400: the format that holds the output has become too complex on the way.
    pub fn rule_not_followed(detail: &str) -> Self {
        let message = format!("The answer cannot be held to its format: {detail}.");
        Self::new(
            400,
            ErrorKind::InvalidRequestError,
            "format_too_complex",
            message,
        )
    }

    /// 503: the model is still loading.
    pub fn model_loading(retry_after_s: u32) -> Self {
        let message = "The model is still loading.".to_owned();
        Self::new(503, ErrorKind::ServerError, "model_loading", message).after(retry_after_s)
    }

    /// 503: the server takes no more requests.
    pub fn shutting_down(retry_after_s: u32) -> Self {
        let message = "The server is shutting down.".to_owned();
        Self::new(503, ErrorKind::ServerError, "shutting_down", message).after(retry_after_s)
    }

    /// 504: the request's deadline has passed.
    pub fn timeout(limit_s: f64) -> Self {
        let message = format!("The request took longer than {limit_s} s.");
        Self::new(504, ErrorKind::ServerError, "timeout", message)
    }

    /// The body `{"error": {message, type, param, code}}`, of responses and of SSE error events.
    pub fn to_json(&self) -> Value {
        json!({"error": {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }})
    }

    /// The body of Anthropic's surface, `{"type": "error", "error": {type, message}, request_id}`.
    pub fn to_anthropic_json(&self, request_id: Option<&str>) -> Value {
        let kind = match self.status {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            503 | 529 => "overloaded_error",
            504 => "timeout_error",
            500..=599 => "api_error",
            _ => "invalid_request_error",
        };
        // Agents look for these very words.
        let message = match self.too_long {
            Some((tokens, limit)) => {
                format!("prompt is too long: {tokens} tokens > {limit} maximum")
            }
            None => self.message.clone(),
        };
        let mut body = json!({"type": "error", "error": {"type": kind, "message": message}});
        if let Some(id) = request_id {
            body["request_id"] = id.into();
        }
        body
    }
}

/// What goes wrong with a chat template.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The template itself is broken.
    #[error("chat template: {0}")]
    Syntax(minijinja::Error),
    /// The template called `raise_exception` with this text.
    #[error("{0}")]
    Refused(String),
    /// Rendering failed in another way.
    #[error("chat template: {0}")]
    Render(minijinja::Error),
}

impl From<TemplateError> for ApiError {
    fn from(error: TemplateError) -> Self {
        Self::template_refused(&error.to_string())
    }
}

/// A value as an error message shows it: kind and, where short, text.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::Bool(_) | Value::Number(_) => clipped(&value.to_string()),
        Value::String(text) => format!("the string {}", clipped(&format!("{text:?}"))),
    }
}

/// At most 60 characters of `text`.
pub(crate) fn clipped(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_is_nested_with_all_four_keys() {
        let body = ApiError::context_length(65536, 70112).to_json();
        let error = &body["error"];
        assert_eq!(error["type"], "invalid_request_error");
        assert_eq!(error["code"], "context_length_exceeded");
        assert_eq!(error["param"], "messages");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("maximum context length is 65536 tokens"));
        assert!(message.contains("your prompt has 70112 tokens"));
        assert_eq!(
            ApiError::queue_full(3).to_json()["error"]["param"],
            Value::Null
        );
    }

    #[test]
    fn long_values_are_clipped() {
        let error = ApiError::wrong_type("seed", "an integer", &Value::from("x".repeat(5000)));
        assert!(error.message.len() < 200, "{}", error.message);
    }
}
