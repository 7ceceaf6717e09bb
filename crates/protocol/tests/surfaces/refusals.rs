//! Bad requests of the surfaces beside chat, and features that are off.

use serde_json::{Value, json};
use volley_protocol::anthropic::MessagesRequest;
use volley_protocol::tokenize::{DetokenizeRequest, TokenizeInput, TokenizeRequest};
use volley_protocol::{ApiError, Features, Surface};

use crate::heard::request;

const ALL: [Surface; 4] = [
    Surface::Chat,
    Surface::Completions,
    Surface::Responses,
    Surface::Messages,
];

fn read(surface: Surface, body: &Value, features: &Features) -> Result<(), ApiError> {
    surface
        .read(body.to_string().as_bytes(), features)
        .map(drop)
}

#[track_caller]
fn refused(surface: Surface, body: &Value, param: &str, code: &str) {
    let error = read(surface, body, &Features::all()).expect_err(&body.to_string());
    let got = (error.status, error.param.as_deref(), error.code);
    assert_eq!(got, (400, Some(param), Some(code)), "{body}: {error}");
    assert!(error.message.len() < 500, "{error}");
}

fn with(surface: Surface, name: &str, value: Value) -> Value {
    request(surface, &json!({}), &json!({name: value}))
}

/// Some servers take -1 for no limit: the error says what does that here.
#[test]
fn how_to_ask_for_no_limit_is_told() {
    for (surface, name) in [
        (Surface::Chat, "max_tokens"),
        (Surface::Chat, "max_completion_tokens"),
        (Surface::Completions, "max_tokens"),
        (Surface::Messages, "max_tokens"),
    ] {
        for value in [-1, 0] {
            let body = with(surface, name, json!(value));
            let error = read(surface, &body, &Features::all()).unwrap_err();
            assert!(error.message.contains("stands for no limit"), "{error}");
        }
    }
}

#[test]
fn wrong_types_are_named_on_every_surface() {
    for surface in ALL {
        for (name, value) in [
            ("model", json!(5)),
            ("stream", json!("yes")),
            ("temperature", json!("hot")),
            ("top_p", json!([])),
            ("top_k", json!(1.5)),
            ("seed", json!({})),
            ("priority", json!("high")),
            ("cache_salt", json!(5)),
            ("include_cache_details", json!("yes")),
            ("speculative", json!(5)),
            ("enable_thinking", json!("no")),
            ("reasoning", json!("high")),
        ] {
            refused(surface, &with(surface, name, value), name, "invalid_type");
            read(surface, &with(surface, name, Value::Null), &Features::all()).unwrap();
        }
        for (name, value, param) in [
            ("temperature", json!(2.5), "temperature"),
            ("top_p", json!(0), "top_p"),
            ("cache_salt", json!(""), "cache_salt"),
            (
                "reasoning",
                json!({"effort": "extreme"}),
                "reasoning.effort",
            ),
            ("thinking", json!({"type": "maybe"}), "thinking.type"),
            (
                "speculative",
                json!({"max_drafts": -1}),
                "speculative.max_drafts",
            ),
            ("thinking_budget", json!(-2), "thinking_budget"),
        ] {
            refused(surface, &with(surface, name, value), param, "invalid_value");
        }
        refused(
            surface,
            &with(surface, "chat_template", json!("x")),
            "chat_template",
            "unsupported_parameter",
        );
        if surface != Surface::Chat {
            let body = with(surface, "continue_final_message", json!(true));
            refused(
                surface,
                &body,
                "continue_final_message",
                "unsupported_parameter",
            );
        }
        refused(
            surface,
            &with(surface, "use_beam_search", json!(true)),
            "use_beam_search",
            "unsupported_parameter",
        );
    }
}

