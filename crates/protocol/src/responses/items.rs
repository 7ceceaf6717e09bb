//! Input items as messages. Items of one answer (thoughts, text, calls) become one message again,
//! as the model wrote them.

use serde_json::Value;

use crate::error::{ApiError, clipped};
use crate::fields::Fields;
use crate::messages::{Message, Role, ToolCall, read_arguments, read_content};

/// Messages of a list of input items.
pub(super) fn read_items(
    items: &[Fields],
    notices: &mut Vec<String>,
) -> Result<Vec<Message>, ApiError> {
    let mut reader = Reader {
        messages: Vec::with_capacity(items.len()),
        answering: false,
        notices,
    };
    items.iter().try_for_each(|item| reader.read(item))?;
    Ok(reader.messages)
}

struct Reader<'a> {
    messages: Vec<Message>,
    /// The last message is an answer that the next item may go on with.
    answering: bool,
    notices: &'a mut Vec<String>,
}

impl Reader<'_> {
    fn read(&mut self, item: &Fields) -> Result<(), ApiError> {
        let kind = item.string("type")?.unwrap_or("message");
        match kind {
            "message" => self.read_message(item),
            "reasoning" => self.read_reasoning(item),
            "function_call" | "custom_tool_call" => self.read_call(item, kind),
            "function_call_output" | "custom_tool_call_output" => self.read_output(item),
            "item_reference" => {
                let path = item.path_of("type");
                let message = "items are not kept here; send the item itself";
                Err(ApiError::unsupported_parameter(&path, message))
            }
            other => {
                let other = clipped(&format!("{other:?}"));
                let path = item.path_of("type");
                self.notices
                    .push(format!("{path} is {other}, which is left out"));
                Ok(())
            }
        }
    }

    fn read_message(&mut self, item: &Fields) -> Result<(), ApiError> {
        const ROLES: &[&str] = &["system", "developer", "user", "assistant", "tool"];
        let role = match item.word("role", ROLES)? {
            None => return Err(ApiError::missing(&item.path_of("role"))),
            Some("user") => Role::User,
            Some("assistant") => Role::Assistant,
            Some("tool") => Role::Tool,
            Some(_) => Role::System,
        };
        let mut message = Message::text(role, "");
        match item.union("content", &["string", "array"]) {
            None => return Err(ApiError::missing(&item.path_of("content"))),
            Some(_) => read_content(item, "content", "", &mut message)?,
        }
        if role != Role::Assistant {
            self.answering = false;
            self.messages.push(message);
            return Ok(());
        }
        // Text after a call is an answer of its own.
        if self
            .open_answer()
            .is_some_and(|last| !last.tool_calls.is_empty())
        {
            self.answering = false;
        }
        let answer = self.answer();
        answer.content.push_str(&message.content);
        if let Some(thoughts) = message.reasoning {
            answer.reasoning.get_or_insert_default().push_str(&thoughts);
        }
        Ok(())
    }

    /// The full thoughts if they are there, else the summary.
    fn read_reasoning(&mut self, item: &Fields) -> Result<(), ApiError> {
        let mut text = Message::text(Role::Assistant, "");
        read_content(item, "content", "", &mut text)?;
        let mut thoughts = text.reasoning.unwrap_or_default() + &text.content;
        if thoughts.is_empty() {
            let mut summary = Message::text(Role::Assistant, "");
            read_content(item, "summary", "\n\n", &mut summary)?;
            thoughts = summary.content;
        }
        item.string("encrypted_content")?;
        if thoughts.is_empty() {
            return Ok(());
        }
        if self
            .open_answer()
            .is_some_and(|last| !last.content.is_empty() || !last.tool_calls.is_empty())
        {
            self.answering = false;
        }
        let answer = self.answer();
        answer.reasoning.get_or_insert_default().push_str(&thoughts);
        Ok(())
    }

    fn read_call(&mut self, item: &Fields, kind: &str) -> Result<(), ApiError> {
        let name = item.required_string("name")?.to_owned();
        let arguments = match kind {
            "function_call" => read_arguments(item, "arguments", self.notices)?,
            // A custom tool takes text; it was declared with this one argument.
            _ => [(
                "input".to_owned(),
                Value::from(item.required_string("input")?),
            )]
            .into_iter()
            .collect(),
        };
        self.answer().tool_calls.push(ToolCall { name, arguments });
        Ok(())
    }

    fn read_output(&mut self, item: &Fields) -> Result<(), ApiError> {
        let mut message = Message::text(Role::Tool, "");
        read_content(item, "output", "\n", &mut message)?;
        item.string("call_id")?;
        self.answering = false;
        self.messages.push(message);
        Ok(())
    }

    fn open_answer(&self) -> Option<&Message> {
        self.messages.last().filter(|_| self.answering)
    }

    /// The answer that goes on, or a new one.
    fn answer(&mut self) -> &mut Message {
        if !self.answering {
            self.messages.push(Message::text(Role::Assistant, ""));
            self.answering = true;
        }
        self.messages
            .last_mut()
            .expect("a message was pushed before: this is a bug")
    }
}
