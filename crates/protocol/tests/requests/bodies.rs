//! Bodies and messages of a wrong shape.

use serde_json::{Value, json};
use volley_protocol::openai::ChatRequest;

use crate::refused;

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
