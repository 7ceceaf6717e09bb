//! What requests become in the prompt: B37 to B45, B49, B70, B94, B96.

use serde_json::{Value, json};
use volley_protocol::Features;
use volley_protocol::anthropic::MessagesRequest;
use volley_protocol::messages::{Role, normalize};
use volley_protocol::parser::InitialState;

use super::{chat, messages, prompt, refused, responses};

#[test]
fn b37_ways_to_say_do_not_think() {
    let spellings = [
        json!({"chat_template_kwargs": {"enable_thinking": false}}),
        json!({"enable_thinking": false}),
        json!({"reasoning_effort": "none"}),
        json!({"reasoning": {"effort": "none"}}),
        json!({"reasoning": {"enabled": false}}),
        json!({"thinking": {"type": "disabled"}}),
        json!({"thinking": false}),
        json!({"thinking_budget": 0}),
        json!({"reasoning_budget": 0}),
        json!({"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": false}}),
    ];
    for fields in spellings {
        let request = chat(fields.clone()).unwrap();
        assert!(
            prompt(&request).ends_with("<think>\n\n</think>\n\n"),
            "{fields}"
        );
    }
    let request = responses(&json!({"input": "Hi", "reasoning": {"effort": "none"}})).unwrap();
    assert!(prompt(&request).ends_with("<think>\n\n</think>\n\n"));
    let request = chat(json!({"enableThinking": false})).unwrap();
    assert!(prompt(&request).ends_with("<think>\n"));
    assert!(
        request
            .notices
            .iter()
            .any(|notice| notice.contains("enableThinking"))
    );
}

#[test]
fn b40_system_messages_that_are_not_first() {
    let say = |role: &str, text: &str| json!({"role": role, "content": text});
    let cases = [
        vec![say("system", "S1"), say("system", "S2"), say("user", "U1")],
        vec![
            say("user", "U1"),
            say("assistant", "A1"),
            say("system", "S1"),
            say("user", "U2"),
        ],
        vec![
            say("developer", "S1"),
            say("developer", "S2"),
            say("user", "U1"),
        ],
        vec![say("user", "U1"), say("system", "S1")],
    ];
    for list in cases {
        let chat = prompt(&chat(json!({"messages": list})).unwrap());
        let responses = prompt(&responses(&json!({"input": list})).unwrap());
        for message in &list {
            let text = message["content"].as_str().unwrap();
            assert!(
                chat.contains(text) && responses.contains(text),
                "{text} in {chat}"
            );
        }
        assert_eq!(chat, responses);
    }
}

#[test]
fn b41_b44_every_surface_renders_a_tool_loop_alike() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let arguments = json!({"a": 3, "b": [1, {"c": true}]});
    let function = json!({"name": "mul", "description": "Multiplies", "parameters": schema});
    let call = json!({"id": "c1", "type": "function",
        "function": {"name": "mul", "arguments": arguments.to_string()}});
    let from_chat = chat(json!({
        "enable_thinking": true,
        "tools": [{"type": "function", "function": function}],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "3 times?"},
            {"role": "assistant", "content": null, "reasoning_content": "Use mul.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": null},
        ],
    }));
    let from_responses = responses(&json!({
        "instructions": "Be brief.",
        "reasoning": {"effort": "high"},
        "tools": [{"type": "function", "name": "mul", "description": "Multiplies", "parameters": schema}],
        "input": [
            {"role": "user", "content": "3 times?"},
            {"type": "reasoning", "summary": [], "encrypted_content": null,
                "content": [{"type": "reasoning_text", "text": "Use mul."}]},
            {"type": "function_call", "call_id": "c1", "name": "mul", "arguments": arguments.to_string()},
            {"type": "function_call_output", "call_id": "c1", "output": ""},
        ],
    }));
    let from_messages = messages(&json!({
        "max_tokens": 5,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "system": "Be brief.",
        "tools": [{"name": "mul", "description": "Multiplies", "input_schema": schema}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "3 times?"}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Use mul.", "signature": "x"},
                {"type": "tool_use", "id": "c1", "name": "mul", "input": arguments},
            ]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1"}]},
        ],
    }));
    let from_messages = from_messages.unwrap();
    assert_eq!(from_messages.thinking().budget_tokens, Some(1024));
    let text = prompt(&from_chat.unwrap());
    assert!(text.contains("<parameter=a>\n3\n</parameter>"), "{text}");
    assert!(text.contains("[1, {\"c\": true}]"), "{text}");
    assert_eq!(prompt(&from_responses.unwrap()), text);
    assert_eq!(prompt(&from_messages), text);
}

