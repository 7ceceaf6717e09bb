//! `chat_template_kwargs`: arguments of the chat template by name.

use serde_json::{Map, Value};

use super::Features;
use super::thinking::{EFFORTS, Thinking, read_budget};
use crate::error::{ApiError, clipped};
use crate::fields::Fields;
use crate::recorder::Recorder;

const FIELD: &str = "chat_template_kwargs";
const MAX_ARGUMENTS: usize = 32;
const MAX_BYTES: usize = 4096;
/// What is set by the server.
const RESERVED: &[&str] = &[
    "add_generation_prompt",
    "bos_token",
    "chat_template",
    "continue_final_message",
    "conversation",
    "documents",
    "eos_token",
    "max_length",
    "messages",
    "padding",
    "return_dict",
    "return_tensors",
    "tokenize",
    "tokenizer_kwargs",
    "tools",
    "truncation",
];
/// What has a field of its own.
const THINKING: &[&str] = &[
    "enable_thinking",
    "preserve_thinking",
    "reasoning_effort",
    "thinking_budget",
];

/// Arguments of the chat template.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TemplateArguments {
    /// Those that are about thinking.
    pub thinking: Thinking,
    /// All others, which mean what the template makes of them.
    pub others: Map<String, Value>,
}

impl TemplateArguments {
    /// Reads those that a server has for requests that leave them open: a JSON object.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn from_json(json: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let body = Map::from_iter([(FIELD.to_owned(), value)]);
        let recorder = Recorder::names();
        let arguments = Self::read(&Fields::root(&body, &recorder), &Features::all());
        let arguments = arguments.map_err(|error| error.message)?;
        match arguments.thinking.budget_tokens {
            None => Ok(arguments),
            Some(_) => Err("a thinking_budget is for requests to ask for".to_owned()),
        }
    }

    pub(super) fn read(body: &Fields, features: &Features) -> Result<Self, ApiError> {
        let Some(fields) = body.object(FIELD)? else {
            return Ok(Self::default());
        };
        let count = fields.names().count();
        if count > MAX_ARGUMENTS {
            let message = format!("{FIELD} has {count} keys; the limit is {MAX_ARGUMENTS}");
            return Err(ApiError::invalid_value(FIELD, message));
        }
        let mut others = Map::new();
        for name in fields
            .names()
            .filter(|name| !THINKING.contains(&name.as_str()))
        {
            let path = fields.path_of(&clipped(name));
            if RESERVED.contains(&name.as_str()) {
                let message = format!("{path} is set by the server");
                return Err(ApiError::invalid_value(&path, message));
            }
            let Some(value) = fields.peek(name) else {
                continue;
            };
            let size = value.to_string().len();
            if size > MAX_BYTES {
                let message = format!("{path} has {size} bytes; the limit is {MAX_BYTES}");
                return Err(ApiError::invalid_value(&path, message));
            }
            others.insert(name.clone(), value.clone());
        }
        let thinking = Thinking {
            enable: fields.boolean("enable_thinking")?,
            preserve: fields.boolean("preserve_thinking")?,
            ..Thinking::default()
        };
        let budget = read_budget(&fields, "thinking_budget", features)?;
        let effort = Thinking::of_effort(fields.word("reasoning_effort", EFFORTS)?);
        Ok(Self {
            thinking: thinking.or(budget).or(effort),
            others,
        })
    }
}
