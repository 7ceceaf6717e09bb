//! Plays raw output to the parser in every way it may be cut, and checks what holds for all.

use serde_json::{Value, json};
use volley_protocol::openai::Tool;
use volley_protocol::parser::{
    Aggregate, Delta, End, FinishReason, InitialState, OutputParser, ParserConfig, TagIds,
};

pub const IDS: TagIds = TagIds {
    think_open: 1,
    think_close: 2,
    tool_call_open: 3,
    tool_call_close: 4,
};
const TAGS: [(&str, u32); 4] = [
    ("<think>", 1),
    ("</think>", 2),
    ("<tool_call>", 3),
    ("</tool_call>", 4),
];

/// One raw output and what it must become.
pub struct Case {
    pub name: &'static str,
    pub open: bool,
    pub tools: Value,
    pub parallel: bool,
    pub stop: Vec<&'static str>,
    pub end: End,
    pub raw: String,
    pub reasoning: &'static str,
    pub content: String,
    /// Name and arguments of each call.
    pub calls: Vec<(&'static str, Value)>,
    pub finish: FinishReason,
}

impl Case {
    /// Output after a closed think block, with the tools below, that is all content.
    pub fn new(name: &'static str, raw: impl Into<String>) -> Self {
        let raw = raw.into();
        Self {
            name,
            open: false,
            tools: json!({}),
            parallel: true,
            stop: Vec::new(),
            end: End::Stop,
            content: raw.clone(),
            raw,
            reasoning: "",
            calls: Vec::new(),
            finish: FinishReason::Stop,
        }
    }

    pub fn open(mut self) -> Self {
        self.open = true;
        self
    }

    /// Functions by name with the properties of their arguments.
    pub fn tools(mut self, tools: Value) -> Self {
        self.tools = tools;
        self
    }

