//! Reading requests: every wrong type, range and unsupported field is a 400 that names the field.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use serde_json::{Value, json};
use volley_protocol::ApiError;
use volley_protocol::openai::{
    ChatRequest, IGNORED_FIELDS, StreamOptions, ToolChoice, UNSUPPORTED_FIELDS,
};

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
fn bodies_that_are_no_object() {
    let deep = "[".repeat(100_000);
    let bodies: [&[u8]; 14] = [
        b"",
        b"{",
        b"\"text\"",
        b"[1]",
        b"42",
        b"null",
        b"{\"messages\": [], }",
        b"{\"a\":1}trailing",
        b"{\"temperature\": NaN}",
        b"{\"messages\": \"\xFF\"}",
        b"{\"messages\": \"\\ud83d\"}",
        b"{\"messages\": \"\xC0\xAF\"}",
        b"\x1F\x8B\x08\x00",
        deep.as_bytes(),
    ];
    for body in bodies {
        let error = ChatRequest::from_json(body).unwrap_err();
        assert_eq!(
            (error.status, error.code),
            (400, Some("invalid_json")),
            "{body:.40?}"
        );
        assert_eq!(error.to_json()["error"]["type"], "invalid_request_error");
    }
}

#[test]
fn odd_bodies_that_are_fine() {
    let body = b"\xEF\xBB\xBF{\"messages\": [{\"role\": \"user\", \"content\": \"a\\u0000b\"}], \"messages2\": 1}";
    let request = ChatRequest::from_json(body).unwrap();
    assert_eq!(request.messages[0].content, "a\0b");
    let twice =
        b"{\"seed\": 1, \"seed\": 2, \"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}";
    assert_eq!(
        ChatRequest::from_json(twice).unwrap().sampling().seed,
        Some(2)
    );
}

#[test]
fn messages_of_a_wrong_shape() {
    let image = json!({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}});
    let call = |call: Value| json!([{"role": "assistant", "tool_calls": [call]}]);
    let cases = [
        (json!("x"), "messages", "invalid_type"),
        (json!([]), "messages", "invalid_value"),
        (json!([123]), "messages[0]", "invalid_type"),
        (
            json!([{}]),
            "messages[0].role",
            "missing_required_parameter",
        ),
        (json!([{"role": 123}]), "messages[0].role", "invalid_type"),
        (
            json!([{"role": "wizard", "content": "x"}]),
            "messages[0].role",
            "invalid_value",
        ),
        (
            json!([{"role": "user"}]),
            "messages[0].content",
            "missing_required_parameter",
        ),
        (
            json!([{"role": "user", "content": null}]),
            "messages[0].content",
            "missing_required_parameter",
        ),
        (
            json!([{"role": "user", "content": 5}]),
            "messages[0].content",
            "invalid_type",
        ),
        (
            json!([{"role": "user", "content": "a"}, {"role": "user", "content": [5]}]),
            "messages[1].content[0]",
            "invalid_type",
        ),
        (
            json!([{"role": "user", "content": [{"type": "text"}]}]),
            "messages[0].content[0].text",
            "missing_required_parameter",
        ),
        (
            json!([{"role": "user", "content": [{"type": "text", "text": 1}]}]),
            "messages[0].content[0].text",
            "invalid_type",
        ),
        (
            json!([{"role": "user", "content": [{"type": "text", "text": "a"}, image]}]),
            "messages[0].content[1]",
            "unsupported_content",
        ),
        (
            json!([{"role": "tool", "content": [{"type": "input_audio"}]}]),
            "messages[0].content[0]",
            "unsupported_content",
        ),
        (
            json!([{"role": "assistant", "tool_calls": {}}]),
            "messages[0].tool_calls",
            "invalid_type",
        ),
        (call(json!(1)), "messages[0].tool_calls[0]", "invalid_type"),
        (
            call(json!({})),
            "messages[0].tool_calls[0].function",
            "missing_required_parameter",
        ),
        (
            call(json!({"function": {}})),
            "messages[0].tool_calls[0].function.name",
            "missing_required_parameter",
        ),
        (
            call(json!({"function": {"name": "f", "arguments": 5}})),
            "messages[0].tool_calls[0].function.arguments",
            "invalid_type",
        ),
        (
            json!([{"role": "assistant", "reasoning_content": ["x"]}]),
            "messages[0].reasoning_content",
            "invalid_type",
        ),
    ];
    for (messages, param, code) in cases {
        refused(&json!({"messages": messages}), param, code);
    }
    refused(&json!({}), "messages", "missing_required_parameter");
    refused(
        &json!({"messages": null}),
        "messages",
        "missing_required_parameter",
    );
}

