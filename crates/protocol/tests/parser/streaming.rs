//! What matters only while the output comes in.

use serde_json::json;
use volley_protocol::parser::{Delta, End, OutputParser};

use crate::harness::{Case, IDS, bytewise, play};

fn glob() -> Case {
    Case::new("glob", "").tools(json!({"glob": {"pattern": {"type": "string"}}}))
}

#[test]
fn tags_count_only_as_tokens_when_ids_are_known() {
    let spelled = |text: &str| vec![(text.as_bytes().to_vec(), Some(100))];
    let mut case = glob();
    case.open = true;
    let raw = "a </think> <tool_call>\n<function=glob>\n<parameter=pattern>\nx\n</parameter>\n</function>\n</tool_call>";
    let answer = play(case.config(Some(IDS)), &spelled(raw), End::Stop);
    assert_eq!(answer.reasoning, raw);
    assert!(answer.tool_calls.is_empty());
}

#[test]
fn characters_are_whole_in_every_delta() {
    let raw = "ok 😀 ďábel 삼겹살";
    let mut parser = OutputParser::new(glob().config(None));
    let mut text = String::new();
    for (piece, _) in bytewise(raw.as_bytes()) {
        let deltas = parser.push(&piece, None);
        assert!(deltas.len() <= 1);
        for delta in deltas {
            let Delta::Content(more) = delta else {
                panic!("{delta:?}")
            };
            text += &more;
        }
    }
    assert_eq!(text, raw);
}

#[test]
fn broken_bytes_become_replacement_characters() {
    let answer = play(
        glob().config(None),
        &bytewise(b"a\xFFb\xE2\x82c\xF0\x9F"),
        End::Stop,
    );
    assert_eq!(answer.content, "a\u{FFFD}b\u{FFFD}c");
    let marks = [0xF8, 0xF9, 0xFA, 0xFB, b'x'];
    let answer = play(glob().config(Some(IDS)), &bytewise(&marks), End::Stop);
    assert_eq!(answer.content, "\u{FFFD}\u{FFFD}\u{FFFD}\u{FFFD}x");
}

#[test]
fn prose_about_tags_is_held_for_a_few_characters_only() {
    let raw = "The wire format starts with <tool_call> and then a function line. That is all.";
    let mut parser = OutputParser::new(glob().config(None));
    let mut sent = 0;
    for (i, piece) in raw.as_bytes().chunks(5).enumerate() {
        for delta in parser.push(piece, None) {
            let Delta::Content(text) = delta else {
                panic!("{delta:?}")
            };
            sent += text.len();
        }
        assert!(sent + 64 >= 5 * i, "{sent} of {} bytes", 5 * i);
    }
    assert_eq!(sent, raw.len());
}

#[test]
fn long_strings_stream_while_they_are_generated() {
    let line = "line with \"quotes\", back\\slash, tab\t and \u{2028}\n";
    for schema in [
        json!({"type": "string"}),
        json!({"type": ["string", "null"]}),
        json!({}),
    ] {
        let case = Case::new("write", "").tools(json!({"write": {"body": schema}}));
        let mut parser = OutputParser::new(case.config(None));
        let body = line.repeat(400);
        let raw = format!(
            "<tool_call>\n<function=write>\n<parameter=body>\n{body}\n</parameter>\n</function>\n</tool_call>"
        );
        let mut arguments = String::new();
        let mut silent = 0;
        for (i, piece) in raw.as_bytes().chunks(20).enumerate() {
            let before = arguments.len();
            for delta in parser.push(piece, None) {
                if let Delta::ToolCallArguments { fragment, .. } = delta {
                    arguments += &fragment;
                }
            }
            silent = if arguments.len() > before {
                0
            } else {
                silent + 1
            };
            assert!(i < 4 || silent <= 8, "silent for {silent} pieces");
        }
        let value: serde_json::Value = serde_json::from_str(&arguments).unwrap();
        assert_eq!(value, json!({"body": body}));
    }
}

#[test]
fn work_per_piece_does_not_grow_with_the_output() {
    // Within open thoughts a call is held until it ends; a naive search would be quadratic.
    let mut case = Case::new("write", "").tools(json!({"write": {"body": {"type": "string"}}}));
    case.open = true;
    let body = "x < y\n".repeat(200_000);
    let raw = format!(
        "<tool_call>\n<function=write>\n<parameter=body>\n{body}</parameter>\n</function>\n</tool_call>"
    );
    let pieces: Vec<_> = raw
        .as_bytes()
        .chunks(4)
        .map(|piece| (piece.to_vec(), None))
        .collect();
    let start = std::time::Instant::now();
    let answer = play(case.config(None), &pieces, End::Stop);
    assert_eq!(answer.tool_calls.len(), 1);
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

#[test]
fn reasoning_tokens_are_those_before_the_end_of_thoughts() {
    let mut case = glob();
    case.open = true;
    let mut parser = OutputParser::new(case.config(Some(IDS)));
    for (text, id) in [("a", 100), (" b", 101), ("", 2), ("c", 102), ("d", 103)] {
        parser.push(text.as_bytes(), Some(id));
    }
    assert_eq!(parser.reasoning_tokens(), 2);
}

#[test]
fn nothing_follows_a_stop_string() {
    let mut case = glob();
    case.stop = vec!["END"];
    let mut parser = OutputParser::new(case.config(None));
    assert_eq!(parser.push(b"a EN", None), [Delta::Content("a".to_owned())]);
    assert!(!parser.stopped());
    assert_eq!(parser.push(b"D b", None), [Delta::Content(" ".to_owned())]);
    assert!(parser.stopped());
    assert_eq!(parser.stop_string(), Some("END"));
    assert!(parser.push(b" more END", None).is_empty());
}
