//! Every endpoint over real HTTP, streamed and not.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "../common/mod.rs"]
mod common;

mod answers;
mod endpoints;
mod operators;

use common::Server;
use serde_json::Value;

/// Events of a stream as name and data; the data of a nameless one that is no JSON is left out.
fn events(body: &str) -> Vec<(String, Value)> {
    let mut events = Vec::new();
    for event in body.split("\n\n").filter(|event| !event.is_empty()) {
        let mut name = String::new();
        for line in event.lines().filter(|line| !line.starts_with(':')) {
            if let Some(text) = line.strip_prefix("event: ") {
                name = text.to_owned();
            } else {
                let data = line.strip_prefix("data: ").unwrap();
                if data != "[DONE]" {
                    events.push((name.clone(), serde_json::from_str(data).unwrap()));
                }
            }
        }
    }
    events
}

fn post(server: &Server, path: &str, body: &Value) -> Value {
    let answer = server.post(path, &body.to_string());
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    answer.json()
}

fn stream(server: &Server, path: &str, mut body: Value) -> Vec<(String, Value)> {
    body["stream"] = true.into();
    let answer = server.post(path, &body.to_string());
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    events(&answer.body)
}
