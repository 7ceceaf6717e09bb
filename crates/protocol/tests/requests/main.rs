//! Reading requests: every wrong type, range and unsupported field is a 400 that names the field.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod bodies;
mod fields;
mod tools;

use serde_json::{Value, json};
use volley_protocol::ApiError;
use volley_protocol::openai::{ChatRequest, StreamOptions};

fn read(body: &Value) -> Result<ChatRequest, ApiError> {
    ChatRequest::from_json(body.to_string().as_bytes())
}

/// A good request with one field set.
fn with(field: &str, value: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "Hi"}]});
    body[field] = value;
    body
}

#[track_caller]
fn refused(body: &Value, param: &str, code: &str) {
    let error = read(body).expect_err(&body.to_string());
    let got = (error.status, error.param.as_deref(), error.code);
    assert_eq!(got, (400, Some(param), Some(code)), "{body}: {error}");
    assert!(error.message.len() < 400, "{error}");
}

#[test]
fn a_full_request_is_read_as_meant() {
    let request = read(&json!({
        "model": "m", "stream": true, "stream_options": {"include_usage": true},
        "messages": [{"role": "user", "content": "Hi"}],
        "temperature": 0.5, "top_p": 0.9, "top_k": -1, "min_p": 0.1, "presence_penalty": 1,
        "frequency_penalty": -1, "repetition_penalty": 1.1, "seed": -2, "stop": "END",
        "stop_token_ids": [7, 8.0], "ignore_eos": true, "min_tokens": 2, "max_tokens": 5,
        "max_completion_tokens": 9, "logit_bias": {"3": -100}, "parallel_tool_calls": false,
        "response_format": {"type": "text"}, "chat_template_kwargs": {"other": 1},
    }))
    .unwrap();
    let sampling = request.sampling();
    assert_eq!(sampling.temperature, Some(0.5));
    assert_eq!(sampling.top_p, Some(0.9));
    assert_eq!(sampling.top_k, Some(0));
    assert_eq!(sampling.min_p, Some(0.1));
    assert_eq!(sampling.presence_penalty, Some(1.0));
    assert_eq!(sampling.frequency_penalty, Some(-1.0));
    assert_eq!(sampling.repetition_penalty, Some(1.1));
    assert_eq!(sampling.seed, Some(u64::MAX - 1));
    assert_eq!(sampling.stop_token_ids, Some(vec![7, 8]));
    assert_eq!(sampling.ignore_eos, Some(true));
    assert_eq!(sampling.min_tokens, Some(2));
    assert_eq!(sampling.max_tokens, Some(9));
    assert_eq!(sampling.logit_bias.as_ref().unwrap()[&3], -100.0);
    assert_eq!(request.model.as_deref(), Some("m"));
    assert_eq!(request.stop, ["END"]);
    assert!(request.stream && request.stream_options.include_usage);
    assert!(!request.parallel_tool_calls);
    assert_eq!(request.template_arguments["other"], 1);
    assert!(request.notices.is_empty(), "{:?}", request.notices);
}

#[test]
fn stream_options_have_no_effect_without_a_stream() {
    let request = read(&with("stream_options", json!({"include_usage": true}))).unwrap();
    assert_eq!(request.stream_options, StreamOptions::default());
}

#[test]
fn thoughts_are_kept_by_default_only_with_tools() {
    let options = |body: Value| read(&body).unwrap().render_options();
    assert!(!options(with("tools", json!([]))).preserve_thinking);
    let mut body = with(
        "tools",
        json!([{"type": "function", "function": {"name": "f"}}]),
    );
    assert!(options(body.clone()).preserve_thinking);
    body["chat_template_kwargs"] = json!({"preserve_thinking": false});
    assert!(!options(body).preserve_thinking);
}
