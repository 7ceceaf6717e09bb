//! Recorded chats, and how one of them is run.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use volley_engine::{SpeculateOptions, Usage};
use volley_protocol::openai::ChatRequest;
use volley_protocol::parser::Aggregate;
use volley_server::{FEATURES, ServedModel};

use crate::error::{Error, Result};

/// One line of a prompt file.
#[derive(Clone, Debug, Deserialize)]
pub struct Chat {
    /// Kind of task.
    pub kind: String,
    /// Messages as in the API.
    pub messages: Value,
    /// Declared tools as in the API.
    #[serde(default)]
    pub tools: Value,
    /// How tools are chosen, as in the API.
    #[serde(default)]
    pub tool_choice: Value,
    /// Whether the model thinks first.
    #[serde(default = "yes")]
    pub enable_thinking: bool,
    /// What a right answer is.
    #[serde(default)]
    pub expect: Expect,
}

/// A right answer; what is absent is not checked.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Expect {
    /// The whole content.
    pub content: Option<String>,
    /// Texts that the content holds.
    pub answer: Option<Vec<String>>,
    /// The content is one of these.
    pub one_of: Option<Vec<String>>,
    /// The tool calls in order.
    pub tool_calls: Option<Vec<Call>>,
}

/// A tool call.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Call {
    /// Function.
    pub name: String,
    /// Arguments, typed.
    pub arguments: Map<String, Value>,
}

fn yes() -> bool {
    true
}

/// What came out of one chat.
pub struct Outcome {
    /// Parsed output.
    pub answer: Aggregate,
    /// Token ids of the prompt.
    pub prompt: Vec<u32>,
    /// Generated token ids.
    pub tokens: Vec<u32>,
    /// Counts and times.
    pub usage: Usage,
}

/// Reads a file of chats, one JSON object per line.
pub fn read(path: &Path) -> Result<Vec<Chat>> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::Read {
        path: path.to_path_buf(),
        source,
    })?;
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| {
            serde_json::from_str(line)
                .map_err(|error| Error::Usage(format!("{}:{}: {error}", path.display(), index + 1)))
        })
        .collect()
}

/// The first `limit` chats of each kind.
pub fn limited(mut chats: Vec<Chat>, limit: Option<usize>) -> Vec<Chat> {
    if let Some(limit) = limit {
        let mut taken: BTreeMap<String, usize> = BTreeMap::new();
        chats.retain(|chat| {
            let taken = taken.entry(chat.kind.clone()).or_default();
            *taken += 1;
            *taken <= limit
        });
    }
    chats
}

/// A chat as the body of a request.
pub fn body(chat: &Chat, temperature: f32, max_tokens: usize) -> Value {
    let mut body = json!({
        "messages": chat.messages,
        "temperature": temperature,
        "max_tokens": max_tokens,
        "seed": 0,
        "chat_template_kwargs": {"enable_thinking": chat.enable_thinking},
    });
    if !chat.tools.is_null() {
        body["tools"] = chat.tools.clone();
        body["tool_choice"] = chat.tool_choice.clone();
    }
    body
}

/// Answers a chat at a temperature, drafting as told.
pub fn answer(
    model: &ServedModel,
    chat: &Chat,
    speculate: SpeculateOptions,
    temperature: f32,
    max_tokens: usize,
) -> Result<Outcome> {
    let body = body(chat, temperature, max_tokens);
    let request = ChatRequest::from_json_with(body.to_string().as_bytes(), &FEATURES)?;
    let mut prepared = model.prepare(request, "call_".into())?;
    prepared.request.speculate = speculate;
    let prompt = prepared.request.prompt.clone();
    let mut generation = model.start(prepared)?;
    let mut answer = Aggregate::default();
    while let Some(deltas) = generation.next_blocking() {
        answer.extend(&deltas?);
    }
    let usage = generation
        .timings()
        .ok_or_else(|| Error::Failed("the engine ended a request without a word".into()))?;
    Ok(Outcome {
        answer,
        prompt,
        tokens: generation.tokens().to_vec(),
        usage,
    })
}

impl Expect {
    /// Whether an answer is right.
    pub fn accepts(&self, answer: &Aggregate) -> bool {
        let content = answer.content.trim();
        let calls = || {
            let parsed = answer.tool_calls.iter().map(|call| {
                let arguments = serde_json::from_str(&call.arguments).ok()?;
                Some(Call {
                    name: call.name.clone(),
                    arguments,
                })
            });
            parsed.collect::<Option<Vec<Call>>>()
        };
        self.content
            .as_deref()
            .is_none_or(|whole| content == whole.trim())
            && self
                .one_of
                .as_ref()
                .is_none_or(|texts| texts.iter().any(|text| text.trim() == content))
            && self
                .answer
                .iter()
                .flatten()
                .all(|words| holds(content, words))
            && match &self.tool_calls {
                Some(expected) => calls().as_ref() == Some(expected),
                None => answer.tool_calls.is_empty(),
            }
    }
}

/// Whether `text` holds `words` as whole words.
fn holds(text: &str, words: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(words).any(|(start, _)| {
        let end = start + words.len();
        !text[..start].ends_with(inside) && !text[end..].starts_with(inside)
    })
}

#[cfg(test)]
mod tests {
    use volley_protocol::parser::{AggregatedCall, Delta};

    use super::*;

    fn expect(json: Value) -> Expect {
        serde_json::from_value(json).unwrap()
    }

    fn said(content: &str) -> Aggregate {
        let mut answer = Aggregate::default();
        answer.add(&Delta::Content(content.into()));
        answer
    }

    #[test]
    fn answers_are_whole_words() {
        let expect = expect(json!({"answer": ["71", "remainder 6"]}));
        assert!(expect.accepts(&said("It is 71 remainder 6.")));
        assert!(!expect.accepts(&said("It is 171 remainder 6.")));
        assert!(!expect.accepts(&said("It is 71.")));
    }

    #[test]
    fn contents_and_choices_are_exact() {
        assert!(expect(json!({"content": "Yes."})).accepts(&said(" Yes.\n")));
        assert!(!expect(json!({"content": "Yes."})).accepts(&said("Yes. No.")));
        let dice = expect(json!({"one_of": ["1", "2"]}));
        assert!(dice.accepts(&said("2")) && !dice.accepts(&said("3")));
    }

    #[test]
    fn calls_are_typed() {
        let mut answer = said("");
        answer.tool_calls.push(AggregatedCall {
            id: "call_0".into(),
            name: "roll".into(),
            arguments: r#"{"sides": 6}"#.into(),
        });
        let calls = |sides: Value| {
            expect(json!({"tool_calls": [{"name": "roll", "arguments": {"sides": sides}}]}))
        };
        assert!(calls(json!(6)).accepts(&answer));
        assert!(!calls(json!("6")).accepts(&answer));
        assert!(!expect(json!({"answer": []})).accepts(&answer));
    }
}