#[test]
fn b43_without_a_user_message() {
    for list in [json!([]), json!([{"role": "system", "content": "S"}])] {
        let read = chat(json!({"messages": list}));
        let result = read.and_then(|request| normalize(request.messages));
        refused(result, "messages");
    }
    let trimmed = json!([{"role": "system", "content": "S"},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "content": "r"}]);
    assert!(prompt(&chat(json!({"messages": trimmed})).unwrap()).contains("<function=f>"));
}

#[test]
fn b45_an_answer_at_the_end_is_followed_by_another_or_goes_on() {
    let list = json!([{"role": "user", "content": "List three"},
        {"role": "assistant", "content": "1. apple\n2."}]);
    let request = chat(json!({"messages": list})).unwrap();
    let text = prompt(&request);
    assert!(
        text.contains("2.<|im_end|>\n<|im_start|>assistant\n"),
        "a new turn: {text}"
    );
    let on = |fields: Value| {
        let mut body = json!({"messages": list, "continue_final_message": true});
        body.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        chat(body)
    };
    for opening in [json!(false), json!(null)] {
        let request = on(json!({"add_generation_prompt": opening})).unwrap();
        let text = prompt(&request);
        assert!(text.ends_with("1. apple\n2."), "{text}");
        assert_eq!(request.initial_state(&text), InitialState::InText);
    }
    let param = "continue_final_message";
    refused(on(json!({"add_generation_prompt": true})), param);
    refused(on(json!({"messages": [list[0]]})), param);
    refused(
        chat(json!({"add_generation_prompt": false})),
        "add_generation_prompt",
    );
}

/// On messages an answer at the end is gone on with, as Anthropic has it.
#[test]
fn an_answer_at_the_end_of_messages_goes_on() {
    let read = |fields: Value| {
        let mut body = json!({"max_tokens": 5, "messages": [
            {"role": "user", "content": "List three"},
            {"role": "assistant", "content": "1. apple\n2."},
        ]});
        body.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        let body = body.to_string();
        let counted = MessagesRequest::for_counting(body.as_bytes(), &Features::all());
        let request = MessagesRequest::from_json(body.as_bytes(), &Features::all());
        assert_eq!(counted, request);
        request.map(|request| request.generation)
    };
    let request = read(json!({})).unwrap();
    let text = prompt(&request);
    assert!(text.ends_with("1. apple\n2."), "{text}");
    assert_eq!(request.initial_state(&text), InitialState::InText);
    refused(
        read(json!({"thinking": {"type": "enabled", "budget_tokens": 9}})),
        "thinking",
    );
    let other = json!({"messages": [{"role": "assistant", "content": " "}]});
    assert!(!read(other).unwrap().continue_final_message);
}

#[test]
fn b49_empty_tools_are_no_tools() {
    let plain = prompt(&chat(json!({})).unwrap());
    for tools in [json!(null), json!([])] {
        for choice in [json!(null), json!("none"), json!("auto")] {
            let request = chat(json!({"tools": tools, "tool_choice": choice})).unwrap();
            assert_eq!(prompt(&request), plain);
        }
        for choice in [
            json!("required"),
            json!({"type": "function", "function": {"name": "f"}}),
        ] {
            refused(
                chat(json!({"tools": tools, "tool_choice": choice})),
                "tool_choice",
            );
        }
    }
}

