//! The events of a message. The body of a message that is not streamed is made of the same blocks.

use serde_json::{Value, json};

use super::MessagesRequest;
use super::response::{ContentBlock, MessageObject, MessageUsage, SIGNATURE, StopReason};
use crate::ApiError;
use crate::openai::Usage;
use crate::parser::{Delta, FinishReason};
use crate::reply::{Answer, Builder, Event, Step, to_text};
use crate::stream::ResponseMeta;

/// Messages on the wire.
#[derive(Debug)]
pub(crate) struct MessagesBuilder {
    meta: ResponseMeta,
    include_reasoning: bool,
    /// Blocks that are complete. A call that was cut off is none.
    content: Vec<ContentBlock>,
    open: Option<Open>,
    /// Index of the next block.
    index: usize,
    stop_reason: Option<StopReason>,
    stop_sequence: Option<String>,
}

/// The block under way.
#[derive(Debug)]
enum Open {
    Thinking(String),
    Text(String),
    ToolUse {
        id: String,
        name: String,
        input: String,
    },
}

impl MessagesBuilder {
    pub(crate) fn new(request: &MessagesRequest, meta: ResponseMeta) -> Self {
        Self {
            meta,
            include_reasoning: request.generation.include_reasoning,
            content: Vec::new(),
            open: None,
            index: 0,
            stop_reason: None,
            stop_sequence: None,
        }
    }

    fn object(&self, content: Vec<ContentBlock>, usage: Usage) -> MessageObject {
        MessageObject {
            id: self.meta.id.clone(),
            kind: "message",
            role: "assistant",
            model: self.meta.model.clone(),
            content,
            stop_reason: self.stop_reason,
            stop_sequence: self.stop_sequence.clone(),
            usage: usage.into(),
        }
    }

    fn take(&mut self, delta: &Delta, events: &mut Vec<Event>) {
        match delta {
            Delta::Reasoning(_) if !self.include_reasoning => {}
            Delta::Reasoning(more) => {
                if !matches!(self.open, Some(Open::Thinking(_))) {
                    self.open_block(Open::Thinking(String::new()), events);
                }
                if let Some(Open::Thinking(text)) = &mut self.open {
                    text.push_str(more);
                }
                let delta = json!({"type": "thinking_delta", "thinking": more});
                events.push(self.delta(&delta));
            }
            Delta::Content(more) => {
                if !matches!(self.open, Some(Open::Text(_))) {
                    self.open_block(Open::Text(String::new()), events);
                }
                if let Some(Open::Text(text)) = &mut self.open {
                    text.push_str(more);
                }
                events.push(self.delta(&json!({"type": "text_delta", "text": more})));
            }
            Delta::ToolCallStart { id, name, .. } => {
                let open = Open::ToolUse {
                    id: id.clone(),
                    name: name.clone(),
                    input: String::new(),
                };
                self.open_block(open, events);
            }
            Delta::ToolCallArguments { fragment, .. } => {
                if let Some(Open::ToolUse { input, .. }) = &mut self.open {
                    input.push_str(fragment);
                }
                let delta = json!({"type": "input_json_delta", "partial_json": fragment});
                events.push(self.delta(&delta));
            }
            Delta::ToolCallEnd { .. } => self.close(events),
            Delta::Finish(_) => {
                let cut_off = matches!(self.open, Some(Open::ToolUse { .. }));
                self.close(events);
                if cut_off {
                    self.content.pop();
                }
            }
        }
    }

    fn open_block(&mut self, open: Open, events: &mut Vec<Event>) {
        self.close(events);
        let block = match &open {
            Open::Thinking(_) => json!({"type": "thinking", "thinking": "", "signature": ""}),
            Open::Text(_) => json!({"type": "text", "text": ""}),
            Open::ToolUse { id, name, .. } => {
                json!({"type": "tool_use", "id": id, "name": name, "input": {}})
            }
        };
        let start =
            json!({"type": "content_block_start", "index": self.index, "content_block": block});
        events.push(Event::named("content_block_start", &start));
        self.open = Some(open);
    }

    fn delta(&self, delta: &Value) -> Event {
        let body = json!({"type": "content_block_delta", "index": self.index, "delta": delta});
        Event::named("content_block_delta", &body)
    }

    fn close(&mut self, events: &mut Vec<Event>) {
        let Some(open) = self.open.take() else {
            return;
        };
        if matches!(open, Open::Thinking(_)) {
            let delta = json!({"type": "signature_delta", "signature": SIGNATURE});
            events.push(self.delta(&delta));
        }
        let stop = json!({"type": "content_block_stop", "index": self.index});
        events.push(Event::named("content_block_stop", &stop));
        self.index += 1;
        self.content.push(match open {
            Open::Thinking(thinking) => ContentBlock::Thinking {
                thinking,
                signature: SIGNATURE,
            },
            Open::Text(text) => ContentBlock::Text { text },
            Open::ToolUse { id, name, input } => ContentBlock::ToolUse {
                id,
                name,
                input: serde_json::from_str(&input).unwrap_or_else(|_| json!({})),
            },
        });
    }
}

impl Builder for MessagesBuilder {
    fn start(&mut self, usage: Usage) -> Vec<Event> {
        let message = self.object(Vec::new(), usage);
        let body = json!({"type": "message_start", "message": message});
        vec![Event::named("message_start", &body)]
    }

    fn step(&mut self, _: usize, step: &Step, _: &Answer, _: Usage) -> Vec<Event> {
        let mut events = Vec::new();
        for delta in &step.deltas {
            self.take(delta, &mut events);
            if let Delta::Finish(reason) = delta {
                let stop_string = step.stop_string.as_deref();
                self.stop_reason = Some(StopReason::new(*reason, stop_string));
                if *reason == FinishReason::Stop {
                    self.stop_sequence.clone_from(&step.stop_string);
                }
            }
        }
        events
    }

    fn collect(&mut self, choice: usize, step: &Step) {
        self.step(choice, step, &Answer::default(), Usage::default());
    }

    fn end(&mut self, _: &[Answer], usage: Usage) -> Vec<Event> {
        let delta = json!({"stop_reason": self.stop_reason, "stop_sequence": self.stop_sequence});
        let usage = MessageUsage::from(usage);
        let body = json!({"type": "message_delta", "delta": delta, "usage": usage});
        vec![
            Event::named("message_delta", &body),
            Event::named("message_stop", &json!({"type": "message_stop"})),
        ]
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        vec![Event::named("error", &error.to_anthropic_json(None))]
    }

    fn keep_alive(&self) -> String {
        Event::named("ping", &json!({"type": "ping"})).to_string()
    }

    fn whole(&self, _: Vec<Answer>, usage: Usage) -> String {
        to_text(&self.object(self.content.clone(), usage))
    }
}
