//! The events of a response. The body of a response that is not streamed is what its last event
//! would carry.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::ResponsesRequest;
use super::object::{
    ContentPart, IncompleteDetails, OutputItem, ReasoningText, ResponseError, ResponseObject,
    Status,
};
use super::request::ToolForm;
use crate::ApiError;
use crate::logprobs::{LogprobEntry, TokenLogprob, entries};
use crate::openai::Usage;
use crate::parser::{Delta, FinishReason};
use crate::reply::{Answer, Builder, Event, Step, to_text};
use crate::stream::ResponseMeta;

/// Responses on the wire.
#[derive(Debug)]
pub(crate) struct ResponsesBuilder {
    meta: ResponseMeta,
    request: Map<String, Value>,
    forms: HashMap<String, ToolForm>,
    include_reasoning: bool,
    logprobs: bool,
    sequence_number: u64,
    /// Items that are done.
    output: Vec<OutputItem>,
    open: Option<Open>,
    finish: Option<FinishReason>,
}

/// The item under way.
#[derive(Debug)]
enum Open {
    Reasoning {
        id: String,
        text: String,
    },
    Message {
        id: String,
        text: String,
        logprobs: Vec<LogprobEntry>,
    },
    Call {
        id: String,
        call_id: String,
        name: String,
        arguments: String,
    },
}

impl ResponsesBuilder {
    pub(crate) fn new(request: &ResponsesRequest, meta: ResponseMeta) -> Self {
        Self {
            meta,
            request: request.repeated().clone(),
            forms: request.tool_forms().clone(),
            include_reasoning: request.generation.include_reasoning,
            logprobs: request.generation.logprobs.is_some(),
            sequence_number: 0,
            output: Vec::new(),
            open: None,
            finish: None,
        }
    }

    fn object(&self, status: Status, usage: Option<Usage>) -> ResponseObject {
        let cut_off = status == Status::Incomplete;
        ResponseObject {
            id: self.meta.id.clone(),
            object: "response",
            created_at: self.meta.created,
            status,
            error: None,
            incomplete_details: cut_off.then_some(IncompleteDetails {
                reason: "max_output_tokens",
            }),
            model: self.meta.model.clone(),
            output: self.output.clone(),
            usage: usage.map(Into::into),
            request: self.request.clone(),
        }
    }

    fn end_status(&self) -> Status {
        match self.finish {
            Some(FinishReason::Length) => Status::Incomplete,
            _ => Status::Completed,
        }
    }

    /// An event; `fields` is an object.
    fn event(&mut self, kind: &'static str, fields: Value) -> Event {
        let mut body = Map::new();
        body.insert("type".to_owned(), kind.into());
        if let Value::Object(fields) = fields {
            body.extend(fields);
        }
        body.insert("sequence_number".to_owned(), self.sequence_number.into());
        self.sequence_number += 1;
        Event::named(kind, &body)
    }

    fn item_id(&self, prefix: &str) -> String {
        let suffix = self.meta.id.trim_start_matches("resp_");
        format!("{prefix}_{suffix}_{}", self.output.len())
    }

    fn take(&mut self, delta: &Delta, logprobs: &mut &[TokenLogprob], events: &mut Vec<Event>) {
        match delta {
            Delta::Reasoning(_) if !self.include_reasoning => {}
            Delta::Reasoning(more) => {
                if !matches!(self.open, Some(Open::Reasoning { .. })) {
                    let id = self.item_id("rs");
                    let text = String::new();
                    self.open_item(Open::Reasoning { id, text }, events);
                }
                self.add_reasoning(more, events);
            }
            Delta::Content(more) => {
                if !matches!(self.open, Some(Open::Message { .. })) {
                    self.close(Status::Completed, events);
                    let (id, text) = (self.item_id("msg"), String::new());
                    let logprobs = Vec::new();
                    let open = Open::Message { id, text, logprobs };
                    self.open_item(open, events);
                }
                let logprobs = match self.logprobs {
                    true => entries(std::mem::take(logprobs)),
                    false => Vec::new(),
                };
                self.add_text(more, logprobs, events);
            }
            Delta::ToolCallStart { id, name, .. } => {
                self.close(Status::Completed, events);
                let open = Open::Call {
                    id: self.item_id("fc"),
                    call_id: id.clone(),
                    name: name.clone(),
                    arguments: String::new(),
                };
                self.open_item(open, events);
            }
            Delta::ToolCallArguments { fragment, .. } => self.add_arguments(fragment, events),
            Delta::ToolCallEnd { .. } => self.close(Status::Completed, events),
            Delta::Finish(reason) => {
                self.finish = Some(*reason);
                self.close(self.end_status(), events);
            }
        }
    }