#[test]
fn numbers_at_and_beyond_their_limits() {
    let huge: Value = serde_json::from_str("18446744073709551616").unwrap();
    let infinite: Value = serde_json::from_str("1e400").unwrap();
    let good = [
        (
            "temperature",
            vec![json!(0), json!(2), json!(2.0), json!(1e-45), json!(-0.0)],
        ),
        ("top_p", vec![json!(1e-6), json!(1)]),
        ("top_k", vec![json!(-1), json!(0), json!(20), json!(20.0)]),
        ("min_p", vec![json!(0), json!(1)]),
        ("presence_penalty", vec![json!(-2), json!(2)]),
        ("frequency_penalty", vec![json!(-2), json!(2)]),
        ("repetition_penalty", vec![json!(0.1), json!(2)]),
        ("seed", vec![json!(i64::MIN), json!(i64::MAX), json!(0)]),
        ("n", vec![json!(1), json!(1.0)]),
        (
            "max_tokens",
            vec![json!(1), json!(10.0), json!(4_000_000_000_u32)],
        ),
        ("max_completion_tokens", vec![json!(1)]),
        ("min_tokens", vec![json!(0)]),
    ];
    for (name, values) in good {
        for value in values {
            read(&with(name, value.clone())).unwrap_or_else(|e| panic!("{name} {value}: {e}"));
        }
        read(&with(name, Value::Null)).unwrap_or_else(|e| panic!("{name} null: {e}"));
        refused(&with(name, json!("1")), name, "invalid_type");
        refused(&with(name, json!([1])), name, "invalid_type");
        refused(&with(name, huge.clone()), name, "invalid_value");
        refused(&with(name, infinite.clone()), name, "invalid_value");
    }
    let bad = [
        ("temperature", vec![json!(-0.1), json!(2.1)]),
        ("top_p", vec![json!(0), json!(-1), json!(1.1)]),
        ("top_k", vec![json!(-2), json!(-5)]),
        ("min_p", vec![json!(-0.1), json!(1.5)]),
        ("presence_penalty", vec![json!(-3)]),
        ("frequency_penalty", vec![json!(2.5)]),
        ("repetition_penalty", vec![json!(0), json!(-1), json!(2.5)]),
        ("n", vec![json!(0), json!(1_000_000)]),
        (
            "max_tokens",
            vec![json!(0), json!(-1), json!(9_223_372_036_854_775_808_u64)],
        ),
        ("max_completion_tokens", vec![json!(0)]),
        ("min_tokens", vec![json!(-1)]),
    ];
    for (name, values) in bad {
        for value in values {
            refused(&with(name, value), name, "invalid_value");
        }
    }
    for name in ["top_k", "seed", "max_tokens", "n"] {
        refused(&with(name, json!(1.5)), name, "invalid_type");
    }
    let mut body = with("min_tokens", json!(9));
    body["max_tokens"] = json!(3);
    refused(&body, "min_tokens", "invalid_value");
}

