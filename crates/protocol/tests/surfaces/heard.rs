//! What a client hears, put together from a body or from events as clients do it.

use serde_json::{Map, Value, json};
use volley_protocol::Surface;
use volley_protocol::replay::{EngineEnd, ReplayFile, Split, TemplateState, replay};

/// Surfaces with thoughts and calls.
pub const CHATTY: [Surface; 3] = [Surface::Chat, Surface::Responses, Surface::Messages];

/// An answer in words that all surfaces share.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heard {
    pub reasoning: String,
    pub content: String,
    /// Id, name and arguments.
    pub calls: Vec<(String, String, Value)>,
    /// `stop`, `length` or `tool_calls`.
    pub finish: String,
    /// Output tokens and reasoning tokens, where the surface tells them.
    pub usage: (u64, Option<u64>),
}

/// One server-sent event.
#[derive(Clone, Debug)]
pub struct Sent {
    pub name: Option<String>,
    pub data: String,
}

impl Sent {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap()
    }
}

/// Reads a stream as a client does.
pub fn events(bytes: &[u8]) -> Vec<Sent> {
    let text = std::str::from_utf8(bytes).unwrap();
    assert!(text.ends_with("\n\n"), "{text:?}");
    let blocks = text.trim_end_matches("\n\n").split("\n\n");
    let events = blocks.map(|block| {
        let field = |name: &str| {
            let mut lines = block.lines().filter_map(|line| line.strip_prefix(name));
            lines.next().map(str::to_owned)
        };
        Sent {
            name: field("event: "),
            data: field("data: ").unwrap(),
        }
    });
    events.collect()
}

/// A body for any of the surfaces with thoughts and calls. `fields` are those of chat.
pub fn request(surface: Surface, tools: &Value, fields: &Value) -> Value {
    let tools: Vec<Value> = tools
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, parameters)| match surface {
            Surface::Chat => json!({"type": "function",
                "function": {"name": name, "parameters": parameters}}),
            Surface::Responses => {
                json!({"type": "function", "name": name, "parameters": parameters})
            }
            _ => json!({"name": name, "input_schema": parameters}),
        })
        .collect();
    let question = json!([{"role": "user", "content": "q"}]);
    let mut body = match surface {
        Surface::Completions => json!({"prompt": "q", "max_tokens": 5}),
        Surface::Responses => json!({"input": question}),
        _ => json!({"messages": question, "max_tokens": 500}),
    };
    if surface == Surface::Chat {
        body["stream_options"] = json!({"include_usage": true});
    }
    if !tools.is_empty() {
        body["tools"] = tools.into();
    }
    for (name, value) in fields.as_object().unwrap_or(&Map::new()) {
        match (surface, name.as_str()) {
            (Surface::Messages, "stop") => body["stop_sequences"] = value.clone(),
            (Surface::Messages, "tool_choice") => match value.as_str() {
                Some(kind) => body["tool_choice"] = json!({"type": kind}),
                None => body["tool_choice"] = value.clone(),
            },
            (Surface::Messages, "parallel_tool_calls") => {
                body["tool_choice"] =
                    json!({"type": "auto", "disable_parallel_tool_use": !value.as_bool().unwrap()});
            }
            _ => body[name] = value.clone(),
        }
    }
    body
}

/// Plays pieces and returns what was heard.
pub fn hear(surface: Surface, file: &ReplayFile, stream: bool, split: Split) -> Heard {
    let replayed = replay(file, surface, stream, split);
    let text = String::from_utf8_lossy(&replayed.body).into_owned();
    assert_eq!(replayed.status, 200, "{text}");
    match (surface, stream) {
        (Surface::Chat, false) => chat_body(&replayed.body),
        (Surface::Chat, true) => chat_stream(&events(&replayed.body)),
        (Surface::Responses, false) => response_object(&json_of(&replayed.body)),
        (Surface::Responses, true) => responses_stream(&events(&replayed.body)),
        (Surface::Messages, false) => message(&json_of(&replayed.body)),
        (Surface::Messages, true) => messages_stream(&events(&replayed.body)),
        (Surface::Completions, false) => completion_body(&json_of(&replayed.body)),
        (Surface::Completions, true) => completion_stream(&events(&replayed.body)),
    }
}

