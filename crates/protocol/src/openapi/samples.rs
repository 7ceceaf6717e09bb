//! Good bodies that hold every object which the readers look into.

use serde_json::{Value, json};

use crate::request::Features;

fn parameters() -> Value {
    json!({"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]})
}

/// A format as responses and messages have it.
fn format(features: &Features) -> Value {
    match features.constraints {
        true => json!({"type": "json_schema", "name": "answer", "schema": parameters()}),
        false => json!({"type": "text"}),
    }
}

pub(super) fn chat(features: &Features) -> Value {
    let mut body = json!({
        "model": null,
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
            {"role": "user", "content": "How is the weather in Oslo?"},
            {"role": "assistant", "content": null, "reasoning_content": "I have to look.",
                "tool_calls": [{"id": "call_1", "type": "function",
                    "function": {"name": "weather", "arguments": "{\"town\": \"Oslo\"}"}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
        ],
        "tools": [{"type": "function", "function": {"name": "weather",
            "description": "Tells the weather", "parameters": parameters()}}],
        "tool_choice": "auto",
        "stream_options": {"include_usage": true},
        "chat_template_kwargs": {"enable_thinking": true},
        "reasoning": {"effort": "low"},
        "thinking": {"type": "enabled"},
        "speculative": {},
        "response_format": {"type": "text"},
        "structured_outputs": {},
        "max_completion_tokens": 256,
    });
    if features.constraints {
        let schema = json!({"name": "answer", "schema": parameters(), "strict": true});
        body["response_format"] = json!({"type": "json_schema", "json_schema": schema});
    }
    body
}

pub(super) fn completion() -> Value {
    json!({
        "prompt": "Once upon a time",
        "max_tokens": 16,
        "stream_options": {"include_usage": true},
        "speculative": {},
        "structured_outputs": {},
    })
}

pub(super) fn responses(features: &Features) -> Value {
    json!({
        "instructions": "Be brief.",
        "input": [
            {"type": "message", "role": "user",
                "content": [{"type": "input_text", "text": "How is the weather in Oslo?"}]},
            {"type": "reasoning", "summary": [],
                "content": [{"type": "reasoning_text", "text": "I have to look."}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Look."}]},
            {"type": "function_call", "call_id": "call_1", "name": "weather",
                "arguments": "{\"town\": \"Oslo\"}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "rain"},
        ],
        "tools": [{"type": "function", "name": "weather", "description": "Tells the weather",
            "parameters": parameters()}],
        "tool_choice": "auto",
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"format": format(features), "verbosity": "low"},
        "max_output_tokens": 256,
    })
}

pub(super) fn messages(features: &Features) -> Value {
    json!({
        "max_tokens": 256,
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [
            {"role": "user", "content": "How is the weather in Oslo?"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "I have to look.", "signature": "dm9sbGV5"},
                {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"town": "Oslo"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"},
                {"type": "document", "title": "Oslo", "context": "From a guide.",
                    "citations": {"enabled": false},
                    "source": {"type": "text", "media_type": "text/plain", "data": "It rains."}},
                {"type": "document",
                    "source": {"type": "content", "content": [{"type": "text", "text": "Often."}]}},
                {"type": "search_result", "source": "https://example.org", "title": "Rain",
                    "content": [{"type": "text", "text": "Today."}]},
                {"type": "text", "text": "Well?"},
            ]},
        ],
        "tools": [{"name": "weather", "description": "Tells the weather",
            "input_schema": parameters()}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": true},
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "low", "format": format(features)},
        "output_format": null,
    })
}

pub(super) fn tokenize() -> Value {
    json!({"messages": [{"role": "user", "content": "Hi"}], "return_token_strs": true})
}

pub(super) fn detokenize() -> Value {
    json!({"tokens": [1, 2, 3]})
}