#[test]
fn lists_maps_and_switches() {
    let many = vec!["x"; 17];
    let cases = [
        ("stream", json!("yes"), "stream", "invalid_type"),
        (
            "stream_options",
            json!([]),
            "stream_options",
            "invalid_type",
        ),
        (
            "stream_options",
            json!({"include_usage": 1}),
            "stream_options.include_usage",
            "invalid_type",
        ),
        ("model", json!(5), "model", "invalid_type"),
        ("stop", json!(5), "stop", "invalid_type"),
        ("stop", json!(["a", 5]), "stop[1]", "invalid_type"),
        ("stop", json!(["a", ""]), "stop[1]", "invalid_value"),
        ("stop", json!(""), "stop[0]", "invalid_value"),
        ("stop", json!("x".repeat(2000)), "stop[0]", "invalid_value"),
        ("stop", json!(many), "stop", "invalid_value"),
        (
            "stop_token_ids",
            json!([-1]),
            "stop_token_ids[0]",
            "invalid_value",
        ),
        (
            "stop_token_ids",
            json!([1, 1.5]),
            "stop_token_ids[1]",
            "invalid_value",
        ),
        (
            "stop_token_ids",
            json!(["1"]),
            "stop_token_ids[0]",
            "invalid_type",
        ),
        ("stop_token_ids", json!(5), "stop_token_ids", "invalid_type"),
        (
            "logit_bias",
            json!({"abc": 1}),
            "logit_bias",
            "invalid_value",
        ),
        (
            "logit_bias",
            json!({"-1": 1}),
            "logit_bias",
            "invalid_value",
        ),
        (
            "logit_bias",
            json!({"5": 101}),
            "logit_bias.5",
            "invalid_value",
        ),
        (
            "logit_bias",
            json!({"5": "1"}),
            "logit_bias.5",
            "invalid_type",
        ),
        ("logit_bias", json!([]), "logit_bias", "invalid_type"),
        ("ignore_eos", json!(1), "ignore_eos", "invalid_type"),
        (
            "parallel_tool_calls",
            json!("no"),
            "parallel_tool_calls",
            "invalid_type",
        ),
        (
            "reasoning_effort",
            json!("extreme"),
            "reasoning_effort",
            "invalid_value",
        ),
        (
            "enable_thinking",
            json!("no"),
            "enable_thinking",
            "invalid_type",
        ),
        (
            "chat_template_kwargs",
            json!([]),
            "chat_template_kwargs",
            "invalid_type",
        ),
        (
            "chat_template_kwargs",
            json!({"enable_thinking": "no"}),
            "chat_template_kwargs.enable_thinking",
            "invalid_type",
        ),
        (
            "chat_template_kwargs",
            json!({"tokenize": true}),
            "chat_template_kwargs.tokenize",
            "invalid_value",
        ),
        (
            "chat_template_kwargs",
            json!({"messages": []}),
            "chat_template_kwargs.messages",
            "invalid_value",
        ),
        (
            "chat_template_kwargs",
            json!({"x": "y".repeat(10_000)}),
            "chat_template_kwargs.x",
            "invalid_value",
        ),
        (
            "response_format",
            json!("json"),
            "response_format",
            "invalid_type",
        ),
        (
            "response_format",
            json!({}),
            "response_format.type",
            "missing_required_parameter",
        ),
        (
            "response_format",
            json!({"type": "xml"}),
            "response_format.type",
            "invalid_value",
        ),
        (
            "response_format",
            json!({"type": "json_object"}),
            "response_format",
            "unsupported_parameter",
        ),
        (
            "response_format",
            json!({"type": "json_schema", "json_schema": {}}),
            "response_format",
            "unsupported_parameter",
        ),
        ("n", json!(2), "n", "unsupported_parameter"),
    ];
    for (name, value, param, code) in cases {
        refused(&with(name, value), param, code);
    }
    let kwargs: serde_json::Map<_, _> = (0..100).map(|i| (format!("k{i}"), json!(1))).collect();
    refused(
        &with("chat_template_kwargs", kwargs.into()),
        "chat_template_kwargs",
        "invalid_value",
    );
    let biases: serde_json::Map<_, _> = (0..5000).map(|i| (i.to_string(), json!(1))).collect();
    refused(
        &with("logit_bias", biases.into()),
        "logit_bias",
        "invalid_value",
    );
}

#[test]
fn tools_of_a_wrong_shape() {
    let function = |function: Value| json!([{"type": "function", "function": function}]);
    let f = || json!({"type": "function", "function": {"name": "f"}});
    let cases = [
        (json!({}), "tools", "invalid_type"),
        (json!([1]), "tools[0]", "invalid_type"),
        (
            json!([{"type": "web_search"}]),
            "tools[0].type",
            "invalid_value",
        ),
        (
            json!([{"type": "function"}]),
            "tools[0].function",
            "missing_required_parameter",
        ),
        (
            function(json!({})),
            "tools[0].function.name",
            "missing_required_parameter",
        ),
        (
            function(json!({"name": ""})),
            "tools[0].function.name",
            "invalid_value",
        ),
        (
            function(json!({"name": "a\n<b>"})),
            "tools[0].function.name",
            "invalid_value",
        ),
        (
            function(json!({"name": "x".repeat(10_000)})),
            "tools[0].function.name",
            "invalid_value",
        ),
        (
            function(json!({"name": "f", "parameters": "x"})),
            "tools[0].function.parameters",
            "invalid_type",
        ),
        (json!([f(), f()]), "tools[1].function.name", "invalid_value"),
    ];
    for (tools, param, code) in cases {
        refused(&with("tools", tools), param, code);
    }
}

