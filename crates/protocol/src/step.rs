//! From tokens to steps: the parser, with logprobs that wait until their text comes out.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::Serialize;

use crate::logprobs::TokenLogprob;
use crate::parser::{Delta, End, OutputParser, ParserConfig};

/// How a token came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Drafted, and accepted by the target.
    Accepted,
    /// From the target itself: after the accepted drafts, or without any.
    Bonus,
    /// The only one that the output's format allows.
    Forced,
}

/// What closed the thoughts of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClosedBy {
    /// The model itself.
    Model,
    /// The thinking budget.
    Budget,
    /// Thoughts that repeated themselves without end.
    Repetition,
}

/// What one step of the engine brings for one choice, after the parser.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// Deltas in order; the last one of a choice is the finish.
    pub deltas: Vec<Delta>,
    /// Tokens whose text came out in these deltas, if logprobs are wanted.
    pub logprobs: Vec<TokenLogprob>,
    /// How the tokens of each delta came, if that is wanted; else empty.
    pub origins: Vec<Origin>,
    /// With the finish: the stop string that was hit.
    pub stop_string: Option<String>,
    /// Set when the thoughts were closed in this step.
    pub closed_by: Option<ClosedBy>,
    /// With the finish: the answer repeated itself without end.
    pub repetition: bool,
}

impl From<Vec<Delta>> for Step {
    fn from(deltas: Vec<Delta>) -> Self {
        Self {
            deltas,
            ..Self::default()
        }
    }
}

/// Parser of one choice that adds to steps.
#[derive(Debug)]
pub struct StepParser {
    parser: OutputParser,
    pushes: usize,
    /// Logprobs by push, oldest first.
    waiting: VecDeque<(usize, TokenLogprob)>,
}

impl StepParser {
    /// A parser at the start of an answer.
    pub fn new(config: ParserConfig) -> Self {
        Self {
            parser: OutputParser::new(config),
            pushes: 0,
            waiting: VecDeque::new(),
        }
    }

    /// Takes one token; see [`OutputParser::push`].
    pub fn push(
        &mut self,
        bytes: &[u8],
        id: Option<u32>,
        logprob: Option<TokenLogprob>,
        step: &mut Step,
    ) {
        self.waiting
            .extend(logprob.map(|logprob| (self.pushes, logprob)));
        self.pushes += 1;
        step.deltas.extend(self.parser.push(bytes, id));
        let told = self.parser.take_content_pushes();
        release(&mut self.waiting, &told, step);
    }

    /// Nothing more is wanted; see [`OutputParser::stopped`].
    pub fn stopped(&self) -> bool {
        self.parser.stopped()
    }

    /// Tokens inside the thoughts so far.
    pub fn reasoning_tokens(&self) -> usize {
        self.parser.reasoning_tokens()
    }

    /// Ends the answer; see [`OutputParser::end`].
    pub fn end(mut self, end: End, step: &mut Step) {
        let ended = self.parser.end(end);
        step.deltas.extend(ended.deltas);
        step.stop_string = ended.stop_string;
        release(&mut self.waiting, &ended.content_pushes, step);
    }
}

/// Moves the logprobs of these pushes into the step. Older ones are of thoughts or calls.
fn release(waiting: &mut VecDeque<(usize, TokenLogprob)>, told: &[usize], step: &mut Step) {
    for told in told {
        while let Some((push, _)) = waiting.front()
            && push <= told
        {
            let front = waiting.pop_front();
            step.logprobs
                .extend(front.filter(|(push, _)| push == told).map(|(_, l)| l));
        }
    }
}
