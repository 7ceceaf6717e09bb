//! Requests of the bug bank (B) and of the negative tests (N), one a line of `requests.json`: each is
//! sent streamed and not, and leaves the server as it was.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::base;
use crate::common::canary::{CHAT, COMPLETIONS, Canary, MESSAGES, RESPONSES};
use crate::common::heard::{hear, heard_whole};
use crate::common::stream_data;

/// A request by its number. `{"$repeat": [text, n]}` stands for a long text, `{"$list": [value, n]}` for
/// a long list, in whose texts `{i}` is the position.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    pub case: String,
    #[serde(default)]
    path: Path,
    /// 200 unless told otherwise.
    #[serde(default)]
    status: Status,
    /// Functions by name, each with its properties.
    #[serde(default)]
    tools: Map<String, Value>,
    /// Fields beside those of a small request.
    #[serde(default)]
    body: Value,
    /// The body in place of all of this.
    text: Option<Value>,
    /// What the model says to it, as the case has it.
    said: Option<Said>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Path {
    #[default]
    Chat,
    Completions,
    Responses,
    Messages,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Status {
    One(u16),
    Any(Vec<u16>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    text: String,
    /// The text begins inside the thoughts.
    #[serde(default)]
    open: bool,
    #[serde(default = "stop")]
    end: String,
}

fn stop() -> String {
    "stop".to_owned()
}

impl Default for Status {
    fn default() -> Self {
        Self::One(200)
    }
}

impl Status {
    fn list(&self) -> &[u16] {
        match self {
            Self::One(status) => std::slice::from_ref(status),
            Self::Any(statuses) => statuses,
        }
    }
}

pub fn rows() -> Vec<Row> {
    serde_json::from_str(include_str!("requests.json")).unwrap()
}

impl Row {
    fn path(&self) -> &'static str {
        match self.path {
            Path::Chat => CHAT,
            Path::Completions => COMPLETIONS,
            Path::Responses => RESPONSES,
            Path::Messages => MESSAGES,
        }
    }

    fn body(&self) -> Value {
        let mut body = base(self.path());
        if !self.tools.is_empty() {
            let tools = self.tools.iter().map(|(name, properties)| {
                let parameters = json!({"type": "object", "properties": properties});
                json!({"type": "function", "function": {"name": name, "parameters": parameters}})
            });
            body["tools"] = tools.collect();
        }
        for (name, value) in self.body.as_object().into_iter().flatten() {
            body[name] = expanded(value, None);
        }
        body
    }

    /// The body with room for the whole of what is said.
    fn roomy(&self) -> Value {
        let mut body = self.body();
        for limit in ["max_tokens", "max_output_tokens"] {
            if self.body.get(limit).is_none() && body.get(limit).is_some() {
                body[limit] = 600.into();
            }
        }
        body
    }

    fn recording(&self, said: &Said) -> Value {
        recording(&self.roomy(), &said.text, said.open, &said.end)
    }
}

/// A value with its abbreviations written out.
fn expanded(value: &Value, position: Option<usize>) -> Value {
    let again = |value: &Value| expanded(value, position);
    match value {
        Value::String(text) => match position {
            Some(position) => text.replace("{i}", &position.to_string()).into(),
            None => value.clone(),
        },
        Value::Array(list) => list.iter().map(again).collect(),
        Value::Object(fields) => {
            let count = |of: &Value| of[1].as_u64().unwrap() as usize;
            if let Some(of) = fields.get("$repeat") {
                of[0].as_str().unwrap().repeat(count(of)).into()
            } else if let Some(of) = fields.get("$list") {
                (0..count(of)).map(|i| expanded(&of[0], Some(i))).collect()
            } else {
                let fields = fields
                    .iter()
                    .map(|(name, value)| (name.clone(), again(value)));
                Value::Object(fields.collect())
            }
        }
        plain => plain.clone(),
    }
}

fn recording(request: &Value, text: &str, open: bool, end: &str) -> Value {
    let state = if open { "think_open" } else { "think_closed" };
    json!({"request": request, "template_state": state, "pieces": [text], "finish_reason": end})
}

/// The demo pair answers in its own words.
#[test]
fn requests_leave_the_server_as_it_was() {
    let canary = Canary::new(&[]);
    for row in rows() {
        let statuses = row.status.list();
        match &row.text {
            None => canary.gets(row.path(), row.body(), statuses),
            Some(text) => {
                let text = expanded(text, None);
                let answer = canary.server.post(row.path(), text.as_str().unwrap());
                let case = &row.case;
                assert!(statuses.contains(&answer.status), "{case}: {}", answer.body);
                answer.json();
                canary.sings(case);
            }
        }
    }
}

/// The server says what the model said in the case, and the canary's words between.
#[test]
fn answers_leave_the_server_as_it_was() {
    let song = recording(&json!({}), "Work out 17 + 25.", true, "stop");
    let mut played = vec![song.clone()];
    let rows: Vec<Row> = rows();
    let spoken = || {
        rows.iter()
            .filter_map(|row| Some((row, row.said.as_ref()?)))
    };
    for (row, said) in spoken() {
        // Whole and streamed.
        played.extend([row.recording(said), song.clone()]);
        played.extend([row.recording(said), song.clone()]);
    }
    let folder = tempfile::tempdir().unwrap();
    for (index, file) in played.iter().enumerate() {
        let path = folder.path().join(format!("{index:05}.json"));
        std::fs::write(path, file.to_string()).unwrap();
    }
    let canary = Canary::new(&["--replay", folder.path().to_str().unwrap()]);
    for (row, _) in spoken() {
        let ask = |stream: bool| {
            let mut body = row.roomy();
            body["stream"] = stream.into();
            let answer = canary.server.post(row.path(), &body.to_string());
            assert_eq!(answer.status, 200, "{}: {}", row.case, answer.body);
            assert!(!answer.body.contains("\"error\":{"), "{}", answer.body);
            canary.sings(&row.case);
            answer
        };
        let (whole, streamed) = (ask(false), ask(true));
        if row.path() == CHAT {
            let (whole, mut heard) = (heard_whole(&whole.json()), hear(&stream_data(&streamed)));
            if whole.finish == "length" {
                // Parts of a call that was cut off have gone out in the stream.
                heard.calls.clear();
            }
            assert_eq!(heard, whole, "{}", row.case);
        }
    }
}