#[test]
fn tool_choices() {
    let f = json!([{"type": "function", "function": {"name": "f"}}]);
    let named = |name: &str| json!({"type": "function", "function": {"name": name}});
    let choose = |tools: &Value, choice: Value| {
        let mut body = with("tools", tools.clone());
        body["tool_choice"] = choice;
        body
    };
    for tools in [json!(null), json!([])] {
        for choice in [json!(null), json!("none"), json!("auto")] {
            assert!(
                read(&choose(&tools, choice))
                    .unwrap()
                    .active_tools()
                    .is_empty()
            );
        }
        for choice in [json!("required"), named("f")] {
            refused(&choose(&tools, choice), "tool_choice", "invalid_value");
        }
    }
    let request = read(&choose(&f, json!("none"))).unwrap();
    assert_eq!(
        (request.tool_choice, request.active_tools().len()),
        (ToolChoice::None, 0)
    );
    let request = read(&choose(&f, json!(null))).unwrap();
    assert_eq!(
        (request.tool_choice, request.active_tools().len()),
        (ToolChoice::Auto, 1)
    );
    for choice in [
        json!("required"),
        json!("any"),
        named("f"),
        json!({"type": "tool", "name": "f"}),
    ] {
        refused(&choose(&f, choice), "tool_choice", "unsupported_parameter");
    }
    for choice in [named("g"), json!("sometimes")] {
        refused(&choose(&f, choice), "tool_choice", "invalid_value");
    }
    refused(&choose(&f, json!(5)), "tool_choice", "invalid_type");
}

#[test]
fn unsupported_fields_pass_only_when_neutral() {
    for (name, neutral) in UNSUPPORTED_FIELDS {
        read(&with(name, Value::Null)).unwrap();
        for text in *neutral {
            read(&with(name, serde_json::from_str(text).unwrap())).unwrap();
        }
        refused(
            &with(name, json!({"surely": "not neutral"})),
            name,
            "unsupported_parameter",
        );
    }
    refused(
        &with("logprobs", json!(true)),
        "logprobs",
        "unsupported_parameter",
    );
    refused(
        &with("top_logprobs", json!(5)),
        "top_logprobs",
        "unsupported_parameter",
    );
    refused(
        &with("modalities", json!(["text", "audio"])),
        "modalities",
        "unsupported_parameter",
    );
    read(&with("length_penalty", json!(1.0))).unwrap();
}

#[test]
fn other_fields_are_ignored_whatever_they_hold() {
    for name in IGNORED_FIELDS.iter().chain(&["something_new"]) {
        for value in [json!(5), json!("x"), json!({"a": [1]})] {
            assert_eq!(
                read(&with(name, value)).unwrap(),
                read(&with(name, Value::Null)).unwrap()
            );
        }
    }
}

#[test]
fn a_full_request_is_read_as_meant() {
    let request = read(&json!({
        "model": "m", "stream": true, "stream_options": {"include_usage": true},
        "messages": [{"role": "user", "content": "Hi"}],
        "temperature": 0.5, "top_p": 0.9, "top_k": -1, "min_p": 0.1, "presence_penalty": 1,
        "frequency_penalty": -1, "repetition_penalty": 1.1, "seed": -1, "stop": "END",
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
    assert_eq!(sampling.seed, Some(u64::MAX));
    assert_eq!(sampling.stop_token_ids, Some(vec![7, 8]));
    assert_eq!(sampling.ignore_eos, Some(true));
    assert_eq!(sampling.min_tokens, Some(2));
    assert_eq!(sampling.max_tokens, Some(9));
    assert_eq!(sampling.logit_bias.as_ref().unwrap()[&3], -100.0);
    assert_eq!(request.model.as_deref(), Some("m"));
    assert_eq!(request.stop, ["END"]);
    assert!(request.stream && request.stream_options.include_usage);
    assert!(!request.parallel_tool_calls);
    assert_eq!(request.notices.len(), 1, "{:?}", request.notices);
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
