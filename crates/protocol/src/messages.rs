//! Messages of a conversation: reading them and bringing them into an order
//! that the chat template accepts.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::error::{ApiError, clipped};
use crate::fields::Fields;

/// Who speaks, in the template's words; `developer` is system and `function` is tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Instructions.
    System,
    /// The person, or the program in front of us.
    User,
    /// The model.
    Assistant,
    /// A result of a tool call.
    Tool,
}

/// A call that the model made earlier.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// Name of the function.
    pub name: String,
    /// Arguments in the order in which they were given.
    pub arguments: Map<String, Value>,
}

/// One message with its content flattened to text.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// All text parts; "" if there were none.
    pub content: String,
    /// Thoughts of an earlier answer.
    pub reasoning: Option<String>,
    /// Calls of an earlier answer.
    pub tool_calls: Vec<ToolCall>,
}

impl Message {
    /// A message with text only.
    pub fn text(role: Role, content: impl Into<String>) -> Self {
        Self {
            role,
            content: content.into(),
            reasoning: None,
            tool_calls: Vec::new(),
        }
    }

    /// Would the template take this for a question of the user?
    fn is_query(&self) -> bool {
        let content = crate::template::python_strip(&self.content);
        self.role == Role::User
            && !(content.starts_with("<tool_response>") && content.ends_with("</tool_response>"))
    }
}

/// Reads `messages` of a body. Remarks that do not stop the request go to `notices`. 400 with the
/// index of the message for unknown roles, wrong types and content that is no text.
pub(crate) fn parse(body: &Fields, notices: &mut Vec<String>) -> Result<Vec<Message>, ApiError> {
    if body.required_list("messages")?.is_empty() {
        return Err(ApiError::invalid_value("messages", "messages is empty"));
    }
    let messages = body.objects("messages")?;
    messages
        .iter()
        .map(|fields| parse_message(fields, notices))
        .collect()
}

fn parse_message(fields: &Fields, notices: &mut Vec<String>) -> Result<Message, ApiError> {
    const ROLES: &[&str] = &[
        "system",
        "developer",
        "user",
        "assistant",
        "tool",
        "function",
    ];
    let role = match fields.word("role", ROLES)? {
        None => return Err(ApiError::missing(&fields.path_of("role"))),
        Some("system" | "developer") => Role::System,
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some(_) => Role::Tool,
    };
    let mut message = Message::text(role, "");
    let separator = if role == Role::Tool { "\n" } else { "" };
    let content_path = fields.path_of("content");
    match fields.union("content", &["string", "array", "null"]) {
        Some(_) => read_content(fields, "content", separator, &mut message)?,
        None if matches!(role, Role::User | Role::System) => {
            return Err(ApiError::missing(&content_path));
        }
        None => {}
    }
    if role == Role::Assistant {
        let thoughts = [
            fields.string("reasoning_content")?,
            fields.string("reasoning")?,
        ];
        let thoughts = thoughts.into_iter().flatten().find(|text| !text.is_empty());
        if let Some(text) = thoughts {
            message.reasoning = Some(text.to_owned());
        }
        message.tool_calls = read_tool_calls(fields, notices)?;
    }
    Ok(message)
}

/// Text of a string or of a list of parts; parts with thoughts go to `reasoning`.
pub(crate) fn read_content(
    fields: &Fields,
    name: &str,
    separator: &str,
    message: &mut Message,
) -> Result<(), ApiError> {
    let unsupported =
        |part: &Fields, kind: &str| Err(ApiError::unsupported_content(part.path(), &clipped(kind)));
    read_content_with(fields, name, separator, message, &mut { unsupported })
}

/// Text of a part of another kind, given with its type.
type ReadOther<'a> = &'a mut dyn FnMut(&Fields, &str) -> Result<String, ApiError>;

/// The same, with a reader for parts of other kinds.
pub(crate) fn read_content_with(
    fields: &Fields,
    name: &str,
    separator: &str,
    message: &mut Message,
    other: ReadOther<'_>,
) -> Result<(), ApiError> {
    let path = fields.path_of(name);
    let parts = match fields.union(name, &["string", "array", "null"]) {
        None => return Ok(()),
        Some(Value::String(text)) => {
            message.content.clone_from(text);
            return Ok(());
        }
        Some(Value::Array(parts)) => parts,
        Some(other) => {
            let expected = "a string or a list of parts";
            return Err(ApiError::wrong_type(&path, expected, other));
        }
    };
    let mut texts: Vec<Cow<'_, str>> = Vec::with_capacity(parts.len());
    for (i, part) in parts.iter().enumerate() {
        if let Value::String(text) = part {
            texts.push(text.into());
            continue;
        }
        let path = format!("{path}[{i}]");
        let part = fields.child(part, &*path)?;
        match part.string("type")?.unwrap_or("text") {
            "text" | "input_text" | "output_text" | "summary_text" => {
                texts.push(part.required_string("text")?.into());
            }
            "refusal" => texts.push(part.required_string("refusal")?.into()),
            "thinking" | "reasoning" | "reasoning_text" => {
                let text = match part.string("thinking")? {
                    Some(text) => text,
                    None => part.required_string("text")?,
                };
                message.reasoning.get_or_insert_default().push_str(text);
            }
            kind => texts.push(other(&part, kind)?.into()),
        }
    }
    message.content = texts.join(separator);
    Ok(())
}