pub fn file(request: Value, open: bool, pieces: &[&str], end: EngineEnd) -> ReplayFile {
    ReplayFile {
        request,
        template_state: match open {
            true => TemplateState::ThinkOpen,
            false => TemplateState::ThinkClosed,
        },
        pieces: pieces.iter().map(|piece| (*piece).to_owned()).collect(),
        finish_reason: end,
    }
}

fn json_of(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn chat_usage(body: &Value) -> (u64, Option<u64>) {
    let usage = &body["usage"];
    let reasoning = usage["completion_tokens_details"]["reasoning_tokens"].as_u64();
    (usage["completion_tokens"].as_u64().unwrap(), reasoning)
}

fn chat_body(bytes: &[u8]) -> Heard {
    let body = json_of(bytes);
    let message = &body["choices"][0]["message"];
    assert_eq!(message["reasoning_content"], message["reasoning"]);
    let calls = message["tool_calls"].as_array().cloned();
    let calls = calls.unwrap_or_default();
    Heard {
        reasoning: text(&message["reasoning_content"]),
        content: text(&message["content"]),
        calls: calls
            .iter()
            .map(|call| {
                let function = &call["function"];
                let arguments = function["arguments"].as_str().unwrap();
                let arguments = serde_json::from_str(arguments).unwrap();
                (text(&call["id"]), text(&function["name"]), arguments)
            })
            .collect(),
        finish: text(&body["choices"][0]["finish_reason"]),
        usage: chat_usage(&body),
    }
}

/// Joins chunks as openai-python does: a repeated id or name would be doubled.
fn chat_stream(events: &[Sent]) -> Heard {
    let (done, chunks) = events.split_last().unwrap();
    assert_eq!(done.data, "[DONE]");
    let mut heard = Heard::default();
    let mut calls: Vec<(String, String, String)> = Vec::new();
    for (i, event) in chunks.iter().enumerate() {
        assert_eq!(event.name, None);
        let chunk = event.json();
        assert_eq!(chunk["object"], "chat.completion.chunk");
        let Some(choice) = chunk["choices"].get(0) else {
            assert_eq!(i, chunks.len() - 1, "usage comes last");
            heard.usage = chat_usage(&chunk);
            continue;
        };
        let delta = &choice["delta"];
        if i == 0 {
            assert_eq!(*delta, json!({"role": "assistant", "content": ""}));
            continue;
        }
        assert!(heard.finish.is_empty(), "nothing follows the finish");
        assert_eq!(delta.get("role"), None);
        let is_empty = delta.as_object().unwrap().is_empty();
        assert_eq!(is_empty, !choice["finish_reason"].is_null(), "{chunk}");
        assert_eq!(delta["reasoning_content"], delta["reasoning"]);
        heard.reasoning += &text(&delta["reasoning_content"]);
        heard.content += &text(&delta["content"]);
        heard.finish += &text(&choice["finish_reason"]);
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().unwrap() as usize;
            if index == calls.len() {
                assert_eq!(call["type"], "function");
                calls.push(Default::default());
            }
            assert_eq!(index + 1, calls.len(), "calls do not overlap");
            calls[index].0 += &text(&call["id"]);
            calls[index].1 += &text(&call["function"]["name"]);
            calls[index].2 += call["function"]["arguments"].as_str().unwrap();
        }
    }
    heard.calls = complete(calls, &heard.finish);
    heard
}

