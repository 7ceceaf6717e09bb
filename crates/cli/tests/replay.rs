//! Recordings of the server, and `volley replay`.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::path::Path;
use std::process::Command;

use common::{Server, user, weather_tool};
use serde_json::{Value, json};

fn replay(file: &Path, flags: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_volley"))
        .arg("replay")
        .arg(file)
        .args(flags)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (output.status.code().unwrap(), text)
}

fn replay_json(file: &Path, flags: &[&str]) -> Value {
    let (code, text) = replay(file, flags);
    assert_eq!(code, 0, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// What a response says, ids left out.
fn said(api: &str, response: &Value) -> Value {
    let mut said = match api {
        "chat" => response["choices"][0].clone(),
        "messages" => json!([response["content"], response["stop_reason"]]),
        _ => json!([response["output"], response["status"]]),
    };
    strip_ids(&mut said);
    said
}

fn strip_ids(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // Only the engine knows what closed the thoughts.
            let lost = ["id", "call_id", "closed_by"];
            fields.retain(|name, _| !lost.contains(&name.as_str()));
            fields.values_mut().for_each(strip_ids);
        }
        Value::Array(list) => list.iter_mut().for_each(strip_ids),
        _ => {}
    }
}

#[test]
fn a_recorded_answer_replays_as_it_was_served() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&["--record", folder.path().to_str().unwrap()]);
    let weather = "What's the weather in Bergen?";
    let parameters = weather_tool()["function"]["parameters"].clone();
    let mut chat = user(weather);
    chat["tools"] = json!([weather_tool()]);
    let messages = json!({
        "max_tokens": 300, "messages": [{"role": "user", "content": weather}],
        "thinking": {"type": "enabled"},
        "tools": [{"name": "get_weather", "input_schema": parameters}],
    });
    let responses = json!({
        "input": weather,
        "tools": [{"type": "function", "name": "get_weather", "parameters": parameters}],
    });
    let plain = user("What is 17 + 25?");
    for (id, api, path, mut body) in [
        ("chat-1", "chat", "/v1/chat/completions", chat),
        ("chat-2", "chat", "/v1/chat/completions", plain),
        ("messages-1", "messages", "/v1/messages", messages),
        ("responses-1", "responses", "/v1/responses", responses),
    ] {
        body["temperature"] = 0.into();
        let headers = [("content-type", "application/json"), ("x-request-id", id)];
        let served = server.request("POST", path, &headers, body.to_string().as_bytes());
        assert_eq!(served.status, 200, "{}", served.body);
        let file = folder.path().join(format!("{id}-0.json"));
        let wait = (0..100).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            std::fs::read(&file).is_ok_and(|bytes| serde_json::from_slice::<Value>(&bytes).is_ok())
        });
        assert!(wait, "{}", file.display());
        let recording: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(recording["request"], body);
        let expected = said(api, &served.json());
        for split in [
            &[][..],
            &["--split", "all"],
            &["--split", "1"],
            &["--split", "seed:5"],
        ] {
            let flags = [&["--api", api], split].concat();
            assert_eq!(
                said(api, &replay_json(&file, &flags)),
                expected,
                "{id} {split:?}"
            );
            let (code, events) = replay(&file, &[&flags[..], &["--stream"]].concat());
            assert_eq!(code, 0);
            assert!(events.contains("data: {"), "{events}");
            if api == "chat" {
                assert!(events.ends_with("data: [DONE]\n\n"), "{events}");
            }
        }
    }
}

/// `serve --replay`: other prompts, other surfaces, any sampling, and the recorded answers.
#[test]
fn a_server_answers_with_recordings() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let recorder = Server::start(&["--record", path]);
    let mut call = user("What's the weather in Bergen?");
    call["tools"] = json!([weather_tool()]);
    let call = recorder.chat_ok(call)["choices"][0].clone();
    let sum = recorder.chat_ok(user("What is 17 + 25?"))["choices"][0].clone();
    // The files come after the answers.
    let both = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::fs::read_dir(folder.path()).unwrap().count() == 2
    });
    assert!(both);
    drop(recorder);

    let flags = ["--replay", path, path, path, "--max-num-seqs", "2"];
    let server = Server::start(&flags);
    assert!(server.banner.contains("6 recordings"), "{}", server.banner);
    let mut other = user("Tell me a story.");
    other["temperature"] = 1.into();
    assert_eq!(
        said_of(&server.chat_ok(other.clone())),
        said_of(&json!({"choices": [sum]}))
    );
    other["tools"] = json!([weather_tool()]);
    let chunks = server.stream(other.clone());
    let arguments = chunks.iter().filter_map(|chunk| {
        chunk["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].as_str()
    });
    let expected = &call["message"]["tool_calls"][0]["function"]["arguments"];
    assert_eq!(arguments.collect::<String>(), expected.as_str().unwrap());

    // No thinking was asked for: the recorded thoughts are left out.
    let messages = json!({"max_tokens": 300, "messages": other["messages"],
        "tools": [{"name": "get_weather", "input_schema": {"type": "object",
            "properties": {"place": {"type": "string"}}}}]});
    let answer = server.post("/v1/messages", &messages.to_string()).json();
    assert_eq!(
        answer["content"][0]["input"],
        json!({"place": "Bergen"}),
        "{answer}"
    );
    assert_eq!(answer["stop_reason"], "tool_use");

    let mut short = user("Again.");
    short["max_tokens"] = 5.into();
    let short = server.chat_ok(short);
    assert_eq!(short["usage"]["completion_tokens"], 5);
    assert_eq!(short["choices"][0]["finish_reason"], "length");
    let last = server.chat_ok(user("And again."));
    assert_eq!(said_of(&last), said_of(&json!({"choices": [sum]})));
    let none = server.chat(user("Once more."));
    assert_eq!(none.status, 400);
    assert!(
        none.body.contains("none of the 6 recordings is left"),
        "{}",
        none.body
    );
    server.settles();
}

fn said_of(response: &Value) -> Value {
    said("chat", response)
}

#[test]
fn files_that_are_no_recordings_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.json");
    let chat = &["--api", "chat"];
    assert_eq!(replay(&file, chat).0, 2);
    std::fs::write(&file, "{}").unwrap();
    assert_eq!(replay(&file, chat).0, 2);
    let mut recording = json!({
        "request": {"messages": [{"role": "user", "content": "Hi"}]},
        "template_state": "think_closed", "pieces": ["Hel", "lo"], "finish_reason": "length",
    });
    std::fs::write(&file, recording.to_string()).unwrap();
    let answer = replay_json(&file, chat);
    assert_eq!(answer["choices"][0]["message"]["content"], "Hello");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    recording["request"]["messages"] = json!([]);
    std::fs::write(&file, recording.to_string()).unwrap();
    let (code, text) = replay(&file, chat);
    assert_eq!(code, 1);
    assert!(text.contains("messages is empty"), "{text}");
}
