//! The completions response and its stream, which has the same form.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::CompletionRequest;
use crate::ApiError;
use crate::logprobs::{TokenLogprob, finite, text};
use crate::openai::Usage;
use crate::parser::{Delta, FinishReason};
use crate::reply::{Answer, Builder, Event, Step, to_text};
use crate::request::StreamOptions;
use crate::stream::ResponseMeta;

/// A completion, or a chunk of one.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CompletionResponse {
    /// `cmpl-…`, the same in all chunks.
    pub id: String,
    /// Always `text_completion`.
    pub object: &'static str,
    /// Unix time in seconds.
    pub created: u64,
    /// Served model.
    pub model: String,
    /// Build and weights that answered.
    pub system_fingerprint: String,
    /// One per answer; none in the usage chunk.
    pub choices: Vec<CompletionChoice>,
    /// Token counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// One answer, or more of it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CompletionChoice {
    /// Position among the choices.
    pub index: usize,
    /// The text.
    pub text: String,
    /// Logprobs of the text, if asked for.
    pub logprobs: Option<CompletionLogprobs>,
    /// Set at the end.
    pub finish_reason: Option<FinishReason>,
}

/// Logprobs as parallel lists, one entry per token.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct CompletionLogprobs {
    /// Texts of the tokens.
    pub tokens: Vec<String>,
    /// Logprobs of the tokens; null for the first of an echoed prompt.
    pub token_logprobs: Vec<Option<f32>>,
    /// Logprobs of the likeliest tokens by their text.
    pub top_logprobs: Vec<Option<Map<String, Value>>>,
    /// Characters before each token.
    pub text_offset: Vec<usize>,
}

impl CompletionLogprobs {
    /// The wire form, for tokens after `offset` characters.
    fn new(tokens: &[TokenLogprob], mut offset: usize) -> Self {
        let mut lists = Self::default();
        for token in tokens {
            let token_text = text(&token.bytes);
            lists.text_offset.push(offset);
            offset += token_text.chars().count();
            lists.tokens.push(token_text);
            lists.token_logprobs.push(token.logprob.map(finite));
            lists.top_logprobs.push(token.logprob.map(|_| {
                let top = token.top.iter();
                top.map(|(bytes, logprob)| (text(bytes), finite(*logprob).into()))
                    .collect()
            }));
        }
        lists
    }

    fn end(&self) -> usize {
        let last = self.text_offset.last().zip(self.tokens.last());
        last.map_or(0, |(offset, token)| offset + token.chars().count())
    }
}

/// Completions on the wire.
#[derive(Debug)]
pub(crate) struct CompletionBuilder {
    meta: ResponseMeta,
    options: StreamOptions,
    logprobs: bool,
    /// Characters of tokens with logprobs so far, per choice.
    offsets: Vec<usize>,
}

impl CompletionBuilder {
    pub(crate) fn new(request: &CompletionRequest, meta: ResponseMeta) -> Self {
        Self {
            meta,
            options: request.generation.stream_options,
            logprobs: request.generation.logprobs.is_some(),
            offsets: vec![0; request.generation.choices()],
        }
    }

    fn body(&self, choices: Vec<CompletionChoice>, usage: Option<Usage>) -> CompletionResponse {
        CompletionResponse {
            id: self.meta.id.clone(),
            object: "text_completion",
            created: self.meta.created,
            model: self.meta.model.clone(),
            system_fingerprint: self.meta.system_fingerprint.clone(),
            choices,
            usage,
        }
    }
}

impl Builder for CompletionBuilder {
    fn start(&mut self, _: Usage) -> Vec<Event> {
        Vec::new()
    }

    fn step(&mut self, index: usize, step: &Step, _: &Answer, usage: Usage) -> Vec<Event> {
        let mut events = Vec::new();
        let mut tokens = step.logprobs.as_slice();
        for delta in &step.deltas {
            let (text, finish_reason) = match delta {
                Delta::Content(text) => (text.clone(), None),
                Delta::Finish(reason) => (String::new(), Some(*reason)),
                _ => continue,
            };
            let logprobs = (self.logprobs && finish_reason.is_none()).then(|| {
                let lists =
                    CompletionLogprobs::new(std::mem::take(&mut tokens), self.offsets[index]);
                self.offsets[index] = self.offsets[index].max(lists.end());
                lists
            });
            let choice = CompletionChoice {
                index,
                text,
                logprobs,
                finish_reason,
            };
            let usage = self.options.continuous_usage_stats.then(|| usage.clone());
            events.push(Event::data(&self.body(vec![choice], usage)));
        }
        events
    }

    fn end(&mut self, _: &[Answer], usage: Usage) -> Vec<Event> {
        let with_usage = self.options.include_usage;
        let usage = with_usage.then(|| Event::data(&self.body(Vec::new(), Some(usage))));
        usage.into_iter().chain([Event::done()]).collect()
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        vec![Event::data(&error.to_json())]
    }

    fn whole(&self, answers: Vec<Answer>, usage: Usage) -> String {
        let choices = answers.into_iter().enumerate().map(|(index, answer)| {
            let finish_reason = Some(answer.finish_reason());
            let logprobs = self
                .logprobs
                .then(|| CompletionLogprobs::new(&answer.logprobs, 0));
            CompletionChoice {
                index,
                text: answer.aggregate.content,
                logprobs,
                finish_reason,
            }
        });
        to_text(&self.body(choices.collect(), Some(usage)))
    }
}