/// The token limit may leave half a call in a stream; nothing else may.
fn complete(calls: Vec<(String, String, String)>, finish: &str) -> Vec<(String, String, Value)> {
    let last = calls.len();
    let calls = calls.into_iter().enumerate();
    calls
        .filter_map(
            |(i, (id, name, arguments))| match serde_json::from_str(&arguments) {
                Ok(arguments) => Some((id, name, arguments)),
                Err(error) => {
                    assert!(finish == "length" && i + 1 == last, "{error}: {arguments}");
                    None
                }
            },
        )
        .collect()
}

fn response_object(response: &Value) -> Heard {
    let mut heard = Heard::default();
    for item in response["output"].as_array().unwrap() {
        match item["type"].as_str().unwrap() {
            "reasoning" => heard.reasoning += &text(&item["content"][0]["text"]),
            "message" => heard.content += &text(&item["content"][0]["text"]),
            "function_call" => {
                let arguments = item["arguments"].as_str().unwrap();
                let arguments = serde_json::from_str(arguments).unwrap();
                let (id, name) = (text(&item["call_id"]), text(&item["name"]));
                heard.calls.push((id, name, arguments));
            }
            other => panic!("{other}"),
        }
    }
    heard.finish = match (response["status"].as_str().unwrap(), heard.calls.len()) {
        ("incomplete", _) => "length",
        ("completed", 0) => "stop",
        ("completed", _) => "tool_calls",
        other => panic!("{other:?}"),
    }
    .to_owned();
    let usage = &response["usage"];
    let reasoning = usage["output_tokens_details"]["reasoning_tokens"].as_u64();
    heard.usage = (usage["output_tokens"].as_u64().unwrap(), reasoning);
    heard
}

/// Checks the order of events and that deltas, done events and the last object agree.
fn responses_stream(events: &[Sent]) -> Heard {
    let bodies: Vec<Value> = events.iter().map(Sent::json).collect();
    let mut open: Option<(Value, String)> = None;
    let mut done = Vec::new();
    for (i, (event, body)) in events.iter().zip(&bodies).enumerate() {
        let kind = body["type"].as_str().unwrap();
        assert_eq!(event.name.as_deref(), Some(kind));
        assert_eq!(body["sequence_number"], i);
        match kind {
            "response.created" => assert_eq!(i, 0),
            "response.in_progress" => assert_eq!(i, 1),
            "response.output_item.added" => {
                assert!(open.is_none(), "items do not overlap");
                assert_eq!(body["output_index"], done.len());
                assert_eq!(body["item"]["status"], "in_progress");
                open = Some((body["item"].clone(), String::new()));
            }
            "response.output_item.done" => {
                let (item, deltas) = open.take().unwrap();
                let finished = body["item"].clone();
                assert_eq!(body["output_index"], done.len());
                assert_eq!(finished["id"], item["id"]);
                let told = match finished["type"].as_str().unwrap() {
                    "function_call" => text(&finished["arguments"]),
                    "custom_tool_call" => text(&finished["input"]),
                    _ => text(&finished["content"][0]["text"]),
                };
                assert_eq!(told, deltas);
                if finished["type"] != "function_call" || finished["status"] == "completed" {
                    done.push(finished);
                } else {
                    assert_eq!(finished["status"], "incomplete");
                }
            }
            "response.completed" | "response.incomplete" => {
                assert_eq!(i, events.len() - 1);
                assert_eq!(body["response"]["output"], Value::from(done.clone()));
            }
            _ => {
                let (item, deltas) = open.as_mut().unwrap();
                assert_eq!(body["item_id"], item["id"]);
                assert_eq!(body["output_index"], done.len());
                *deltas += &text(&body["delta"]);
                for whole in ["text", "arguments", "input"] {
                    if let Some(whole) = body.get(whole) {
                        assert_eq!(*whole, deltas.as_str());
                    }
                }
            }
        }
    }
    response_object(&bodies.last().unwrap()["response"])
}

