//! Requests at and beyond what is taken: B48, B77, B84 to B90.

use serde_json::json;
use volley_protocol::openai::{ChatRequest, StreamOptions};
use volley_protocol::request::RawPrompt;
use volley_protocol::{ApiError, Features, Surface};

use super::{chat, completion, refused, responses};

#[test]
fn b48_reserved_names_of_the_renderer() {
    for (name, value) in [
        ("tokenize", json!(true)),
        ("messages", json!([])),
        ("tools", json!([])),
        ("add_generation_prompt", json!(false)),
        ("enable_thinking", json!("no")),
    ] {
        let path = format!("chat_template_kwargs.{name}");
        refused(chat(json!({"chat_template_kwargs": {name: value}})), &path);
    }
    refused(
        chat(json!({"chat_template": "{% for i in range(10**9) %}x{% endfor %}"})),
        "chat_template",
    );
}

#[test]
fn b77_penalties_out_of_range() {
    refused(chat(json!({"top_p": 1e-60})), "top_p");
    for value in [json!(0), json!(-1), json!(1e-60)] {
        refused(
            chat(json!({"repetition_penalty": value})),
            "repetition_penalty",
        );
    }
    let not_a_number =
        br#"{"messages": [{"role": "user", "content": "x"}], "repetition_penalty": NaN}"#;
    assert_eq!(
        ChatRequest::from_json(not_a_number).unwrap_err().status,
        400
    );
}

#[test]
fn b84_stream_options_without_a_stream_are_tolerated() {
    let asked = json!({"include_usage": true, "continuous_usage_stats": true});
    for fields in [
        json!({"stream_options": asked}),
        json!({"stream": true, "stream_options": null}),
    ] {
        assert_eq!(
            chat(fields).unwrap().stream_options,
            StreamOptions::default()
        );
    }
}

#[test]
fn b85_limits_of_the_answer() {
    for value in [
        json!(0),
        json!(-1),
        json!(1.5),
        json!("10"),
        json!(9_223_372_036_854_775_808_u64),
    ] {
        for name in ["max_tokens", "max_completion_tokens"] {
            refused(chat(json!({name: value})), name);
        }
        refused(
            responses(&json!({"input": "Hi", "max_output_tokens": value})),
            "max_output_tokens",
        );
        refused(
            completion(json!({"prompt": "x", "max_tokens": value})),
            "max_tokens",
        );
    }
    let both = chat(json!({"max_tokens": 5, "max_completion_tokens": 7})).unwrap();
    assert_eq!(both.sampling().max_tokens, Some(7));
}

#[test]
fn b86_a_prompt_larger_than_the_context() {
    let error = ApiError::context_length(8192, 8193);
    let body = Surface::Chat.error_body(&error, None);
    assert_eq!(body["error"]["code"], "context_length_exceeded");
    assert!(
        body["error"]["message"]
            .as_str()
            .unwrap()
            .contains("maximum context length is 8192 tokens")
    );
    assert_eq!(
        Surface::Messages.error_body(&error, Some("req_1")),
        json!({"type": "error", "request_id": "req_1", "error": {"type": "invalid_request_error",
            "message": "prompt is too long: 8193 tokens > 8192 maximum"}})
    );
}

#[test]
fn b87_fan_out_is_bounded() {
    refused(chat(json!({"n": 1_000_000})), "n");
    refused(chat(json!({"n": 0})), "n");
    refused(chat(json!({"n": 9})), "n");
    assert_eq!(
        chat(json!({"n": 8, "temperature": 0})).unwrap().choices(),
        8
    );
    refused(
        completion(json!({"prompt": "x", "best_of": 1_000_000_000})),
        "best_of",
    );
    let many = vec!["x"; 200_000];
    for prompt in [json!(many), json!([]), json!([[]])] {
        let read = completion(json!({"prompt": prompt}));
        assert_eq!(read.unwrap_err().status, 400);
    }
    refused(completion(json!({"prompt": [""]})), "prompt[0]");
    let request = completion(json!({"prompt": ["a", "b"], "n": 2})).unwrap();
    assert_eq!(request.generation.choices(), 4);
}

#[test]
fn b88_token_ids_out_of_range() {
    for (prompt, param) in [
        (json!([0, -1]), "prompt[1]"),
        (json!([1_099_511_627_776_u64]), "prompt[0]"),
        (json!([1.5]), "prompt[0]"),
        (json!([1, "x"]), "prompt[1]"),
        (json!([[1], [2, -3]]), "prompt[1][1]"),
        (json!(["x", 5]), "prompt[1]"),
    ] {
        refused(completion(json!({"prompt": prompt})), param);
    }
    refused(chat(json!({"logit_bias": {"abc": 1}})), "logit_bias");
    refused(chat(json!({"logit_bias": {"5": 101}})), "logit_bias.5");
    refused(chat(json!({"stop_token_ids": [-1]})), "stop_token_ids[0]");
    let tokens = completion(json!({"prompt": [[1, 2.0], [3]]})).unwrap();
    let expected = [RawPrompt::Tokens(vec![1, 2]), RawPrompt::Tokens(vec![3])];
    assert_eq!(tokens.generation.raw_prompts, expected);
}

#[test]
fn b89_b90_bodies_that_are_no_object_or_no_text() {
    let deep = "[".repeat(100_000);
    let bodies: [&[u8]; 15] = [
        b"",
        b"{",
        b"\"text\"",
        b"[1]",
        b"42",
        b"null",
        b"{\"messages\": [], }",
        b"{\"a\":1}trailing",
        b"{\"temperature\": NaN}",
        b"{\"messages\": \"\\ud83d\"}",
        b"\x1F\x8B\x08\x00",
        b"{\"messages\": \"\xFF\"}",
        b"{\"input\": \"\\ud83d\"}",
        b"{\"prompt\": \"\xC0\xAF\"}",
        deep.as_bytes(),
    ];
    for surface in [
        Surface::Chat,
        Surface::Completions,
        Surface::Responses,
        Surface::Messages,
    ] {
        for body in bodies {
            let error = surface.read(body, &Features::all()).unwrap_err();
            assert_eq!(
                (error.status, error.code),
                (400, Some("invalid_json")),
                "{body:.40?}"
            );
            assert_eq!(error.to_json()["error"]["type"], "invalid_request_error");
        }
        let error = surface
            .read(b"\xEF\xBB\xBF{}", &Features::all())
            .unwrap_err();
        assert_eq!(error.code, Some("missing_required_parameter"), "{error}");
    }
}
