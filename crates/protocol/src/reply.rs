//! From steps of the engine to what goes over the wire, the same way for every surface. Streamed
//! and not streamed answers come from the same steps.

use std::fmt;

use serde::Serialize;

use crate::ApiError;
use crate::logprobs::TokenLogprob;
use crate::openai::Usage;
use crate::parser::{Aggregate, FinishReason};

pub use crate::step::{ClosedBy, Origin, Step, StepParser};

/// One server-sent event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `event:` line, on the surfaces that have one.
    pub name: Option<&'static str>,
    /// `data:` line.
    pub data: String,
}

impl Event {
    pub(crate) fn data(body: &impl Serialize) -> Self {
        Self {
            name: None,
            data: to_text(body),
        }
    }

    pub(crate) fn named(name: &'static str, body: &impl Serialize) -> Self {
        Self {
            name: Some(name),
            data: to_text(body),
        }
    }

    /// The end of a stream of OpenAI's older surfaces.
    pub(crate) fn done() -> Self {
        Self {
            name: None,
            data: "[DONE]".to_owned(),
        }
    }
}

/// The bytes of the event, blank line included.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = self.name {
            writeln!(f, "event: {name}")?;
        }
        write!(f, "data: {}\n\n", self.data)
    }
}

pub(crate) fn to_text(body: &impl Serialize) -> String {
    serde_json::to_string(body).expect("bodies have only string keys: this is a bug")
}

/// All that was said in one choice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Thoughts, text and calls.
    pub aggregate: Aggregate,
    /// Tokens of the text.
    pub logprobs: Vec<TokenLogprob>,
    /// Stop string that ended it.
    pub stop_string: Option<String>,
    /// What closed the thoughts.
    pub closed_by: Option<ClosedBy>,
    /// It repeated itself without end.
    pub repetition: bool,
}

impl Answer {
    /// Adds a step.
    pub fn extend(&mut self, step: &Step) {
        self.aggregate.extend(&step.deltas);
        self.logprobs.extend_from_slice(&step.logprobs);
        if step.stop_string.is_some() {
            self.stop_string.clone_from(&step.stop_string);
        }
        self.closed_by = step.closed_by.or(self.closed_by);
        self.repetition |= step.repetition;
    }

    /// What ended it, in more detail than [`finish_reason`](Self::finish_reason): the stop string
    /// or `repetition`.
    pub fn stop_reason(&self) -> Option<String> {
        match self.repetition {
            true => Some("repetition".to_owned()),
            false => self.stop_string.clone(),
        }
    }

    /// Why it ended.
    pub fn finish_reason(&self) -> FinishReason {
        self.aggregate.finish_reason.unwrap_or(FinishReason::Stop)
    }
}

/// A surface's way to write answers.
pub(crate) trait Builder: fmt::Debug + Send {
    fn start(&mut self, usage: Usage) -> Vec<Event>;
    /// `answer` is what was said in the choice so far, the step included.
    fn step(&mut self, choice: usize, step: &Step, answer: &Answer, usage: Usage) -> Vec<Event>;
    /// After the finish of every choice.
    fn end(&mut self, answers: &[Answer], usage: Usage) -> Vec<Event>;
    fn fail(&mut self, error: &ApiError) -> Vec<Event>;
    /// Takes in a step of an answer that is not streamed.
    fn collect(&mut self, _choice: usize, _step: &Step) {}
    fn keep_alive(&self) -> String {
        ": keep-alive\n\n".to_owned()
    }
    /// The body of a response that is not streamed.
    fn whole(&self, answers: Vec<Answer>, usage: Usage) -> String;
}

/// One response under way: steps go in; events come out, or one body at the end. A stream is
/// [`start`](Self::start), [`step`](Self::step)s, and [`end`](Self::end) or [`fail`](Self::fail).
/// A body is [`collect`](Self::collect)s and [`whole`](Self::whole).
#[derive(Debug)]
pub struct Reply {
    builder: Box<dyn Builder>,
    answers: Vec<Answer>,
}

impl Reply {
    pub(crate) fn new(builder: impl Builder + 'static, choices: usize) -> Self {
        Self {
            builder: Box::new(builder),
            answers: vec![Answer::default(); choices],
        }
    }

    /// Events before the first token. `usage` counts the prompt.
    pub fn start(&mut self, usage: Usage) -> Vec<Event> {
        self.builder.start(usage)
    }

    /// Events of a step of one choice; `usage` is that of all choices so far.
    pub fn step(&mut self, choice: usize, step: &Step, usage: Usage) -> Vec<Event> {
        let answer = &mut self.answers[choice];
        answer.extend(step);
        self.builder.step(choice, step, answer, usage)
    }

    /// Takes in a step of one choice for [`whole`](Self::whole).
    pub fn collect(&mut self, choice: usize, step: &Step) {
        self.answers[choice].extend(step);
        self.builder.collect(choice, step);
    }

    /// Events after the finish of all choices.
    pub fn end(&mut self, usage: Usage) -> Vec<Event> {
        self.builder.end(&self.answers, usage)
    }

    /// Events when the engine fails after the stream has begun; the stream ends with them.
    pub fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        self.builder.fail(error)
    }

    /// Bytes that keep an idle stream open and say nothing.
    pub fn keep_alive(&self) -> String {
        self.builder.keep_alive()
    }

    /// The body of a response that is not streamed.
    pub fn whole(self, usage: Usage) -> String {
        self.builder.whole(self.answers, usage)
    }

    /// The body as it stands, from steps that also went out as events. Responses are stored so.
    pub fn snapshot(&self, usage: Usage) -> String {
        self.builder.whole(self.answers.clone(), usage)
    }
}
