//! The states of an answer: thoughts, content, and the inside of a call (module `call`).

mod call;

use self::call::Call;
use super::lexer::{THINK_CLOSE, THINK_OPEN, TOOL_CLOSE, TOOL_OPEN, is_tag, spelled};
use super::look::{Ahead, Look, Opening};
use super::origin::Origins;
use super::text::{Answer, Trimmed};
use super::{Delta, End, FinishReason, InitialState, ParserConfig};
use crate::openai::Tool;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Thoughts, up to `</think>` or a whole call.
    Reasoning,
    /// The answer; also between calls.
    Content,
    /// Inside a function, between its parameters.
    Body,
    /// Inside a parameter's value.
    Value,
}

#[derive(Debug)]
pub(super) struct Machine {
    /// Marked text that is not decided.
    input: Vec<u8>,
    /// Bytes of `input` that are done with.
    at: usize,
    origins: Origins,
    state: State,
    config: ParserConfig,
    reasoning: Trimmed,
    content: Answer,
    /// Literal `<think>`s in the content whose partner has not come.
    open_thinks: usize,
    /// A call has begun and its wrapper's end has not come.
    in_wrapper: bool,
    /// A call has just ended.
    after_call: bool,
    /// Up to here a call within the thoughts has been searched for its end.
    searched: usize,
    call: Call,
    calls_begun: usize,
    calls_ended: usize,
    only_call_done: bool,
    deltas: Vec<Delta>,
}

impl Machine {
    pub(super) fn new(mut config: ParserConfig) -> Self {
        let state = match config.initial {
            InitialState::ThinkOpen => State::Reasoning,
            InitialState::ThinkClosed | InitialState::InText | InitialState::Verbatim => {
                State::Content
            }
        };
        let content = match config.initial {
            InitialState::Verbatim => Trimmed::verbatim(),
            InitialState::InText => Trimmed::in_text(),
            _ => Trimmed::default(),
        };
        if config.initial == InitialState::Verbatim {
            config.tools.clear();
        }
        Self {
            input: Vec::new(),
            at: 0,
            origins: Origins::default(),
            state,
            reasoning: Trimmed::default(),
            content: Answer::new(std::mem::take(&mut config.stop), content),
            config,
            open_thinks: 0,
            in_wrapper: false,
            after_call: false,
            searched: 0,
            call: Call::default(),
            calls_begun: 0,
            calls_ended: 0,
            only_call_done: false,
            deltas: Vec::new(),
        }
    }

    /// Lets the lexer append what a push brings.
    pub(super) fn receive(&mut self, append: impl FnOnce(&mut Vec<u8>)) {
        let before = self.input.len();
        append(&mut self.input);
        self.origins.pushed(self.input.len() - before);
    }

    /// Pushes whose text has come out as content.
    pub(super) fn take_content_pushes(&mut self) -> Vec<usize> {
        self.origins.take()
    }

    pub(super) fn in_reasoning(&self) -> bool {
        self.state == State::Reasoning
    }

    pub(super) fn stopped(&self) -> bool {
        self.only_call_done || self.content.hit().is_some()
    }

    pub(super) fn stop_string(&self) -> Option<&str> {
        self.content.hit()
    }

    pub(super) fn take_deltas(&mut self) -> Vec<Delta> {
        std::mem::take(&mut self.deltas)
    }

    /// Decides all that the input so far decides.
    pub(super) fn advance(&mut self) {
        self.run(false);
    }

    /// Decides the rest and ends the answer.
    pub(super) fn finish(&mut self, end: End) {
        let cut_off = end == End::Length && !self.stopped();
        if cut_off {
            self.run(false);
            self.release_undecided();
        } else {
            self.run(true);
            self.close_call();
        }
        self.flush_content();
        if cut_off {
            self.release_white_space();
        }
        let reason = match (cut_off, self.calls_ended) {
            (true, _) => FinishReason::Length,
            (false, 0) => FinishReason::Stop,
            (false, _) => FinishReason::ToolCalls,
        };
        self.deltas.push(Delta::Finish(reason));
    }

