//! Requests that are wrong: each gets its status and a JSON error that names the field, and the
//! next good one works.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;

use common::{Answer, Server, user};

fn check(case: &str, answer: &Answer, status: u16, param: Option<&str>) {
    let body = &answer.body;
    assert_eq!(answer.status, status, "{case}: {body}");
    assert_eq!(
        answer.header("content-type"),
        Some("application/json"),
        "{case}"
    );
    assert!(answer.header("x-request-id").is_some(), "{case}");
    let error = &answer.json()["error"];
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|text| !text.is_empty()),
        "{case}: {body}"
    );
    assert_eq!(error["type"], "invalid_request_error", "{case}");
    assert_eq!(error["param"].as_str(), param, "{case}: {body}");
    assert!(
        error["code"].is_string() || error["code"].is_null(),
        "{case}"
    );
    assert_eq!(
        error.as_object().map(|fields| fields.len()),
        Some(4),
        "{case}"
    );
}

fn check_good(server: &Server) {
    let mut body = user("Hello!");
    body["max_tokens"] = 2.into();
    assert_eq!(server.chat(body).status, 200);
}

/// A field of the request, a wrong value, and what the error must name.
const FIELDS: &[(&str, &str, &str)] = &[
    ("messages", "null", "messages"),
    ("messages", "\"Hi\"", "messages"),
    ("messages", "[]", "messages"),
    ("model", "4", "model"),
    ("stream_options", "[]", "stream_options"),
    ("temperature", "\"hot\"", "temperature"),
    ("temperature", "2.5", "temperature"),
    ("temperature", "-0.1", "temperature"),
    ("top_p", "0", "top_p"),
    ("top_p", "1.1", "top_p"),
    ("top_k", "-5", "top_k"),
    ("min_p", "2", "min_p"),
    ("presence_penalty", "-3", "presence_penalty"),
    ("frequency_penalty", "true", "frequency_penalty"),
    ("repetition_penalty", "0", "repetition_penalty"),
    ("max_tokens", "0", "max_tokens"),
    ("max_tokens", "-1", "max_tokens"),
    ("max_tokens", "1.5", "max_tokens"),
    ("max_completion_tokens", "[1]", "max_completion_tokens"),
    ("min_tokens", "-1", "min_tokens"),
    ("ignore_eos", "1", "ignore_eos"),
    ("seed", "\"1\"", "seed"),
    ("n", "9", "n"),
    ("n", "0", "n"),
    ("stop", "3", "stop"),
    ("stop", "[\"\"]", "stop[0]"),
    ("stop_token_ids", "[4000000]", "stop_token_ids"),
    ("logit_bias", "{\"4000000\": 1}", "logit_bias"),
    ("logit_bias", "{\"the\": 1}", "logit_bias"),
    ("logprobs", "1", "logprobs"),
    ("top_logprobs", "2", "top_logprobs"),
    (
        "response_format",
        "{\"type\": \"json\"}",
        "response_format.type",
    ),
    ("tools", "{}", "tools"),
    ("tools", "[7]", "tools[0]"),
    ("tool_choice", "\"required\"", "tool_choice"),
    ("tool_choice", "\"perhaps\"", "tool_choice"),
    ("chat_template", "\"{{ x }}\"", "chat_template"),
    ("chat_template_kwargs", "[]", "chat_template_kwargs"),
    ("enable_thinking", "\"no\"", "enable_thinking"),
    ("reasoning_effort", "\"huge\"", "reasoning_effort"),
];

