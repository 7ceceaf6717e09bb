//! A request says the same again, after others, and as the next turn of what it began.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{Server, user};
use serde_json::{Value, json};

/// B66, B71: the same request again and again gives the same answer and usage in every mode.
#[test]
fn b66_b71_repeated_requests_agree() {
    let server = Server::start(&[]);
    let mut body = user("What's the weather in Bergen?");
    body["tools"] = json!([common::weather_tool()]);
    let strip = |mut answer: Value| {
        let calls = answer["choices"][0]["message"]["tool_calls"]
            .as_array_mut()
            .unwrap();
        calls.iter_mut().for_each(|call| call["id"] = Value::Null);
        answer["choices"].clone()
    };
    let first = strip(server.chat_ok(body.clone()));
    for _ in 0..19 {
        let answer = server.chat_ok(body.clone());
        assert!(answer["usage"]["prompt_tokens_details"]["cached_tokens"].is_u64());
        assert_eq!(strip(answer), first);
    }
    body["stream_options"] = json!({"include_usage": true});
    let whole = server.chat_ok(body.clone())["usage"].clone();
    assert_eq!(server.stream(body).last().unwrap()["usage"], whole);
}

/// B65: a request gives the same answer after another, long one.
#[test]
fn b65_a_b_a() {
    let server = Server::start(&[]);
    let mut one = user("What is 314 - 159?");
    one["max_tokens"] = 100.into();
    let mut other = one.clone();
    let system = json!({"role": "system", "content": "word ".repeat(1_000)});
    other["messages"].as_array_mut().unwrap().insert(0, system);
    let first = server.chat_ok(one.clone())["choices"].clone();
    let between = server.chat_ok(other.clone())["choices"].clone();
    assert_eq!(server.chat_ok(one.clone())["choices"], first);
    assert_eq!(server.chat_ok(other)["choices"], between);
    assert_eq!(server.chat_ok(one)["choices"], first);
}

/// B67: the second turn knows the first, wherever the boundary falls.
#[test]
fn b67_the_second_turn_knows_the_first() {
    let warm = Server::start(&[]);
    let cold = Server::start(&["--max-num-seqs", "1"]);
    for length in [0, 1, 7, 15, 16, 17, 31, 60] {
        let mut first = user(&format!(
            "Tell me about the Karra basket.{}",
            " ok".repeat(length)
        ));
        first["max_tokens"] = 80.into();
        let answer = warm.chat_ok(first.clone());
        let messages = first["messages"].as_array_mut().unwrap();
        messages.push(answer["choices"][0]["message"].clone());
        messages.push(json!({"role": "user", "content": "And its weight?"}));
        let second = warm.chat_ok(first.clone())["choices"].clone();
        assert_eq!(second, cold.chat_ok(first)["choices"], "{length}");
    }
}