    fn open_item(&mut self, open: Open, events: &mut Vec<Event>) {
        self.close(Status::Completed, events);
        let index = self.output.len();
        let item = self.item(&open, Status::InProgress);
        let added = json!({"output_index": index, "item": item});
        events.push(self.event("response.output_item.added", added));
        if let Open::Message { id, .. } = &open {
            let part = ContentPart::new(String::new(), Vec::new());
            let added =
                json!({"item_id": id, "output_index": index, "content_index": 0, "part": part});
            events.push(self.event("response.content_part.added", added));
        }
        self.open = Some(open);
    }

    fn add_reasoning(&mut self, more: &str, events: &mut Vec<Event>) {
        let Some(Open::Reasoning { id, text }) = &mut self.open else {
            return;
        };
        text.push_str(more);
        let delta = json!({"item_id": id, "output_index": self.output.len(), "content_index": 0,
            "delta": more});
        events.push(self.event("response.reasoning_text.delta", delta));
    }

    fn add_text(&mut self, more: &str, new: Vec<LogprobEntry>, events: &mut Vec<Event>) {
        let Some(Open::Message { id, text, logprobs }) = &mut self.open else {
            return;
        };
        text.push_str(more);
        let delta = json!({"item_id": id, "output_index": self.output.len(), "content_index": 0,
            "delta": more, "logprobs": new});
        logprobs.extend(new);
        events.push(self.event("response.output_text.delta", delta));
    }

    fn add_arguments(&mut self, more: &str, events: &mut Vec<Event>) {
        let Some(Open::Call {
            id,
            name,
            arguments,
            ..
        }) = &mut self.open
        else {
            return;
        };
        arguments.push_str(more);
        // The text of a custom tool is inside the arguments: it goes out when it is complete.
        if self.forms.get(name) != Some(&ToolForm::Custom) {
            let delta = json!({"item_id": id, "output_index": self.output.len(), "delta": more});
            events.push(self.event("response.function_call_arguments.delta", delta));
        }
    }

    /// Ends the item under way. A call that was cut off is said to be so, and is no part of the
    /// output.
    fn close(&mut self, status: Status, events: &mut Vec<Event>) {
        let Some(open) = self.open.take() else {
            return;
        };
        let index = self.output.len();
        let item = self.item(&open, status);
        let half_a_call = matches!(open, Open::Call { .. }) && status != Status::Completed;
        match &open {
            Open::Reasoning { id, text } => {
                let done =
                    json!({"item_id": id, "output_index": index, "content_index": 0, "text": text});
                events.push(self.event("response.reasoning_text.done", done));
            }
            Open::Message { id, text, logprobs } => {
                let done = json!({"item_id": id, "output_index": index, "content_index": 0,
                    "text": text, "logprobs": logprobs});
                events.push(self.event("response.output_text.done", done));
                let part = ContentPart::new(text.clone(), logprobs.clone());
                let done =
                    json!({"item_id": id, "output_index": index, "content_index": 0, "part": part});
                events.push(self.event("response.content_part.done", done));
            }
            // Clients may take this event as the word to make the call.
            Open::Call { .. } if half_a_call => {}
            Open::Call {
                id,
                name,
                arguments,
                ..
            } => self.close_call(id, name, arguments, &item, events),
        }
        let done = json!({"output_index": index, "item": item});
        events.push(self.event("response.output_item.done", done));
        if !half_a_call {
            self.output.push(item);
        }
    }