    pub fn stop(mut self, stop: &[&'static str]) -> Self {
        self.stop = stop.to_vec();
        self
    }

    pub fn cut_off(mut self) -> Self {
        self.end = End::Length;
        self.finish = FinishReason::Length;
        self
    }

    pub fn one_call_only(mut self) -> Self {
        self.parallel = false;
        self
    }

    pub fn gives(mut self, reasoning: &'static str, content: &str) -> Self {
        self.reasoning = reasoning;
        self.content = content.to_owned();
        self
    }

    pub fn call(mut self, name: &'static str, arguments: Value) -> Self {
        if self.calls.is_empty() && self.content == self.raw {
            self.content.clear();
        }
        self.calls.push((name, arguments));
        if self.end == End::Stop {
            self.finish = FinishReason::ToolCalls;
        }
        self
    }

    pub fn config(&self, tag_ids: Option<TagIds>) -> ParserConfig {
        ParserConfig {
            initial: match self.open {
                true => InitialState::ThinkOpen,
                false => InitialState::ThinkClosed,
            },
            tools: tools(&self.tools),
            parallel_tool_calls: self.parallel,
            stop: self.stop.iter().map(|s| s.to_string()).collect(),
            tag_ids,
            call_id_prefix: "call_x".to_owned(),
        }
    }

    /// Checks one way of cutting the output.
    pub fn check(&self, tag_ids: Option<TagIds>, pieces: &[(Vec<u8>, Option<u32>)]) {
        let answer = play(self.config(tag_ids), pieces, self.end);
        let calls: Vec<(&str, Value)> = answer
            .tool_calls
            .iter()
            .map(|call| {
                let arguments = serde_json::from_str(&call.arguments).unwrap_or_else(|error| {
                    panic!("{}: {error} in {:?}", self.name, call.arguments)
                });
                (call.name.as_str(), arguments)
            })
            .collect();
        let context = format!("{} with ids {}, {pieces:?}", self.name, tag_ids.is_some());
        assert_eq!(calls, self.calls, "{context}");
        assert_eq!(answer.content, self.content, "{context}");
        assert_eq!(answer.reasoning, self.reasoning, "{context}");
        assert_eq!(answer.finish_reason, Some(self.finish), "{context}");
    }

    /// Checks one piece, single bytes, and every cut in two, by text.
    pub fn check_text(&self) {
        let raw = self.raw.as_bytes();
        self.check(None, &[(raw.to_vec(), None)]);
        self.check(None, &bytewise(raw));
        for at in 0..raw.len() {
            let (first, second) = raw.split_at(at);
            self.check(None, &[(first.to_vec(), None), (second.to_vec(), None)]);
        }
    }

    /// The same with tags as tokens.
    pub fn check_ids(&self) {
        for size in [1, 2, 3, 7, usize::MAX] {
            self.check(Some(IDS), &as_tokens(&self.raw, size));
        }
    }
}

pub fn tools(functions: &Value) -> Vec<Tool> {
    let functions = functions.as_object().unwrap().iter();
    functions
        .map(|(name, properties)| Tool {
            name: name.clone(),
            parameters: match properties.get("properties") {
                Some(_) => properties.clone(),
                None => json!({"type": "object", "properties": properties}),
            },
            strict: false,
            definition: Value::Null,
        })
        .collect()
}

pub fn bytewise(raw: &[u8]) -> Vec<(Vec<u8>, Option<u32>)> {
    raw.iter().map(|&byte| (vec![byte], None)).collect()
}

/// Tags as tokens of their own, other text as tokens of at most `size` bytes.
pub fn as_tokens(raw: &str, size: usize) -> Vec<(Vec<u8>, Option<u32>)> {
    let mut tokens = Vec::new();
    let mut rest = raw;
    while !rest.is_empty() {
        if let Some((tag, id)) = TAGS.iter().find(|(tag, _)| rest.starts_with(tag)) {
            tokens.push((tag.as_bytes().to_vec(), Some(*id)));
            rest = &rest[tag.len()..];
            continue;
        }
        let next_tag = TAGS.iter().filter_map(|(tag, _)| rest.find(tag)).min();
        let (text, after) = rest.split_at(next_tag.unwrap_or(rest.len()));
        let chunks = text.as_bytes().chunks(size.min(text.len()));
        tokens.extend(chunks.map(|chunk| (chunk.to_vec(), Some(100))));
        rest = after;
    }
    tokens
}

/// The whole answer to pieces.
pub fn play(config: ParserConfig, pieces: &[(Vec<u8>, Option<u32>)], end: End) -> Aggregate {
    let mut answer = Aggregate::default();
    answer.extend(&deltas(config, pieces, end));
    answer
}

/// Parses pieces as the server does, and checks the order and form of the deltas.
pub fn deltas(config: ParserConfig, pieces: &[(Vec<u8>, Option<u32>)], end: End) -> Vec<Delta> {
    let mut parser = OutputParser::new(config);
    let mut deltas = Vec::new();
    for (bytes, id) in pieces {
        deltas.extend(parser.push(bytes, *id));
        if parser.stopped() {
            break;
        }
    }
    deltas.extend(parser.finish(end));
    let mut calls = 0;
    let mut open = false;
    for (i, delta) in deltas.iter().enumerate() {
        match delta {
            Delta::Reasoning(text) | Delta::Content(text) => assert!(!text.is_empty() && !open),
            Delta::ToolCallStart { index, id, name } => {
                assert!(!open && *index == calls && !name.is_empty());
                assert_eq!(*id, format!("call_x{index}"));
                open = true;
                calls += 1;
            }
            Delta::ToolCallArguments { index, fragment } => {
                assert!(open && *index + 1 == calls && !fragment.is_empty());
            }
            Delta::ToolCallEnd { index } => {
                assert!(open && *index + 1 == calls);
                open = false;
            }
            Delta::Finish(_) => assert_eq!(i, deltas.len() - 1),
        }
    }
    assert!(matches!(deltas.last(), Some(Delta::Finish(_))));
    deltas
}
