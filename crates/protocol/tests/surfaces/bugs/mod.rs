//! Cases from public bug reports, by their numbers. Raw outputs run on every surface with
//! thoughts and calls, streamed and not, cut in many ways.

mod calls;
mod constraints;
mod limits;
mod prompts;
mod reasoning;
mod streams;

use serde_json::{Value, json};
use volley_protocol::anthropic::MessagesRequest;
use volley_protocol::completions::CompletionRequest;
use volley_protocol::messages::normalize;
use volley_protocol::openai::ChatRequest;
use volley_protocol::replay::{EngineEnd, Split};
use volley_protocol::responses::ResponsesRequest;
use volley_protocol::template::ChatTemplate;
use volley_protocol::{ApiError, Features, GenerationRequest};

use crate::heard::{CHATTY, Heard, file, hear, request};

/// A raw output and what clients must hear.
struct Raw {
    tools: Value,
    fields: Value,
    open: bool,
    pieces: Vec<String>,
    end: EngineEnd,
    heard: Heard,
}

impl Raw {
    /// Output after a closed think block; all of it is content unless told otherwise.
    fn new(raw: &str) -> Self {
        Self {
            tools: json!({}),
            fields: json!({}),
            open: false,
            pieces: vec![raw.to_owned()],
            end: EngineEnd::Stop,
            heard: Heard {
                content: raw.to_owned(),
                finish: "stop".to_owned(),
                ..Heard::default()
            },
        }
    }

    /// Output in pieces, as steps brought them.
    fn pieces(pieces: &[&str]) -> Self {
        Self {
            pieces: pieces.iter().map(|piece| (*piece).to_owned()).collect(),
            ..Self::new(&pieces.concat())
        }
    }

    fn open(mut self) -> Self {
        self.open = true;
        self
    }

    fn cut_off(mut self) -> Self {
        self.end = EngineEnd::Length;
        self.heard.finish = "length".to_owned();
        self
    }

    /// One function and the properties of its arguments.
    fn tool(mut self, name: &str, properties: Value) -> Self {
        self.tools[name] = json!({"type": "object", "properties": properties});
        self
    }

    /// A field of the chat request.
    fn field(mut self, name: &str, value: Value) -> Self {
        self.fields[name] = value;
        self
    }

    fn gives(mut self, reasoning: &str, content: &str) -> Self {
        self.heard.reasoning = reasoning.to_owned();
        self.heard.content = content.to_owned();
        self
    }

    fn call(mut self, name: &str, arguments: Value) -> Self {
        if self.heard.content == self.pieces.concat() {
            self.heard.content.clear();
        }
        let call = (String::new(), name.to_owned(), arguments);
        self.heard.calls.push(call);
        if self.end == EngineEnd::Stop {
            self.heard.finish = "tool_calls".to_owned();
        }
        self
    }

    #[track_caller]
    fn check(self) {
        let mut splits = vec![Split::Recorded, Split::Whole];
        splits.extend([1, 2, 3, 5, 7, 16].map(Split::Every));
        splits.extend((0..12).map(Split::Random));
        let pieces: Vec<&str> = self.pieces.iter().map(String::as_str).collect();
        for surface in CHATTY {
            let body = request(surface, &self.tools, &self.fields);
            let file = file(body, self.open, &pieces, self.end);
            for split in &splits {
                for stream in [false, true] {
                    let mut heard = hear(surface, &file, stream, *split);
                    let mut ids: Vec<String> = Vec::new();
                    for call in &mut heard.calls {
                        let id = std::mem::take(&mut call.0);
                        let legal = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
                        assert!(!id.is_empty() && id.len() <= 64 && id.chars().all(legal));
                        assert!(!ids.contains(&id), "ids differ");
                        ids.push(id);
                    }
                    heard.usage = self.heard.usage;
                    let how = format!("{surface:?}, streamed {stream}, {split:?}");
                    assert_eq!(heard, self.heard, "{how}");
                }
            }
        }
    }
}

/// A wrapped call.
fn call(name: &str, parameters: &[(&str, &str)]) -> String {
    let parameters: String = parameters
        .iter()
        .map(|(name, value)| format!("<parameter={name}>\n{value}\n</parameter>\n"))
        .collect();
    format!("<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>")
}

fn string() -> Value {
    json!({"type": "string"})
}

fn chat(fields: Value) -> Result<GenerationRequest, ApiError> {
    let mut body = json!({"messages": [{"role": "user", "content": "Hi"}]});
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    ChatRequest::from_json_with(body.to_string().as_bytes(), &Features::all())
}

fn completion(fields: Value) -> Result<CompletionRequest, ApiError> {
    CompletionRequest::from_json(fields.to_string().as_bytes(), &Features::all())
}

fn messages(body: &Value) -> Result<GenerationRequest, ApiError> {
    let read = MessagesRequest::from_json(body.to_string().as_bytes(), &Features::all());
    read.map(|request| request.generation)
}

fn responses(body: &Value) -> Result<GenerationRequest, ApiError> {
    let read = ResponsesRequest::from_json(body.to_string().as_bytes(), &Features::all());
    read.map(|request| request.generation)
}

fn prompt(request: &GenerationRequest) -> String {
    let template = ChatTemplate::new(include_str!("../../data/qwen3_6.jinja")).unwrap();
    let messages = normalize(request.messages.clone()).unwrap();
    template
        .render(&messages, request.active_tools(), request.render_options())
        .unwrap()
}

#[track_caller]
fn refused<T: std::fmt::Debug>(read: Result<T, ApiError>, param: &str) {
    let error = read.unwrap_err();
    assert_eq!(
        (error.status, error.param.as_deref()),
        (400, Some(param)),
        "{error}"
    );
}
