//! Replay files and splits.

use serde_json::{Value, json};
use volley_protocol::Surface;
use volley_protocol::parser::{End, InitialState};
use volley_protocol::replay::{Recording, ReplayFile, Split, replay};

#[test]
fn a_file_is_read_as_documented_and_written_back_alike() {
    let json = json!({
        "request": {"messages": [{"role": "user", "content": "Hi"}], "stream": true},
        "template_state": "think_open",
        "pieces": ["Hm.</th", "ink>\n\nHel", "lo"],
        "finish_reason": "stop",
    });
    let file: ReplayFile = serde_json::from_value(json.clone()).unwrap();
    assert_eq!(serde_json::to_value(&file).unwrap(), json);
    let played = replay(&file, Surface::Chat, false, "seed:7".parse().unwrap());
    let body: Value = serde_json::from_slice(&played.body).unwrap();
    assert_eq!(body["choices"][0]["message"]["content"], "Hello");
    let usage = &body["usage"];
    assert_eq!(
        usage["completion_tokens"], 3,
        "one token per recorded piece"
    );
    assert_eq!(usage["completion_tokens_details"]["reasoning_tokens"], 1);
}

#[test]
fn a_request_that_the_server_refuses_is_refused() {
    let file: ReplayFile = serde_json::from_value(json!({
        "request": {"messages": 5}, "template_state": "think_closed", "pieces": [], "finish_reason": "length",
    }))
    .unwrap();
    let played = replay(&file, Surface::Messages, true, Split::Recorded);
    let body: Value = serde_json::from_slice(&played.body).unwrap();
    assert_eq!(
        (played.status, &body["error"]["type"]),
        (400, &json!("invalid_request_error"))
    );
    let no_object = ReplayFile {
        request: json!(5),
        ..file
    };
    assert_eq!(
        replay(&no_object, Surface::Chat, false, Split::Whole).status,
        400
    );
}

#[test]
fn splits_keep_every_byte() {
    let pieces = ["ab😀".to_owned(), "é".repeat(40)];
    let whole = pieces.concat().into_bytes();
    for text in [
        "all",
        "1",
        "3",
        "1000",
        "seed:0",
        "seed:18446744073709551615",
    ] {
        let split: Split = text.parse().unwrap();
        let cut = split.cut(&pieces);
        assert_eq!(cut.concat(), whole, "{text}");
        assert_eq!(split.cut(&pieces), cut, "the same every time");
    }
    assert_eq!("3".parse::<Split>().unwrap().cut(&pieces)[0].len(), 3);
    assert_eq!(Split::Recorded.cut(&pieces).len(), 2);
    assert_ne!(Split::Random(1).cut(&pieces), Split::Random(2).cut(&pieces));
    for bad in ["", "0", "-1", "x", "seed:", "seed:x", "ALL"] {
        assert!(bad.parse::<Split>().is_err(), "{bad}");
    }
}

#[test]
fn every_choice_plays_the_same_output() {
    let file: ReplayFile = serde_json::from_value(json!({
        "request": {"prompt": ["a", "b"], "n": 2},
        "template_state": "think_closed", "pieces": [" x", " y"], "finish_reason": "length",
    }))
    .unwrap();
    let body = replay(&file, Surface::Completions, false, Split::Whole).body;
    let body: Value = serde_json::from_slice(&body).unwrap();
    let choices: Vec<(&Value, &Value)> = body["choices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|choice| (&choice["index"], &choice["text"]))
        .collect();
    let expected: Vec<(Value, Value)> = (0..4).map(|i| (json!(i), json!(" x y"))).collect();
    assert!(
        choices
            .into_iter()
            .eq(expected.iter().map(|(i, text)| (i, text)))
    );
}

#[test]
fn a_recording_keeps_characters_whole() {
    let mut recording = Recording::new(json!({"prompt": "x"}), InitialState::Verbatim);
    for bytes in [
        b"a\xF0".as_slice(),
        b"\x9F\x98",
        b"\x80b",
        b"\xFF",
        b"",
        b"end\xC3",
    ] {
        recording.step(bytes);
    }
    let file = recording.finish(End::Length);
    assert_eq!(file.pieces, ["a", "😀b", "\u{FFFD}", "end"]);
    let body = replay(&file, Surface::Completions, false, Split::Recorded).body;
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["choices"][0]["text"], "a😀b\u{FFFD}end");
    assert_eq!(body["choices"][0]["finish_reason"], "length");
}

#[test]
fn an_answer_that_goes_on_keeps_its_first_space() {
    let file: ReplayFile = serde_json::from_value(json!({
        "request": {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "2."}],
            "continue_final_message": true},
        "template_state": "think_closed", "pieces": [" pear", "\n"], "finish_reason": "stop",
    }))
    .unwrap();
    let body = replay(&file, Surface::Chat, false, Split::Every(1)).body;
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["choices"][0]["message"]["content"], " pear");
}

#[test]
fn surfaces_are_named_as_on_the_command_line() {
    for (text, surface) in [
        ("chat", Surface::Chat),
        ("completions", Surface::Completions),
        ("responses", Surface::Responses),
        ("messages", Surface::Messages),
    ] {
        assert_eq!(text.parse(), Ok(surface));
    }
    assert!("Chat".parse::<Surface>().is_err());
}
