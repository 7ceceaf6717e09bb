//! Messages made of blocks, as messages.

use serde_json::{Map, Value};

use super::document::{add_paragraph, read_document, read_search_result};
use crate::error::{ApiError, clipped};
use crate::fields::Fields;
use crate::messages::{Message, Role, ToolCall, read_content_with};

/// `system`: a text or a list of text blocks, each a message of its own.
pub(super) fn read_system(body: &Fields) -> Result<Vec<Message>, ApiError> {
    const PARAM: &str = "system";
    let texts = match body.union(PARAM, &["string", "array", "null"]) {
        None => Vec::new(),
        Some(Value::String(text)) => vec![text.as_str()],
        Some(Value::Array(_)) => {
            let mut texts = Vec::new();
            for block in body.objects(PARAM)? {
                match block.string("type")?.unwrap_or("text") {
                    "text" => texts.push(block.required_string("text")?),
                    other => return Err(unsupported(&block, other)),
                }
            }
            texts
        }
        Some(other) => {
            let expected = "a string or a list of text blocks";
            return Err(ApiError::wrong_type(PARAM, expected, other));
        }
    };
    let texts = texts.into_iter().filter(|text| !text.is_empty());
    Ok(texts
        .map(|text| Message::text(Role::System, text))
        .collect())
}

/// `messages`; results of tools come before the text beside them.
pub(super) fn read_list(
    body: &Fields,
    notices: &mut Vec<String>,
) -> Result<Vec<Message>, ApiError> {
    if body.required_list("messages")?.is_empty() {
        return Err(ApiError::invalid_value("messages", "messages is empty"));
    }
    let mut messages = Vec::new();
    for fields in body.objects("messages")? {
        const ROLES: &[&str] = &["user", "assistant", "system", "developer"];
        let role = match fields.word("role", ROLES)? {
            None => return Err(ApiError::missing(&fields.path_of("role"))),
            Some("user") => Role::User,
            Some("assistant") => Role::Assistant,
            Some(_) => Role::System,
        };
        let content = fields.union("content", &["string", "array"]);
        match content {
            None => return Err(ApiError::missing(&fields.path_of("content"))),
            Some(Value::String(text)) => messages.push(Message::text(role, text)),
            Some(Value::Array(_)) => {
                let blocks = fields.objects("content")?;
                match role {
                    Role::Assistant => messages.push(read_answer(&blocks, notices)?),
                    _ => read_turn(role, &blocks, &mut messages, notices)?,
                }
            }
            Some(other) => {
                let expected = "a string or a list of blocks";
                let path = fields.path_of("content");
                return Err(ApiError::wrong_type(&path, expected, other));
            }
        }
    }
    Ok(messages)
}

/// Blocks of a user: results of tools, then the text.
fn read_turn(
    role: Role,
    blocks: &[Fields],
    messages: &mut Vec<Message>,
    notices: &mut Vec<String>,
) -> Result<(), ApiError> {
    let mut text: Option<String> = None;
    let mut behind_document = false;
    for block in blocks {
        match block.string("type")?.unwrap_or("text") {
            "text" => {
                let (text, more) = (text.get_or_insert_default(), block.required_string("text")?);
                match std::mem::take(&mut behind_document) {
                    true => add_paragraph(text, more),
                    false => text.push_str(more),
                }
            }
            kind @ ("document" | "search_result") => {
                let more = read_source(block, kind, notices)?;
                add_paragraph(text.get_or_insert_default(), &more);
                behind_document = true;
            }
            "tool_result" => {
                block.string("tool_use_id")?;
                block.boolean("is_error")?;
                let mut result = Message::text(Role::Tool, "");
                let mut other = |block: &Fields, kind: &str| match kind {
                    "document" | "search_result" => read_source(block, kind, notices),
                    // A tool that a search has found; all tools are in the prompt anyway.
                    "tool_reference" => Ok(block.required_string("tool_name")?.to_owned()),
                    other => Err(unsupported(block, other)),
                };
                read_content_with(block, "content", "\n", &mut result, &mut other)?;
                messages.push(result);
            }
            other if is_of_server(other) => notices.push(left_out(block, other)),
            other => return Err(unsupported(block, other)),
        }
    }
    if text.is_some() || blocks.is_empty() {
        messages.push(Message::text(role, text.unwrap_or_default()));
    }
    Ok(())
}

/// Text of a document or of a search result.
fn read_source(block: &Fields, kind: &str, notices: &mut Vec<String>) -> Result<String, ApiError> {
    match kind {
        "document" => read_document(block, notices),
        _ => read_search_result(block, notices),
    }
}

/// Blocks of an earlier answer.
fn read_answer(blocks: &[Fields], notices: &mut Vec<String>) -> Result<Message, ApiError> {
    let mut answer = Message::text(Role::Assistant, "");
    let mut behind_summary = false;
    for block in blocks {
        match block.string("type")?.unwrap_or("text") {
            "text" => {
                let text = block.required_string("text")?;
                match std::mem::take(&mut behind_summary) {
                    true => add_paragraph(&mut answer.content, text),
                    false => answer.content.push_str(text),
                }
            }
            // What was said before, in short; none if that failed.
            "compaction" => {
                if let Some(summary) = block.string("content")? {
                    add_paragraph(&mut answer.content, summary);
                    behind_summary = true;
                }
            }
            "thinking" => {
                block.string("signature")?;
                let thoughts = block.required_string("thinking")?;
                answer.reasoning.get_or_insert_default().push_str(thoughts);
            }
            "tool_use" => {
                block.string("id")?;
                let input = match block.union("input", &["object", "null"]) {
                    None => Map::new(),
                    Some(Value::Object(input)) => input.clone(),
                    Some(other) => {
                        let path = block.path_of("input");
                        return Err(ApiError::wrong_type(&path, "an object", other));
                    }
                };
                answer.tool_calls.push(ToolCall {
                    name: block.required_string("name")?.to_owned(),
                    arguments: input,
                });
            }
            other if other == "redacted_thinking" || is_of_server(other) => {
                notices.push(left_out(block, other));
            }
            other => return Err(unsupported(block, other)),
        }
    }
    Ok(answer)
}

/// Traces of tools that another server has run.
fn is_of_server(kind: &str) -> bool {
    const OTHERS: &[&str] = &[
        "fallback",
        "mcp_tool_listing",
        "mcp_tool_use",
        "server_tool_use",
    ];
    OTHERS.contains(&kind) || (kind.ends_with("_tool_result") && kind != "tool_result")
}

fn left_out(block: &Fields, kind: &str) -> String {
    let kind = clipped(&format!("{kind:?}"));
    format!("{} is {kind}, which is left out", block.path_of("type"))
}

fn unsupported(block: &Fields, kind: &str) -> ApiError {
    ApiError::unsupported_content(block.path(), &clipped(kind))
}
