//! The inside of a call: parameters, their values, and where they really end.

use serde_json::Value as Json;

use super::{Machine, State};
use crate::parser::Delta;
use crate::parser::arguments::ArgumentWriter;
use crate::parser::lexer::{TOOL_CLOSE, TOOL_OPEN, is_tag};
use crate::parser::look::{Ahead, Look};
use crate::parser::schema::{declares, types_of};

/// The call that is open.
#[derive(Debug, Default)]
pub(super) struct Call {
    index: usize,
    /// Declared schema of the arguments; null for an undeclared function.
    schema: Json,
    seen: Vec<String>,
    writer: ArgumentWriter,
    value: Value,
}

/// The value that is open.
#[derive(Debug, Default)]
struct Value {
    /// Nothing of it has been looked at.
    at_start: bool,
    /// A line end follows the opening tag: the usual form.
    on_own_lines: bool,
    /// Part of it is written.
    fed: bool,
}

impl Call {
    fn is_parameter_name(&self, name: &str) -> bool {
        !name.contains(char::is_whitespace) || declares(&self.schema, name)
    }

    /// Within a value, only a parameter that the call may still get ends it.
    fn is_new_parameter(&self, name: &str) -> bool {
        let known = if self.schema.is_null() {
            self.is_parameter_name(name)
        } else {
            declares(&self.schema, name)
        };
        known && !self.seen.iter().any(|seen| seen == name)
    }

    /// Does the value end `offset` bytes ahead? Yes carries the length of a tag to skip.
    fn value_end(&self, ahead: Ahead, offset: usize) -> Look<usize> {
        let value = &self.value;
        let line_start = match offset {
            0 => value.on_own_lines && !value.fed,
            _ => ahead.text[offset - 1] == b'\n',
        };
        ahead
            .parameter_end(offset)
            .map(|end| end - offset)
            .or(|| ahead.function_end(offset).map(|_| 0))
            .or(|| match line_start {
                true => ahead.last_wrapper_end(offset).map(|_| 0),
                false => Look::No,
            })
            .or(|| match line_start || !value.on_own_lines {
                true => self.next_parameter(ahead, offset),
                false => Look::No,
            })
    }

    fn next_parameter(&self, ahead: Ahead, offset: usize) -> Look<usize> {
        let tag = ahead.literal(offset, b"<parameter=");
        let name = tag.and_then(|at| ahead.name(at));
        name.and_then(|(name, _)| match self.is_new_parameter(name) {
            true => Look::Yes(0),
            false => Look::No,
        })
    }
}

impl Machine {
    pub(super) fn begin_call(&mut self, name: String) {
        self.flush_content();
        let tool = self.config.tools.iter().find(|tool| tool.name == name);
        let index = self.calls_begun;
        self.call = Call {
            index,
            schema: tool.map(|tool| tool.parameters.clone()).unwrap_or_default(),
            ..Call::default()
        };
        self.calls_begun += 1;
        self.in_wrapper = true;
        self.state = State::Body;
        let id = format!("{}{index}", self.config.call_id_prefix);
        self.deltas.push(Delta::ToolCallStart { index, id, name });
    }

    pub(super) fn step_body(&mut self, complete: bool) -> bool {
        let blank = self.find(|byte| !byte.is_ascii_whitespace());
        self.at += blank.unwrap_or(self.input.len() - self.at);
        let Some(&next) = self.input.get(self.at) else {
            return false;
        };
        let ahead = self.ahead(complete);
        let (parameter, function_end) = (
            ahead.literal(0, b"<parameter="),
            ahead.literal(0, b"</function>"),
        );
        let other_function = ahead.literal(0, b"<function=");
        if let Look::Yes(name_at) = parameter {
            return self.begin_value(name_at, complete);
        }
        if let Look::Yes(end) = function_end {
            self.at += end;
            self.close_call();
        } else if next == TOOL_CLOSE || next == TOOL_OPEN || matches!(other_function, Look::Yes(_))
        {
            self.close_call();
        } else if [parameter, function_end, other_function].contains(&Look::More) {
            return false;
        } else {
            // Stray text between parameters belongs to nothing.
            self.at += 1;
            let next = self.find(|byte| byte == b'<' || is_tag(byte));
            self.at += next.unwrap_or(self.input.len() - self.at);
        }
        true
    }

    fn begin_value(&mut self, name_at: usize, complete: bool) -> bool {
        match self.ahead(complete).name(name_at) {
            Look::More => return false,
            Look::Yes((name, end)) if self.call.is_parameter_name(name) => {
                let name = name.to_owned();
                let types = types_of(&self.call.schema, &name);
                self.call.writer.begin_value(&name, types);
                self.call.seen.push(name);
                self.call.value = Value {
                    at_start: true,
                    ..Value::default()
                };
                self.at += end;
                self.state = State::Value;
            }
            // Only this parameter is lost.
            _ => self.at += name_at,
        }
        true
    }

    pub(super) fn step_value(&mut self, complete: bool) -> bool {
        if self.call.value.at_start {
            let Some(&first) = self.input.get(self.at) else {
                return false;
            };
            self.call.value.at_start = false;
            self.call.value.on_own_lines = first == b'\n';
            self.at += usize::from(first == b'\n');
        }
        let Some(next) = self.find(|byte| byte == b'<' || byte == TOOL_CLOSE) else {
            let length = self.without_line_end(self.input.len() - self.at);
            self.feed_value(length);
            return false;
        };
        match self.call.value_end(self.ahead(complete), next) {
            Look::Yes(tag_length) => {
                let length = self.without_line_end(next);
                self.feed_value(length);
                self.at += next - length + tag_length;
                self.end_value();
            }
            Look::No => self.feed_value(next + 1),
            Look::More => {
                let length = self.without_line_end(next);
                self.feed_value(length);
                return false;
            }
        }
        true
    }

    /// `length`, less one for a line end there: the last one before a closing tag is no part of
    /// the value.
    fn without_line_end(&self, length: usize) -> usize {
        let ends = length > 0 && self.input[self.at + length - 1] == b'\n';
        length - usize::from(ends)
    }

    fn feed_value(&mut self, length: usize) {
        if length > 0 {
            self.call.value.fed = true;
            let text = self.take(length);
            self.write_arguments(|writer, out| writer.feed(&text, out));
        }
    }

    fn end_value(&mut self) {
        self.state = State::Body;
        self.write_arguments(ArgumentWriter::end_value);
    }

    /// Ends the open call, and its open value with all that is left as its text.
    pub(super) fn close_call(&mut self) {
        if self.state == State::Value {
            let length = self.without_line_end(self.input.len() - self.at);
            self.feed_value(length);
            self.end_value();
        }
        if self.state != State::Body {
            return;
        }
        self.write_arguments(ArgumentWriter::end);
        let index = self.call.index;
        self.deltas.push(Delta::ToolCallEnd { index });
        self.calls_ended += 1;
        self.after_call = true;
        self.only_call_done = !self.config.parallel_tool_calls;
        self.state = State::Content;
    }

    fn write_arguments(&mut self, write: impl FnOnce(&mut ArgumentWriter, &mut String)) {
        let mut more = String::new();
        write(&mut self.call.writer, &mut more);
        if more.is_empty() {
            return;
        }
        if let Some(Delta::ToolCallArguments { fragment, .. }) = self.deltas.last_mut() {
            fragment.push_str(&more);
        } else {
            let index = self.call.index;
            let fragment = more;
            self.deltas
                .push(Delta::ToolCallArguments { index, fragment });
        }
    }
}