    fn run(&mut self, complete: bool) {
        while !self.stopped() && self.step(complete) {}
        if self.stopped() {
            self.at = self.input.len();
        }
        self.input.drain(..self.at);
        self.origins.drained(self.at);
        self.at = 0;
    }

    /// One step; false when more input has to come first.
    fn step(&mut self, complete: bool) -> bool {
        match self.state {
            State::Reasoning => self.step_reasoning(complete),
            State::Content => self.step_content(complete),
            State::Body => self.step_body(complete),
            State::Value => self.step_value(complete),
        }
    }

    fn ahead(&self, complete: bool) -> Ahead<'_> {
        Ahead {
            text: &self.input[self.at..],
            complete,
        }
    }

    fn find(&self, wanted: impl Fn(u8) -> bool) -> Option<usize> {
        self.input[self.at..].iter().position(|&byte| wanted(byte))
    }

    /// The next `length` bytes as plain text.
    fn take(&mut self, length: usize) -> String {
        let text = spelled(&self.input[self.at..self.at + length]);
        self.at += length;
        text
    }

    fn calls_allowed(&self) -> bool {
        !self.config.tools.is_empty()
    }

    fn step_reasoning(&mut self, complete: bool) -> bool {
        let calls = self.calls_allowed();
        let next = self.find(|b| b == THINK_OPEN || b == THINK_CLOSE || (calls && b == TOOL_OPEN));
        let text = self.take(next.unwrap_or(self.input.len() - self.at));
        self.feed_reasoning(&text);
        let Some(&tag) = self.input.get(self.at) else {
            return false;
        };
        match tag {
            THINK_CLOSE => {
                self.at += 1;
                self.state = State::Content;
            }
            // The model repeats the opening that the prompt already holds.
            THINK_OPEN if !self.reasoning.started() => self.at += 1,
            THINK_OPEN => self.feed_tag_to_reasoning(),
            _ => match self.whole_call(complete) {
                Look::Yes(()) => {
                    self.searched = 0;
                    self.state = State::Content;
                }
                Look::No => {
                    self.searched = 0;
                    self.feed_tag_to_reasoning();
                }
                Look::More => return false,
            },
        }
        true
    }

    fn feed_tag_to_reasoning(&mut self) {
        let text = self.take(1);
        self.feed_reasoning(&text);
    }

    /// Does a whole call of a declared function start here? Thoughts often talk about calls, so
    /// only a call that also ends, before the thoughts do, ends the thoughts.
    fn whole_call(&mut self, complete: bool) -> Look<()> {
        let ahead = self.ahead(complete);
        let body = match ahead.opening(0) {
            Look::Yes(Opening::Call { name, end }) if declared(&self.config.tools, &name) => end,
            Look::More => return Look::More,
            _ => return Look::No,
        };
        let mut at = body.max(self.searched);
        loop {
            let next = ahead.text[at..]
                .iter()
                .position(|&b| b == b'<' || b == THINK_CLOSE);
            let Some(next) = next else {
                self.searched = ahead.text.len();
                return if complete { Look::No } else { Look::More };
            };
            at += next;
            if ahead.text[at] == THINK_CLOSE {
                return Look::No;
            }
            match ahead.function_end(at) {
                Look::Yes(_) => return Look::Yes(()),
                Look::No => at += 1,
                Look::More => {
                    self.searched = at;
                    return Look::More;
                }
            }
        }
    }

    fn step_content(&mut self, complete: bool) -> bool {
        if self.after_call {
            match self.ahead(complete).wrapper_end(0) {
                Look::Yes(end) => {
                    self.at += end;
                    self.in_wrapper = false;
                }
                Look::No => {}
                Look::More => return false,
            }
            self.after_call = false;
        }
        let calls = self.calls_allowed();
        let next = self.find(|b| is_tag(b) || (calls && b == b'<'));
        self.feed_content(next.unwrap_or(self.input.len() - self.at));
        if self.stopped() {
            return false;
        }
        let Some(&tag) = self.input.get(self.at) else {
            return false;
        };
        let opening = match tag {
            THINK_OPEN => {
                self.open_thinks += 1;
                Look::No
            }
            THINK_CLOSE => {
                // One that closes nothing is the end of thoughts once more.
                let closes = self.open_thinks > 0;
                self.open_thinks = self.open_thinks.saturating_sub(1);
                if !closes && self.config.initial == InitialState::ThinkOpen {
                    self.at += 1;
                    return true;
                }
                Look::No
            }
            TOOL_CLOSE if self.in_wrapper => {
                self.at += 1;
                self.in_wrapper = false;
                return true;
            }
            TOOL_CLOSE => Look::No,
            TOOL_OPEN if !calls => Look::No,
            TOOL_OPEN => self.ahead(complete).opening(0),
            _ => {
                let tools = &self.config.tools;
                let is_declared = |name: &str| declared(tools, name);
                self.ahead(complete).header(0, self.in_wrapper, is_declared)
            }
        };
        match opening {
            Look::Yes(Opening::Empty { end }) => self.at += end,
            Look::Yes(Opening::Call { name, end }) => {
                self.at += end;
                self.begin_call(name);
            }
            Look::No => self.feed_content(1),
            Look::More => return false,
        }
        true
    }

    /// Input that was cut off while it could still become one thing or another. The beginnings of
    /// a call are dropped: they are neither a call nor meant to be read.
    fn release_undecided(&mut self) {
        let rest = &self.input[self.at..];
        match self.state {
            State::Reasoning => {
                let text = self.take(rest.len());
                self.feed_reasoning(&text);
            }
            State::Content if rest.first() == Some(&TOOL_OPEN) => {}
            State::Content if rest.starts_with(b"<function=") => {}
            State::Content => self.feed_content(rest.len()),
            State::Body | State::Value => {}
        }
    }

    /// White space at the end of text that was cut off is part of it.
    fn release_white_space(&mut self) {
        match self.state {
            State::Reasoning => {
                let held = self.reasoning.take_held();
                self.emit_reasoning(held);
            }
            State::Content => {
                let held = self.content.take_held();
                self.origins.came_out(0, held.len());
                self.emit_content(held);
            }
            State::Body | State::Value => {}
        }
    }

    fn feed_reasoning(&mut self, text: &str) {
        let text = self.reasoning.feed(text);
        self.emit_reasoning(text);
    }

    /// Passes the next `length` bytes to the answer.
    fn feed_content(&mut self, length: usize) {
        let marked = &self.input[self.at..self.at + length];
        self.origins.fed(self.at, marked);
        let text = self.take(length);
        let text = self.content.feed(&text);
        self.origins
            .came_out(self.content.take_skipped(), text.len());
        self.emit_content(text);
    }

    /// Text that waited for a stop string is text.
    fn flush_content(&mut self) {
        let text = self.content.flush();
        self.origins
            .came_out(self.content.take_skipped(), text.len());
        self.emit_content(text);
    }

    fn emit_reasoning(&mut self, more: String) {
        if more.is_empty() {
            return;
        }
        match self.deltas.last_mut() {
            Some(Delta::Reasoning(text)) => text.push_str(&more),
            _ => self.deltas.push(Delta::Reasoning(more)),
        }
    }

    fn emit_content(&mut self, more: String) {
        if more.is_empty() {
            return;
        }
        match self.deltas.last_mut() {
            Some(Delta::Content(text)) => text.push_str(&more),
            _ => self.deltas.push(Delta::Content(more)),
        }
    }
}

fn declared(tools: &[Tool], name: &str) -> bool {
    tools.iter().any(|tool| tool.name == name)
}