#[test]
fn what_is_off_is_refused_by_name() {
    let tool = json!({"f": null});
    let answer = json!([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]);
    let cases = [
        (
            ALL.as_slice(),
            json!({"thinking_budget": 5}),
            "thinking_budget",
        ),
        (
            &ALL,
            json!({"thinking": {"type": "enabled", "budget_tokens": 1024}}),
            "thinking.budget_tokens",
        ),
        (
            &ALL,
            json!({"reasoning": {"max_tokens": 5}}),
            "reasoning.max_tokens",
        ),
        (
            &ALL,
            json!({"include_reasoning": false}),
            "include_reasoning",
        ),
        (
            &ALL,
            json!({"reasoning": {"exclude": true}}),
            "reasoning.exclude",
        ),
        (
            &ALL,
            json!({"speculative": {"max_drafts": 3}}),
            "speculative",
        ),
        (&ALL, json!({"guided_regex": "a"}), "guided_regex"),
        (
            &ALL,
            json!({"structured_outputs": {"regex": "a"}}),
            "structured_outputs",
        ),
        (&ALL[..2], json!({"n": 2}), "n"),
        (
            &ALL[..1],
            json!({"messages": answer, "continue_final_message": true}),
            "continue_final_message",
        ),
        (&ALL[..1], json!({"logprobs": true}), "logprobs"),
        (&ALL[1..2], json!({"logprobs": 1}), "logprobs"),
        (&ALL[1..2], json!({"echo": true}), "echo"),
        (&ALL[2..3], json!({"top_logprobs": 2}), "top_logprobs"),
        (
            &ALL[2..3],
            json!({"include": ["message.output_text.logprobs"]}),
            "include",
        ),
        (
            &ALL[2..3],
            json!({"previous_response_id": "resp_1"}),
            "previous_response_id",
        ),
        (
            &ALL[2..3],
            json!({"text": {"format": {"type": "json_object"}}}),
            "text",
        ),
    ];
    for (surfaces, fields, param) in cases {
        for surface in surfaces {
            let body = request(*surface, &json!({}), &fields);
            read(*surface, &body, &Features::all()).unwrap();
            let error = read(*surface, &body, &Features::default()).unwrap_err();
            let got = (error.status, error.param.as_deref(), error.code);
            assert_eq!(
                got,
                (400, Some(param), Some("unsupported_parameter")),
                "{fields}"
            );
        }
    }
    for surface in [Surface::Chat, Surface::Responses, Surface::Messages] {
        let body = request(surface, &tool, &json!({"tool_choice": "any"}));
        read(surface, &body, &Features::all()).unwrap();
        let error = read(surface, &body, &Features::default()).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("tool_choice"));
    }
}

#[test]
fn completions_of_a_wrong_shape() {
    let surface = Surface::Completions;
    for (body, param, code) in [
        (json!({}), "prompt", "missing_required_parameter"),
        (
            json!({"prompt": null}),
            "prompt",
            "missing_required_parameter",
        ),
        (json!({"prompt": 5}), "prompt", "invalid_type"),
        (json!({"prompt": ""}), "prompt", "invalid_value"),
        (
            json!({"prompt": "x", "logprobs": 21}),
            "logprobs",
            "invalid_value",
        ),
        (
            json!({"prompt": "x", "logprobs": true}),
            "logprobs",
            "invalid_type",
        ),
        (
            json!({"prompt": "x", "n": 2, "best_of": 3}),
            "best_of",
            "unsupported_parameter",
        ),
        (
            json!({"prompt": "x", "suffix": "y"}),
            "suffix",
            "unsupported_parameter",
        ),
        (json!({"prompt": "x", "echo": 1}), "echo", "invalid_type"),
    ] {
        refused(surface, &body, param, code);
    }
    for fields in [
        json!({"n": 2, "best_of": 2}),
        json!({"suffix": ""}),
        json!({"stop": null, "logprobs": 0}),
    ] {
        read(
            surface,
            &request(surface, &json!({}), &fields),
            &Features::all(),
        )
        .unwrap();
    }
}

