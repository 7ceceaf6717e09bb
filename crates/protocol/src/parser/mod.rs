//! The parser of the model's output: thoughts, answer, tool calls and stop strings, from pieces of
//! any size.
//!
//! One machine serves streaming and not: [`Aggregate`] just collects the deltas, so both modes
//! agree by construction, and how the output is cut into pieces does not matter.

mod aggregate;
mod arguments;
mod coerce;
mod lexer;
mod look;
mod machine;
mod origin;
mod schema;
mod text;

use schemars::JsonSchema;
use serde::Serialize;

use crate::openai::Tool;

pub use aggregate::{Aggregate, AggregatedCall};

/// Where the prompt left off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitialState {
    /// Inside a think block: the output starts with thoughts.
    ThinkOpen,
    /// Thinking is off or over: the output starts with the answer.
    ThinkClosed,
    /// In the middle of the answer's text: white space at the start belongs to it.
    InText,
    /// In the middle of text without any markup: the output is passed on as it stands, up to a
    /// stop string.
    Verbatim,
}

impl InitialState {
    /// The state after a rendered prompt that ends with the opening of the answer. Only the
    /// template writes there, so nothing in the messages can imitate it.
    pub fn of_prompt(prompt: &str) -> Self {
        if prompt.trim_end().ends_with("<think>") {
            Self::ThinkOpen
        } else {
            Self::ThinkClosed
        }
    }
}

/// Token ids of the tags that are tokens of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagIds {
    /// `<think>`.
    pub think_open: u32,
    /// `</think>`.
    pub think_close: u32,
    /// `<tool_call>`.
    pub tool_call_open: u32,
    /// `</tool_call>`.
    pub tool_call_close: u32,
}

/// What the parser has to know about a request.
#[derive(Clone, Debug)]
pub struct ParserConfig {
    /// Where the prompt left off.
    pub initial: InitialState,
    /// Functions that may be called; empty means that markup of calls is plain text.
    pub tools: Vec<Tool>,
    /// Go on after the first call.
    pub parallel_tool_calls: bool,
    /// Strings that end the answer; they act on content only.
    pub stop: Vec<String>,
    /// With ids, tags count only as these tokens, and the same words spelled by other tokens are
    /// text. Without, tags are recognised by their text.
    pub tag_ids: Option<TagIds>,
    /// Call ids are this followed by the call's index. Unique per response.
    pub call_id_prefix: String,
}

/// One piece of parsed output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// More thoughts.
    Reasoning(String),
    /// More of the answer.
    Content(String),
    /// A call begins; calls do not overlap.
    ToolCallStart {
        /// Position among the calls, from 0.
        index: usize,
        /// Unique within the response.
        id: String,
        /// Name of the function.
        name: String,
    },
    /// More of the arguments' JSON text.
    ToolCallArguments {
        /// Position among the calls.
        index: usize,
        /// Appended to the fragments before.
        fragment: String,
    },
    /// The call is complete: its fragments make one JSON object. A call that the token limit cut
    /// off never gets here.
    ToolCallEnd {
        /// Position among the calls.
        index: usize,
    },
    /// The last delta.
    Finish(FinishReason),
}

/// Why an answer ended, in OpenAI's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// By itself or at a stop string.
    Stop,
    /// At the token limit.
    Length,
    /// With at least one complete call.
    ToolCalls,
}

/// How the engine ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The model (or a stop token) ended the output.
    Stop,
    /// The token limit cut the output off.
    Length,
}

/// The end of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The last of them is the finish.
    pub deltas: Vec<Delta>,
    /// As [`OutputParser::take_content_pushes`].
    pub content_pushes: Vec<usize>,
    /// The stop string that ended the answer.
    pub stop_string: Option<String>,
}

/// Incremental parser of one answer.
#[derive(Debug)]
pub struct OutputParser {
    lexer: lexer::Lexer,
    machine: machine::Machine,
    reasoning_tokens: usize,
}

impl OutputParser {
    /// A parser at the start of an answer.
    pub fn new(config: ParserConfig) -> Self {
        Self {
            lexer: lexer::Lexer::new(config.tag_ids),
            machine: machine::Machine::new(config),
            reasoning_tokens: 0,
        }
    }

    /// Takes the bytes of one token, or any piece of the output, and its token id if known. Bytes
    /// need not end at a character. End tokens of the model must not be passed in.
    pub fn push(&mut self, bytes: &[u8], id: Option<u32>) -> Vec<Delta> {
        let lexer = &mut self.lexer;
        self.machine.receive(|input| lexer.push(bytes, id, input));
        self.machine.advance();
        self.reasoning_tokens += usize::from(self.machine.in_reasoning());
        self.machine.take_deltas()
    }

    /// Ends the output; the last delta is the finish. `End::Length` leaves a call that is not
    /// complete as it is, `End::Stop` closes it.
    pub fn finish(self, end: End) -> Vec<Delta> {
        self.end(end).deltas
    }

    /// As [`finish`](Self::finish), with all that is known at the end.
    pub fn end(mut self, end: End) -> Ended {
        let lexer = &mut self.lexer;
        self.machine.receive(|input| lexer.finish(input));
        self.machine.finish(end);
        Ended {
            deltas: self.machine.take_deltas(),
            content_pushes: self.machine.take_content_pushes(),
            stop_string: self.machine.stop_string().map(str::to_owned),
        }
    }

    /// Numbers, from 0, of the pushes whose text has come out in content deltas since the last
    /// call. Every push comes once, thoughts and markup of calls do not come at all: with one
    /// token per push, these are the tokens that logprobs are about.
    pub fn take_content_pushes(&mut self) -> Vec<usize> {
        self.machine.take_content_pushes()
    }

    /// Nothing more is wanted: a stop string was hit, or the only allowed call is complete.
    pub fn stopped(&self) -> bool {
        self.machine.stopped()
    }

    /// The stop string that was hit.
    pub fn stop_string(&self) -> Option<&str> {
        self.machine.stop_string()
    }

    /// Pushes so far that left the parser inside the thoughts: with one token per push, the
    /// reasoning tokens of the usage.
    pub fn reasoning_tokens(&self) -> usize {
        self.reasoning_tokens
    }
}