/// One message that is wrong, and what the error must name.
const MESSAGES: &[(&str, &str)] = &[
    (r#""Hi""#, "messages[0]"),
    (r#"{"content": "Hi"}"#, "messages[0].role"),
    (r#"{"role": "wizard", "content": "Hi"}"#, "messages[0].role"),
    (r#"{"role": "user", "content": 5}"#, "messages[0].content"),
    (r#"{"role": "system", "content": "x"}"#, "messages"),
    (
        r#"{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/"}}]}"#,
        "messages[0].content[0]",
    ),
    (
        r#"{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "input_audio"}]}"#,
        "messages[0].content[1]",
    ),
];

/// The declaration of a function that is wrong, and what the error must name.
const FUNCTIONS: &[(&str, &str)] = &[
    ("{}", "tools[0].function.name"),
    (r#"{"name": ""}"#, "tools[0].function.name"),
    (
        r#"{"name": "f", "parameters": "x"}"#,
        "tools[0].function.parameters",
    ),
];

/// Bodies that are no request at all.
const BODIES: &[&str] = &[
    "",
    "{\"messages\": [",
    "{\"messages\": []} x",
    "{\"messages\": [], \"temperature\": NaN}",
    "[]",
    "\"hello\"",
];

/// A good chat with one field replaced.
fn with(field: &str, value: &str) -> String {
    let mut body = user("Hello!");
    body[field] = serde_json::from_str(value).unwrap();
    body.to_string()
}

#[test]
fn bodies_with_wrong_fields() {
    let server = Server::start(&[]);
    let refused = |body: &str, status: u16, param: Option<&str>| {
        let shown: String = body.chars().take(200).collect();
        let answer = server.post("/v1/chat/completions", body);
        check(&shown, &answer, status, param);
        check_good(&server);
    };
    for (field, value, param) in FIELDS {
        let body = with(field, value);
        refused(&body, 400, Some(param));
        // A wrong stream is refused by its status too, not by an event.
        let streamed = body.replacen('{', "{\"stream\": true, ", 1);
        refused(&streamed, 400, Some(param));
    }
    for (message, param) in MESSAGES {
        refused(&with("messages", &format!("[{message}]")), 400, Some(param));
    }
    for (function, param) in FUNCTIONS {
        let tool = format!("[{{\"type\": \"function\", \"function\": {function}}}]");
        refused(&with("tools", &tool), 400, Some(param));
    }
    let twice = r#"{"type": "function", "function": {"name": "f"}}"#;
    let param = Some("tools[1].function.name");
    refused(&with("tools", &format!("[{twice}, {twice}]")), 400, param);
    for body in BODIES {
        refused(body, 400, None);
    }
    refused(&format!("{{\"x\": {}", "[".repeat(100_000)), 400, None);
    refused("{}", 400, Some("messages"));
    refused(&with("stream", "\"yes\""), 400, Some("stream"));
    refused(&with("model", "\"gpt-4\""), 404, Some("model"));
    for words in [20_000, 1_000_000] {
        let long = user(&"word ".repeat(words)).to_string();
        refused(&long, 400, Some("messages"));
        let error = &server.post("/v1/chat/completions", &long).json()["error"];
        assert_eq!(error["code"], "context_length_exceeded");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("maximum context length"), "{message}");
    }
}

#[test]
fn requests_that_break_the_rules_of_http() {
    let server = Server::start(&["--max-body-bytes", "100000"]);
    let path = "/v1/chat/completions";
    let post = |headers: &[(&str, &str)], body: &[u8]| server.request("POST", path, headers, body);
    let good = user("Hello!").to_string();
    let json_type = ("content-type", "application/json");

    check("unknown path", &server.get("/v1/nothing"), 404, None);
    check(
        "unknown path",
        &server.post("/v1/completions/x/y", "{}"),
        404,
        None,
    );
    check(
        "unknown model",
        &server.get("/v1/models/gpt-4"),
        404,
        Some("model"),
    );
    for (method, path, allow) in [
        ("GET", path, "POST"),
        ("PUT", path, "POST"),
        ("DELETE", "/v1/models", "GET,HEAD"),
        ("POST", "/health", "GET,HEAD"),
    ] {
        let answer = server.request(method, path, &[], b"");
        check(method, &answer, 405, None);
        assert_eq!(answer.header("allow"), Some(allow), "{method} {path}");
    }
    check(
        "body too large",
        &post(&[json_type], &vec![b' '; 100_001]),
        413,
        None,
    );
    check(
        "text",
        &post(&[("content-type", "text/plain")], b"hello"),
        415,
        None,
    );
    let packed = [json_type, ("content-encoding", "br")];
    check("compressed", &post(&packed, good.as_bytes()), 415, None);
    let zipped = [json_type, ("content-encoding", "gzip")];
    check("not gzip", &post(&zipped, good.as_bytes()), 400, None);
    check(
        "not UTF-8",
        &post(&[json_type], b"{\"messages\": \"\xff\"}"),
        400,
        None,
    );
    check_good(&server);

    let short = user("Hello!")
        .to_string()
        .replacen('{', "{\"max_tokens\": 1, ", 1);
    for kind in [
        "application/json; charset=utf-8",
        "application/x-www-form-urlencoded",
    ] {
        assert_eq!(
            post(&[("content-type", kind)], short.as_bytes()).status,
            200,
            "{kind}"
        );
    }
}

/// A body that is announced too large is refused before it is sent.
#[test]
fn a_huge_body_is_refused_by_its_length() {
    let server = Server::start(&[]);
    let mut socket = TcpStream::connect(&server.address).unwrap();
    let length = 65 << 20;
    write!(
        socket,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n"
    )
    .unwrap();
    let mut head = [0; 12];
    socket.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 413");
    drop(socket);
    check_good(&server);
}