    fn close_call(
        &mut self,
        id: &str,
        name: &str,
        arguments: &str,
        item: &OutputItem,
        events: &mut Vec<Event>,
    ) {
        let index = self.output.len();
        if let OutputItem::CustomToolCall { input, .. } = item {
            let delta = json!({"item_id": id, "output_index": index, "delta": input});
            events.push(self.event("response.custom_tool_call_input.delta", delta));
            let done = json!({"item_id": id, "output_index": index, "input": input});
            events.push(self.event("response.custom_tool_call_input.done", done));
        } else {
            let done =
                json!({"item_id": id, "output_index": index, "name": name, "arguments": arguments});
            events.push(self.event("response.function_call_arguments.done", done));
        }
    }

    fn item(&self, open: &Open, status: Status) -> OutputItem {
        match open {
            Open::Reasoning { id, text } => OutputItem::Reasoning {
                id: id.clone(),
                summary: [],
                // There from the start: clients append the deltas to it.
                content: vec![ReasoningText {
                    kind: "reasoning_text",
                    text: text.clone(),
                }],
                encrypted_content: None,
                status,
            },
            Open::Message { id, text, logprobs } => OutputItem::Message {
                id: id.clone(),
                role: "assistant",
                status,
                content: match text.is_empty() {
                    true => Vec::new(),
                    false => vec![ContentPart::new(text.clone(), logprobs.clone())],
                },
            },
            Open::Call {
                id,
                call_id,
                name,
                arguments,
            } => {
                let (id, call_id, name) = (id.clone(), call_id.clone(), name.clone());
                match self.forms.get(&name) {
                    Some(ToolForm::Custom) => OutputItem::CustomToolCall {
                        id,
                        call_id,
                        name,
                        input: custom_input(arguments),
                        status,
                    },
                    form => OutputItem::FunctionCall {
                        id,
                        call_id,
                        name,
                        namespace: match form {
                            Some(ToolForm::InNamespace(namespace)) => Some(namespace.clone()),
                            _ => None,
                        },
                        arguments: arguments.clone(),
                        status,
                    },
                }
            }
        }
    }
}

/// The text for a custom tool: the one argument it was declared with.
fn custom_input(arguments: &str) -> String {
    let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
    match &arguments["input"] {
        Value::String(text) => text.clone(),
        _ => String::new(),
    }
}

impl Builder for ResponsesBuilder {
    fn start(&mut self, _: Usage) -> Vec<Event> {
        let object = json!({"response": self.object(Status::InProgress, None)});
        vec![
            self.event("response.created", object.clone()),
            self.event("response.in_progress", object),
        ]
    }

    fn step(&mut self, _: usize, step: &Step, _: &Answer, _: Usage) -> Vec<Event> {
        let mut events = Vec::new();
        let mut logprobs = step.logprobs.as_slice();
        for delta in &step.deltas {
            self.take(delta, &mut logprobs, &mut events);
        }
        events
    }

    fn collect(&mut self, choice: usize, step: &Step) {
        self.step(choice, step, &Answer::default(), Usage::default());
    }

    fn end(&mut self, _: &[Answer], usage: Usage) -> Vec<Event> {
        let status = self.end_status();
        let object = json!({"response": self.object(status, Some(usage))});
        let kind = match status {
            Status::Incomplete => "response.incomplete",
            _ => "response.completed",
        };
        vec![self.event(kind, object)]
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        let mut events = Vec::new();
        self.close(Status::Incomplete, &mut events);
        let mut object = self.object(Status::Failed, None);
        object.error = Some(ResponseError {
            code: error.code.unwrap_or("server_error"),
            message: error.message.clone(),
        });
        events.push(self.event("response.failed", json!({"response": object})));
        events
    }

    fn whole(&self, _: Vec<Answer>, usage: Usage) -> String {
        to_text(&self.object(self.end_status(), Some(usage)))
    }
}
