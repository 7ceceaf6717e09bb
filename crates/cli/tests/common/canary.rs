//! A server that has to stay as it is, whatever is asked of it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Server, user};

pub const CHAT: &str = "/v1/chat/completions";
pub const COMPLETIONS: &str = "/v1/completions";
pub const RESPONSES: &str = "/v1/responses";
pub const MESSAGES: &str = "/v1/messages";

/// A server with the answer that it has to keep giving.
pub struct Canary {
    pub server: Server,
    pub body: Value,
    pub expected: Value,
    songs: AtomicUsize,
}

impl Canary {
    pub fn new(flags: &[&str]) -> Self {
        let server = Server::start(flags);
        let mut body = user("What is 17 + 25?");
        body["max_tokens"] = 8.into();
        let expected = server.chat_ok(body.clone())["choices"].clone();
        Self {
            server,
            body,
            expected,
            songs: AtomicUsize::new(0),
        }
    }

    /// Fails unless the server is as it was: every other time by a streamed answer.
    pub fn sings(&self, after: &str) {
        if self.songs.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            let answer = self.server.chat_ok(self.body.clone());
            assert_eq!(answer["choices"], self.expected, "after {after}");
        } else {
            let chunks = self.server.stream(self.body.clone());
            let deltas = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]);
            let text: String = deltas
                .filter_map(|d| d["reasoning_content"].as_str())
                .collect();
            let expected = &self.expected[0]["message"]["reasoning_content"];
            assert_eq!(text, expected.as_str().unwrap(), "after {after}");
        }
        self.server.settles();
    }

    /// Sends a body, streamed and not, that gets one of these statuses.
    pub fn gets(&self, path: &str, mut body: Value, statuses: &[u16]) {
        for stream in [false, true] {
            body["stream"] = stream.into();
            let shown: String = body.to_string().chars().take(200).collect();
            let answer = self.server.post(path, &body.to_string());
            assert!(
                statuses.contains(&answer.status),
                "{path} {shown}: {}",
                answer.body
            );
            if answer.status == 200 && stream {
                assert!(
                    !answer.body.contains("\"error\":{"),
                    "{path} {shown}: {}",
                    answer.body
                );
            } else {
                answer.json();
            }
            self.sings(&shown);
        }
    }

    /// Sends a body that must be refused with 400 at `param` in less than the time of an answer.
    pub fn refuses(&self, path: &str, body: &str, param: Option<&str>) {
        let shown: String = body.chars().take(150).collect();
        let begin = Instant::now();
        let answer = self.server.post(path, body);
        assert_eq!(answer.status, 400, "{path} {shown}: {}", answer.body);
        assert!(begin.elapsed() < Duration::from_secs(5), "{shown}");
        let error = &answer.json()["error"];
        assert_eq!(error["type"], "invalid_request_error", "{shown}");
        if path != MESSAGES {
            assert_eq!(error["param"].as_str(), param, "{shown}: {}", answer.body);
        }
        assert!(
            answer.body.len() < 2000,
            "the error repeats the request: {shown}"
        );
        self.sings(&shown);
    }
}