#[test]
fn b70_a_volatile_head_does_not_reach_the_prompt() {
    let body = |nonce: &str| {
        let head =
            format!("x-anthropic-billing-header: cc_version=2.1.x.{nonce}; cc_entrypoint=cli;");
        messages(&json!({
            "max_tokens": 5,
            "system": [{"type": "text", "text": head}, {"type": "text", "text": "You are Claude.",
                "cache_control": {"type": "ephemeral"}}],
            "messages": [{"role": "user", "content": "Hi"}],
        }))
        .unwrap()
    };
    let (a, b) = (body("AAA"), body("BBB"));
    assert_eq!(prompt(&a), prompt(&b));
    assert!(prompt(&a).contains("You are Claude.") && !prompt(&a).contains("billing"));
    let relayed = chat(json!({"messages": [
        {"role": "system", "content": "x-anthropic-billing-header: cc_version=1;\nBe brief."},
        {"role": "user", "content": "Hi"}]}))
    .unwrap();
    assert_eq!(
        relayed.messages[0].content, "Be brief.",
        "also through a relay"
    );
    assert!(
        a.notices.iter().any(|notice| notice.contains("billing")),
        "it is reported"
    );
}

#[test]
fn b94_inline_system_messages_and_unknown_fields() {
    let request = messages(&json!({
        "model": "m", "max_tokens": 32000, "stream": true,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi",
            "cache_control": {"type": "ephemeral"}}]}, {"role": "system", "content": "Extra note"}],
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": []},
        "output_config": {"effort": "high"},
        "metadata": {"user_id": "u"},
        "tools": [{"name": "f", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}},
            {"type": "web_search_20250305", "name": "web_search"}],
    }))
    .unwrap();
    let text = prompt(&request);
    assert!(
        text.contains("Extra note") && text.ends_with("<think>\n"),
        "{text}"
    );
    assert_eq!(request.tools.len(), 1);
    assert!(
        !request
            .notices
            .iter()
            .any(|notice| notice.contains("unknown")),
        "{:?}",
        request.notices
    );
    let plain =
        messages(&json!({"max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}))
            .unwrap();
    assert!(
        prompt(&plain).ends_with("</think>\n\n"),
        "no thoughts unless asked for"
    );
}

#[test]
fn b96_tool_kinds_other_than_function() {
    let function =
        |name: &str| json!({"type": "function", "name": name, "parameters": {"type": "object"}});
    let request = responses(&json!({"input": "Hi", "tools": [
        function("exec_command"), function("view_image"),
        {"type": "namespace", "name": "multi_agent_v1", "tools": [function("spawn")]},
        {"type": "web_search", "external_web_access": false},
        {"type": "custom", "name": "apply_patch", "description": "Patches",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"x\""}},
        {"type": "image_generation"},
    ]}))
    .unwrap();
    let names: Vec<&str> = request
        .tools
        .iter()
        .map(|tool| tool.name.as_str())
        .collect();
    assert_eq!(
        names,
        ["exec_command", "view_image", "spawn", "apply_patch"]
    );
    let told = |word: &str| request.notices.iter().any(|notice| notice.contains(word));
    assert!(told("web_search") && told("image_generation"));
    assert!(prompt(&request).contains("\"name\": \"apply_patch\""));
}

#[test]
fn results_of_tools_come_before_the_text_beside_them() {
    let request = messages(
        &json!({"max_tokens": 5, "messages": [{"role": "user", "content": [
            {"type": "text", "text": "and now?"},
            {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "r1"}, {"type": "text", "text": "r2"}]},
            {"type": "tool_result", "tool_use_id": "b", "content": "r3", "is_error": true},
        ]}]}),
    )
    .unwrap();
    let turns: Vec<(Role, &str)> = request
        .messages
        .iter()
        .map(|m| (m.role, m.content.as_str()))
        .collect();
    assert_eq!(
        turns,
        [
            (Role::Tool, "r1\nr2"),
            (Role::Tool, "r3"),
            (Role::User, "and now?")
        ]
    );
}