#[test]
fn responses_of_a_wrong_shape() {
    let surface = Surface::Responses;
    let item = |item: Value| json!({"input": [item]});
    let image = json!({"type": "input_image", "image_url": "http://169.254.169.254/"});
    for (body, param, code) in [
        (json!({}), "input", "missing_required_parameter"),
        (json!({"input": 5}), "input", "invalid_type"),
        (json!({"input": []}), "input", "invalid_value"),
        (item(json!(5)), "input[0]", "invalid_type"),
        (
            item(json!({"type": "message"})),
            "input[0].role",
            "missing_required_parameter",
        ),
        (
            item(json!({"role": "wizard", "content": "x"})),
            "input[0].role",
            "invalid_value",
        ),
        (
            item(json!({"role": "user"})),
            "input[0].content",
            "missing_required_parameter",
        ),
        (
            item(json!({"role": "user", "content": [image]})),
            "input[0].content[0]",
            "unsupported_content",
        ),
        (
            item(json!({"type": "function_call_output", "output": [image]})),
            "input[0].output[0]",
            "unsupported_content",
        ),
        (
            item(json!({"type": "function_call"})),
            "input[0].name",
            "missing_required_parameter",
        ),
        (
            item(json!({"type": "item_reference", "id": "x"})),
            "input[0].type",
            "unsupported_parameter",
        ),
        (
            item(json!({"type": "web_search_call"})),
            "input",
            "invalid_value",
        ),
        (
            json!({"input": "x", "conversation": "c"}),
            "conversation",
            "unsupported_parameter",
        ),
        (
            json!({"input": "x", "background": true}),
            "background",
            "unsupported_parameter",
        ),
        (
            json!({"input": "x", "prompt": {"id": "p"}}),
            "prompt",
            "unsupported_parameter",
        ),
        (
            json!({"input": "x", "truncation": "middle"}),
            "truncation",
            "invalid_value",
        ),
        (
            json!({"input": "x", "include": [5]}),
            "include[0]",
            "invalid_type",
        ),
        (
            json!({"input": "x", "tools": [{"type": "function"}]}),
            "tools[0].name",
            "missing_required_parameter",
        ),
        (
            json!({"input": "x", "tools": [{"type": "function", "name": "a b"}]}),
            "tools[0].name",
            "invalid_value",
        ),
        (
            json!({"input": "x", "text": {"format": {"type": "xml"}}}),
            "text.format.type",
            "invalid_value",
        ),
    ] {
        refused(surface, &body, param, code);
    }
    for include in [json!(["reasoning.encrypted_content"]), json!([])] {
        read(
            surface,
            &json!({"input": "x", "include": include}),
            &Features::default(),
        )
        .unwrap();
    }
}

#[test]
fn messages_of_a_wrong_shape() {
    let surface = Surface::Messages;
    let content = |content: Value| json!({"max_tokens": 5, "messages": [{"role": "user", "content": content}]});
    let answer = |block: Value| json!({"max_tokens": 5, "messages": [{"role": "assistant", "content": [block]}]});
    for (body, param, code) in [
        (
            json!({"max_tokens": 5}),
            "messages",
            "missing_required_parameter",
        ),
        (
            json!({"max_tokens": 5, "messages": []}),
            "messages",
            "invalid_value",
        ),
        (
            json!({"messages": [{"role": "user", "content": "x"}]}),
            "max_tokens",
            "missing_required_parameter",
        ),
        (
            content(Value::Null),
            "messages[0].content",
            "missing_required_parameter",
        ),
        (content(json!(5)), "messages[0].content", "invalid_type"),
        (
            content(json!([{"type": "image", "source": {}}])),
            "messages[0].content[0]",
            "unsupported_content",
        ),
        (
            content(json!([{"type": "document"}])),
            "messages[0].content[0].source",
            "missing_required_parameter",
        ),
        (
            content(json!([{"type": "document", "source": {"type": "url", "url": "x"}}])),
            "messages[0].content[0].source.type",
            "unsupported_content",
        ),
        (
            content(json!([{"type": "document", "source": {
                "type": "base64", "media_type": "application/pdf", "data": "x"}}])),
            "messages[0].content[0].source.type",
            "unsupported_content",
        ),
        (
            content(json!([{"type": "document", "source": {"type": "text"}}])),
            "messages[0].content[0].source.data",
            "missing_required_parameter",
        ),
        (
            content(json!([{"type": "document", "source": {
                "type": "content", "content": [{"type": "image"}]}}])),
            "messages[0].content[0].source.content[0]",
            "unsupported_content",
        ),
        (
            content(json!([{"type": "document", "source": {"type": "content", "content": 5}}])),
            "messages[0].content[0].source.content",
            "invalid_type",
        ),
        (
            content(json!([{"type": "document", "source": "x"}])),
            "messages[0].content[0].source",
            "invalid_type",
        ),
        (
            content(json!([{"type": "search_result", "source": {}}])),
            "messages[0].content[0].source",
            "invalid_type",
        ),
        (
            content(json!([{"type": "search_result", "title": "x"}])),
            "messages[0].content[0].content",
            "missing_required_parameter",
        ),
        (
            content(json!([{"type": "tool_result", "content": [
                {"type": "document", "source": {"type": "file", "file_id": "x"}}]}])),
            "messages[0].content[0].content[0].source.type",
            "unsupported_content",
        ),
        (
            content(json!([{"type": "tool_result", "content": [{"type": "image"}]}])),
            "messages[0].content[0].content[0]",
            "unsupported_content",
        ),
        (
            content(json!([{"type": "text"}])),
            "messages[0].content[0].text",
            "missing_required_parameter",
        ),
        (
            answer(json!({"type": "tool_use", "name": "f", "input": "x"})),
            "messages[0].content[0].input",
            "invalid_type",
        ),
        (
            answer(json!({"type": "tool_use"})),
            "messages[0].content[0].name",
            "missing_required_parameter",
        ),
        (
            json!({"max_tokens": 5, "messages": [{"role": "tool", "content": "x"}]}),
            "messages[0].role",
            "invalid_value",
        ),
        (
            json!({"max_tokens": 5, "system": 5, "messages": [{"role": "user", "content": "x"}]}),
            "system",
            "invalid_type",
        ),
        (
            json!({"max_tokens": 5, "system": [{"type": "image"}], "messages": [{"role": "user", "content": "x"}]}),
            "system[0]",
            "unsupported_content",
        ),
    ] {
        refused(surface, &body, param, code);
    }
    let counted = json!({"messages": [{"role": "user", "content": "x"}]}).to_string();
    MessagesRequest::for_counting(counted.as_bytes(), &Features::default()).unwrap();
}

