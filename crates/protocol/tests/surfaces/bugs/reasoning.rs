//! Thoughts, stop strings, UTF-8: B31 to B55.

use serde_json::{Value, json};
use volley_protocol::Surface;
use volley_protocol::openai::ChatRequest;
use volley_protocol::replay::{EngineEnd, Split, replay};

use super::Raw;
use crate::heard::{file, request};

#[test]
fn b31_truncated_thinking_is_still_thinking() {
    let pieces: Vec<String> = (0..12).map(|i| format!("word{i} ")).collect();
    let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
    Raw::pieces(&pieces)
        .open()
        .gives(&pieces.concat(), "")
        .cut_off()
        .check();
    let file = file(
        request(Surface::Chat, &json!({}), &json!({})),
        true,
        &pieces,
        EngineEnd::Length,
    );
    let body: Value =
        serde_json::from_slice(&replay(&file, Surface::Chat, false, Split::Whole).body).unwrap();
    let details = &body["usage"]["completion_tokens_details"];
    assert_eq!(details["reasoning_tokens"], 12);
    assert_eq!(body["choices"][0]["message"]["content"], Value::Null);
}

#[test]
fn b32_without_thinking_the_answer_is_content() {
    Raw::new("Hello there.")
        .field("chat_template_kwargs", json!({"enable_thinking": false}))
        .check();
}

#[test]
fn b34_literal_tags_in_the_answer() {
    Raw::new("Plan.\n</think>\n\nUse the <think> and </think> tags in pairs.")
        .open()
        .gives("Plan.", "Use the <think> and </think> tags in pairs.")
        .check();
}

#[test]
fn b36_the_forced_close_of_a_budget_stays_in_the_thoughts() {
    Raw::pieces(&["Let me ", "see", "\nTime is up.\n</think>\n\n", "It is 4."])
        .open()
        .field("thinking_budget", json!(16))
        .gives("Let me see\nTime is up.", "It is 4.")
        .check();
    Raw::pieces(&["Let me ", "see.\n</think>\n\n", "It is 4."])
        .open()
        .field("thinking_budget", json!(16))
        .gives("Let me see.", "It is 4.")
        .check();
}

#[test]
fn b39_thoughts_go_out_under_both_names() {
    let file = file(
        request(Surface::Chat, &json!({}), &json!({})),
        true,
        &["a</think>b"],
        EngineEnd::Stop,
    );
    let body = replay(&file, Surface::Chat, false, Split::Whole).body;
    let body: Value = serde_json::from_slice(&body).unwrap();
    let message = &body["choices"][0]["message"];
    assert_eq!(
        (&message["reasoning_content"], &message["reasoning"]),
        (&json!("a"), &json!("a"))
    );
}

#[test]
fn b38_thoughts_in_the_history_are_read_under_every_name() {
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let messages = json!([
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "A", "reasoning_content": "R1", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "t"},
        {"role": "assistant", "content": "B", "reasoning": "R2"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "R3"}, {"type": "text", "text": "C"}]},
        {"role": "assistant", "content": "D", "reasoning_content": "first", "reasoning": "second"},
        {"role": "user", "content": "q2"},
    ]);
    let body = json!({"messages": messages}).to_string();
    let request = ChatRequest::from_json(body.as_bytes()).unwrap();
    let thoughts = request
        .messages
        .iter()
        .filter_map(|m| m.reasoning.as_deref());
    assert_eq!(thoughts.collect::<Vec<_>>(), ["R1", "R2", "R3", "first"]);
}

#[test]
fn b51_a_stop_string_split_over_pieces() {
    Raw::pieces(&["The quick br", "own", " fox jumps"])
        .field("stop", json!(["own fox"]))
        .gives("", "The quick br")
        .check();
}

#[test]
fn b53_a_stop_word_inside_the_thoughts() {
    Raw::new("They ask about the four masters.\n</think>\n\nThe four masters are A, B, C, D.")
        .open()
        .field("stop", json!(["four"]))
        .gives("They ask about the four masters.", "The ")
        .check();
}

#[test]
fn b55_characters_split_over_tokens() {
    Raw::new("ok 😀 ďábel 삼겹살").check();
    Raw::new("ok 😀</think>ďábel 삼겹살")
        .open()
        .gives("ok 😀", "ďábel 삼겹살")
        .check();
}

#[test]
fn b59_with_a_schema_the_json_is_content() {
    let schema = json!({"type": "object", "properties": {"answer": {"type": "string"}},
        "required": ["answer"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "a", "strict": true, "schema": schema}});
    Raw::new("They want JSON.\n</think>\n\n{\"answer\": \"4\"}")
        .open()
        .field("response_format", format)
        .gives("They want JSON.", "{\"answer\": \"4\"}")
        .check();
}
