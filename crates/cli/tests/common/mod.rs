//! A real server process and a small client.
#![allow(dead_code, reason = "each test file uses a part")]

pub mod canary;
pub mod heard;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

/// `volley serve` of the demo on a free port; ended when dropped.
pub struct Server {
    child: Child,
    pub address: String,
    pub banner: String,
}

/// An answer: status, headers in lower case, body.
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Server {
    pub fn start(flags: &[&str]) -> Self {
        Self::launch("error", flags, Stdio::inherit())
    }

    /// The same with the log of a level.
    pub fn start_logged(level: &str, flags: &[&str]) -> (Self, ChildStderr) {
        let mut server = Self::launch(level, flags, Stdio::piped());
        let log = server.child.stderr.take().unwrap();
        (server, log)
    }

    fn launch(level: &str, flags: &[&str], log: Stdio) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_volley"))
            .args(["serve", "--port", "0", "--log-level", level])
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut banner = String::new();
        let address = loop {
            let Some(line) = lines.next() else {
                panic!("the server has ended: {}", child.wait().unwrap());
            };
            let line = line.unwrap();
            banner.push_str(&line);
            banner.push('\n');
            if let Some(url) = line
                .split("http://")
                .nth(1)
                .filter(|_| line.starts_with("serving"))
            {
                break url.split(' ').next().unwrap().to_owned();
            }
        };
        let curl = lines.next().unwrap().unwrap();
        banner.push_str(&curl);
        Self {
            child,
            address,
            banner,
        }
    }

    /// Sends a chat; greedy unless the body says otherwise.
    pub fn chat(&self, body: Value) -> Answer {
        self.post("/v1/chat/completions", &greedy(body).to_string())
    }

    /// The parsed body of a chat that must succeed.
    pub fn chat_ok(&self, body: Value) -> Value {
        let answer = self.chat(body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    }

    /// Data of the events of a streamed chat.
    pub fn stream(&self, mut body: Value) -> Vec<Value> {
        body["stream"] = true.into();
        let answer = self.chat(body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert_eq!(answer.header("content-type"), Some("text/event-stream"));
        assert_eq!(answer.header("x-accel-buffering"), Some("no"));
        assert_eq!(answer.header("cache-control"), Some("no-cache"));
        stream_data(&answer)
    }

    /// Value of a metric by its name, or by its name with all labels.
    pub fn metric(&self, name: &str) -> f64 {
        metric(&self.get("/metrics").body, name)
    }

    /// Waits until nothing runs or waits, and no cache block is taken.
    pub fn settles(&self) {
        const GAUGES: [&str; 3] = [
            "vllm:num_requests_running",
            "vllm:num_requests_waiting",
            "vllm:kv_cache_usage_perc",
        ];
        let mut busy = Vec::new();
        for _ in 0..200 {
            let page = self.get("/metrics").body;
            busy = GAUGES.iter().map(|name| metric(&page, name)).collect();
            if busy.iter().all(|gauge| *gauge == 0.0) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{GAUGES:?} stay at {busy:?}");
    }

    pub fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[], b"")
    }

    pub fn post(&self, path: &str, body: &str) -> Answer {
        let headers = [("content-type", "application/json")];
        self.request("POST", path, &headers, body.as_bytes())
    }

    /// Any request, with any header and body.
    pub fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .allow_non_standard_methods(true)
            .timeout_global(Some(Duration::from_secs(120)))
            .build()
            .into();
        let mut request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut response = if body.is_empty() && method != "POST" {
            agent.run(request.body(()).unwrap()).unwrap()
        } else {
            agent.run(request.body(body).unwrap()).unwrap()
        };
        let headers = response.headers().iter();
        Answer {
            status: response.status().as_u16(),
            headers: headers
                .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
                .collect(),
            body: response.body_mut().read_to_string().unwrap(),
        }
    }

    /// A connection on which a chat has been sent, after its first bytes of answer if `stream`.
    pub fn begin(&self, mut body: Value, stream: bool) -> TcpStream {
        body["stream"] = stream.into();
        let body = greedy(body).to_string();
        let mut socket = TcpStream::connect(&self.address).unwrap();
        write!(
            socket,
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        if stream {
            let mut head = [0; 16];
            socket.read_exact(&mut head).unwrap();
            assert!(head.starts_with(b"HTTP/1.1 200"));
        }
        socket
    }

    /// Sends a signal by name.
    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits for the end of the process.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let (true, Ok(Some(status))) = (std::thread::panicking(), self.child.try_wait()) {
            eprintln!("the server at {} has ended: {status}", self.address);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(ours, _)| ours == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Data of the events of a streamed chat, without `[DONE]`, which must be the last.
pub fn stream_data(answer: &Answer) -> Vec<Value> {
    let events = answer.body.split("\n\n").filter(|event| !event.is_empty());
    let mut data: Vec<&str> = events
        .filter(|event| !event.starts_with(':'))
        .map(|event| event.strip_prefix("data: ").unwrap())
        .collect();
    assert_eq!(data.pop(), Some("[DONE]"));
    let parse = |text: &str| serde_json::from_str(text).unwrap();
    data.into_iter().map(parse).collect()
}

fn metric(page: &str, name: &str) -> f64 {
    let value = page.lines().find_map(|line| {
        let (sample, value) = line.rsplit_once(' ')?;
        let bare = sample.split('{').next();
        (sample == name || bare == Some(name)).then_some(value)
    });
    let value = value.unwrap_or_else(|| panic!("{name} is not in {page}"));
    value.parse().unwrap()
}

fn greedy(mut body: Value) -> Value {
    if body.get("temperature").is_none() {
        body["temperature"] = 0.into();
    }
    body
}

/// A chat of one user message.
pub fn user(text: &str) -> Value {
    json!({"messages": [{"role": "user", "content": text}]})
}

/// The declaration of a tool that tells the weather.
pub fn weather_tool() -> Value {
    json!({"type": "function", "function": {
        "name": "get_weather",
        "description": "Get the current weather",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string"}},
            "required": ["place"],
        },
    }})
}