#[test]
fn tokenizing_in_both_forms() {
    let read = |body: Value| TokenizeRequest::from_json(body.to_string().as_bytes());
    let text = |body: Value| match read(body).unwrap().input {
        TokenizeInput::Text(text) => text,
        TokenizeInput::Chat(_) => panic!("no chat"),
    };
    assert_eq!(text(json!({"prompt": "a"})), "a");
    assert_eq!(text(json!({"content": "b", "add_special": true})), "b");
    assert!(
        read(json!({"content": "b", "with_pieces": true}))
            .unwrap()
            .with_texts
    );
    let chat = read(
        json!({"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": false,
        "chat_template_kwargs": {"enable_thinking": false}, "return_token_strs": true,
        "tools": [{"type": "function", "function": {"name": "f"}}]}),
    )
    .unwrap();
    assert!(chat.with_texts && !chat.add_generation_prompt);
    let TokenizeInput::Chat(request) = chat.input else {
        panic!("a chat");
    };
    assert_eq!((request.messages.len(), request.tools.len()), (1, 1));
    assert_eq!(request.thinking().enable, Some(false));
    assert_eq!(
        read(json!({})).unwrap_err().param.as_deref(),
        Some("prompt")
    );
    assert_eq!(
        read(json!({"prompt": 5})).unwrap_err().param.as_deref(),
        Some("prompt")
    );
    let read = |body: Value| DetokenizeRequest::from_json(body.to_string().as_bytes());
    assert_eq!(read(json!({"tokens": [1, 2.0]})).unwrap().tokens, [1, 2]);
    for (tokens, param) in [
        (json!([-1]), "tokens[0]"),
        (json!(["x"]), "tokens[0]"),
        (json!(5), "tokens"),
    ] {
        let error = read(json!({"tokens": tokens})).unwrap_err();
        assert_eq!((error.status, error.param.as_deref()), (400, Some(param)));
    }
}

#[test]
fn errors_have_the_shape_of_their_surface() {
    let kinds = [
        (ApiError::invalid_api_key(), "authentication_error"),
        (ApiError::model_not_found("a", "b"), "not_found_error"),
        (ApiError::request_too_large(5), "request_too_large"),
        (ApiError::unsupported_media("x"), "invalid_request_error"),
        (ApiError::queue_full(1), "rate_limit_error"),
        (ApiError::engine_failure("x"), "api_error"),
        (ApiError::shutting_down(1), "overloaded_error"),
        (ApiError::timeout(1.0), "timeout_error"),
    ];
    for (error, kind) in kinds {
        let body = Surface::Messages.error_body(&error, Some("req_1"));
        assert_eq!(body["type"], "error");
        assert_eq!(body["error"]["type"], kind);
        assert_eq!(body["request_id"], "req_1");
        let body = Surface::Responses.error_body(&error, None);
        assert_eq!(body["error"].as_object().unwrap().len(), 4);
    }
}