fn read_tool_calls(message: &Fields, notices: &mut Vec<String>) -> Result<Vec<ToolCall>, ApiError> {
    let calls = message.objects("tool_calls")?;
    let calls = calls.iter().map(|call| {
        let function = call
            .object("function")?
            .ok_or_else(|| ApiError::missing(&call.path_of("function")))?;
        Ok(ToolCall {
            name: function.required_string("name")?.to_owned(),
            arguments: read_arguments(&function, "arguments", notices)?,
        })
    });
    calls.collect()
}

/// Arguments as an object or as the text of one.
pub(crate) fn read_arguments(
    call: &Fields,
    name: &str,
    notices: &mut Vec<String>,
) -> Result<Map<String, Value>, ApiError> {
    let path = call.path_of(name);
    match call.union(name, &["string", "object", "null"]) {
        None => Ok(Map::new()),
        Some(Value::Object(arguments)) => Ok(arguments.clone()),
        Some(Value::String(text)) => Ok(parse_arguments(text, &path, notices)),
        Some(other) => {
            let expected = "a string with JSON, or an object";
            Err(ApiError::wrong_type(&path, expected, other))
        }
    }
}

/// Arguments from their JSON text. A call that was cut off earlier must not block the rest of
/// the conversation, so text that is no JSON object stands for no arguments.
fn parse_arguments(text: &str, path: &str, notices: &mut Vec<String>) -> Map<String, Value> {
    if text.trim().is_empty() {
        return Map::new();
    }
    serde_json::from_str(text).unwrap_or_else(|error| {
        notices.push(format!(
            "{path} is not a JSON object ({error}); the call is shown without arguments"
        ));
        Map::new()
    })
}

/// Brings messages into the order that the template demands.
///
/// - A leading run of system messages becomes one, joined by blank lines.
/// - A later system message stays in place, inside the turn before it (user or tool), else at
///   the front of the turn after it, else as a user turn. Moving it to the front would change
///   the prompt's beginning, and with it the cached prefix, on every turn.
/// - If no user has asked anything (a client cut the history), an empty user turn comes first.
///
/// # Errors
/// 400 if there is nothing but system messages.
pub fn normalize(messages: Vec<Message>) -> Result<Vec<Message>, ApiError> {
    let mut result: Vec<Message> = Vec::with_capacity(messages.len() + 1);
    let mut pending: Option<String> = None;
    for mut message in messages {
        if message.role == Role::System {
            place_system(message.content, &mut result, &mut pending);
            continue;
        }
        if let Some(text) = pending.take() {
            if message.role == Role::Assistant {
                result.push(Message::text(Role::User, text));
            } else {
                message.content = joined(&text, &message.content);
            }
        }
        result.push(message);
    }
    if let Some(text) = pending {
        result.push(Message::text(Role::User, text));
    }
    let first_turn = usize::from(result.first().is_some_and(|m| m.role == Role::System));
    if result.len() == first_turn {
        let message = "messages has no user message";
        return Err(ApiError::invalid_value("messages", message));
    }
    if !result.iter().any(Message::is_query) {
        result.insert(first_turn, Message::text(Role::User, ""));
    }
    Ok(result)
}

fn place_system(text: String, result: &mut Vec<Message>, pending: &mut Option<String>) {
    if let Some(waiting) = pending {
        *waiting = joined(waiting, &text);
        return;
    }
    match result.last_mut() {
        None => result.push(Message::text(Role::System, text)),
        Some(last) if last.role == Role::Assistant => *pending = Some(text),
        Some(last) => last.content = joined(&last.content, &text),
    }
}

/// Both texts with a blank line between, if neither is empty.
fn joined(first: &str, second: &str) -> String {
    match (first.is_empty(), second.is_empty()) {
        (true, _) => second.to_owned(),
        (_, true) => first.to_owned(),
        _ => format!("{first}\n\n{second}"),
    }
}
