//! The events of one answer with thoughts, text and a call, on every surface, to be read.

use serde_json::json;
use volley_protocol::Surface;
use volley_protocol::replay::{EngineEnd, Split, replay};

use super::heard::{file, request};

const PIECES: [&str; 6] = [
    "The user wants",
    " the weather.\n</think>\n\nLet me",
    " look.\n\n<tool_call>\n<function=weather>\n<parameter=town>\nOs",
    "lo\n</parameter>\n<parameter=days>\n3",
    "\n</parameter>\n</function>",
    "\n</tool_call>",
];

fn stream(surface: Surface, end: EngineEnd, pieces: &[&str]) -> String {
    let tools = json!({"weather": {"type": "object",
        "properties": {"town": {"type": "string"}, "days": {"type": "integer"}}}});
    let tools = match surface {
        Surface::Completions => json!({}),
        _ => tools,
    };
    let file = file(request(surface, &tools, &json!({})), true, pieces, end);
    String::from_utf8(replay(&file, surface, true, Split::Recorded).body).unwrap()
}

#[test]
fn chat() {
    insta::assert_snapshot!(stream(Surface::Chat, EngineEnd::Stop, &PIECES));
}

#[test]
fn completions() {
    insta::assert_snapshot!(stream(
        Surface::Completions,
        EngineEnd::Length,
        &PIECES[..2]
    ));
}

#[test]
fn responses() {
    insta::assert_snapshot!(stream(Surface::Responses, EngineEnd::Stop, &PIECES));
}

#[test]
fn responses_cut_off() {
    insta::assert_snapshot!(stream(Surface::Responses, EngineEnd::Length, &PIECES[..3]));
}

#[test]
fn messages() {
    insta::assert_snapshot!(stream(Surface::Messages, EngineEnd::Stop, &PIECES));
}

#[test]
fn messages_cut_off() {
    insta::assert_snapshot!(stream(Surface::Messages, EngineEnd::Length, &PIECES[..3]));
}