fn message(body: &Value) -> Heard {
    let mut heard = Heard::default();
    for block in body["content"].as_array().unwrap() {
        match block["type"].as_str().unwrap() {
            "thinking" => {
                assert_ne!(block["signature"], "");
                heard.reasoning += &text(&block["thinking"]);
            }
            "text" => heard.content += &text(&block["text"]),
            "tool_use" => {
                let (id, name) = (text(&block["id"]), text(&block["name"]));
                heard.calls.push((id, name, block["input"].clone()));
            }
            other => panic!("{other}"),
        }
    }
    heard.finish = message_finish(&body["stop_reason"]);
    heard.usage = (body["usage"]["output_tokens"].as_u64().unwrap(), None);
    heard
}

fn message_finish(reason: &Value) -> String {
    match reason.as_str().unwrap() {
        "end_turn" | "stop_sequence" => "stop",
        "max_tokens" => "length",
        "tool_use" => "tool_calls",
        other => panic!("{other}"),
    }
    .to_owned()
}

fn messages_stream(events: &[Sent]) -> Heard {
    let mut blocks: Vec<Value> = Vec::new();
    let mut inputs: Vec<String> = Vec::new();
    let mut open = false;
    let mut end = None;
    for (i, event) in events.iter().enumerate() {
        let body = event.json();
        let kind = body["type"].as_str().unwrap().to_owned();
        assert_eq!(event.name.as_deref(), Some(kind.as_str()));
        match kind.as_str() {
            "message_start" => assert_eq!(i, 0),
            "content_block_start" => {
                assert!(!open, "blocks do not overlap");
                assert_eq!(body["index"], blocks.len());
                open = true;
                inputs.push(String::new());
                blocks.push(body["content_block"].clone());
            }
            "content_block_delta" => {
                assert!(open);
                assert_eq!(body["index"], blocks.len() - 1);
                let (block, delta) = (blocks.last_mut().unwrap(), &body["delta"]);
                let (kind, field) = match delta["type"].as_str().unwrap() {
                    "thinking_delta" => ("thinking", "thinking"),
                    "signature_delta" => ("thinking", "signature"),
                    "text_delta" => ("text", "text"),
                    _ => ("tool_use", "partial_json"),
                };
                assert_eq!(block["type"], kind);
                if kind == "tool_use" {
                    *inputs.last_mut().unwrap() += &text(&delta[field]);
                } else {
                    let joined = text(&block[field]) + delta[field].as_str().unwrap();
                    block[field] = joined.into();
                }
            }
            "content_block_stop" => open = false,
            "message_delta" => end = Some(body),
            "message_stop" => assert_eq!(i, events.len() - 1),
            other => panic!("{other}"),
        }
    }
    assert!(!open);
    let end = end.unwrap();
    for (block, input) in blocks.iter_mut().zip(&inputs) {
        if block["type"] == "tool_use" {
            assert_eq!(block["input"], json!({}));
            block["input"] = serde_json::from_str(input).unwrap_or(Value::Null);
        }
    }
    if end["delta"]["stop_reason"] == "max_tokens" {
        blocks.retain(|block| block["type"] != "tool_use" || !block["input"].is_null());
    }
    message(
        &json!({"content": blocks, "stop_reason": end["delta"]["stop_reason"],
        "usage": end["usage"]}),
    )
}

fn completion_body(body: &Value) -> Heard {
    Heard {
        content: text(&body["choices"][0]["text"]),
        finish: text(&body["choices"][0]["finish_reason"]),
        usage: chat_usage(body),
        ..Heard::default()
    }
}

fn completion_stream(events: &[Sent]) -> Heard {
    let (done, chunks) = events.split_last().unwrap();
    assert_eq!(done.data, "[DONE]");
    let mut heard = Heard::default();
    for chunk in chunks.iter().map(Sent::json) {
        assert_eq!(chunk["object"], "text_completion");
        match chunk["choices"].get(0) {
            None => heard.usage = chat_usage(&chunk),
            Some(choice) => {
                heard.content += &text(&choice["text"]);
                heard.finish += &text(&choice["finish_reason"]);
            }
        }
    }
    heard
}
