//! Fields beside messages and tools.

use serde_json::{Value, json};
use volley_protocol::openai::{IGNORED_FIELDS, UNSUPPORTED_FIELDS};

use crate::{read, refused, with};

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
    let seed = |value: i64| read(&with("seed", json!(value))).unwrap().sampling().seed;
    assert_eq!([seed(-1), seed(-2)], [None, Some(u64::MAX - 1)]);
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
