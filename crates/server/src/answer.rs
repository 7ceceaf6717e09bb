//! A response under way: all of its choices, in the order in which their steps come.

use std::pin::Pin;
use std::sync::Arc;

use async_channel::Receiver;
use futures_util::stream::{self, SelectAll, Stream, StreamExt};
use serde_json::Value;
use volley_engine::{RequestUpdate, Usage as EngineUsage};
use volley_protocol::ApiError;
use volley_protocol::openai::Usage;
use volley_protocol::replay::ReplayFile;
use volley_protocol::reply::Step;

use crate::generation::usage;
use crate::output::Output;
use crate::served::{Prepared, ServedModel};

/// Updates of one choice by its index; the last one is `None`, when the engine has let go of it.
type Updates = Pin<Box<dyn Stream<Item = (usize, Option<RequestUpdate>)> + Send>>;

/// The choices of one response. Dropping it cancels those that still run within one step.
pub struct Answer {
    updates: SelectAll<Updates>,
    choices: Vec<Choice>,
    running: usize,
    prompt_tokens: usize,
    max_model_len: usize,
}

struct Choice {
    output: Output,
    updates: Receiver<RequestUpdate>,
    opens_prompt: bool,
    prompt_tokens: usize,
    max_tokens: usize,
}

/// What a choice came to, or has come to so far.
pub struct ChoiceTotals<'a> {
    /// Tokens of its prompt.
    pub prompt_tokens: usize,
    /// Generated tokens.
    pub tokens: usize,
    /// Of these, thoughts.
    pub reasoning_tokens: usize,
    /// Most tokens that it might have had.
    pub max_tokens: usize,
    /// The engine's totals, once something has come.
    pub engine: Option<&'a EngineUsage>,
}

/// What one step of the engine brought.
pub struct Progress {
    /// Index of the choice.
    pub choice: usize,
    /// Its deltas.
    pub step: Step,
    /// Its tokens.
    pub tokens: usize,
}

impl Answer {
    /// Hands the choices to the engine: all or none.
    pub fn start(model: &ServedModel, prepared: Vec<Prepared>) -> Result<Self, ApiError> {
        let mut answer = Self {
            updates: SelectAll::new(),
            choices: Vec::with_capacity(prepared.len()),
            running: prepared.len(),
            prompt_tokens: 0,
            max_model_len: model.engine.info().max_model_len,
        };
        for (index, prepared) in prepared.into_iter().enumerate() {
            if prepared.opens_prompt {
                answer.prompt_tokens += prepared.request.prompt.len();
            }
            let prompt_tokens = prepared.request.prompt.len();
            let max_tokens = prepared.request.max_tokens;
            let updates = model.submit(prepared.request)?;
            let end = stream::once(async { None });
            let of_choice = updates.clone().map(Some).chain(end);
            let of_choice = of_choice.map(move |update| (index, update));
            answer.updates.push(Box::pin(of_choice));
            answer.choices.push(Choice {
                output: Output::new(prepared.parser, Arc::clone(&model.tokenizer)),
                updates,
                opens_prompt: prepared.opens_prompt,
                prompt_tokens,
                max_tokens,
            });
        }
        Ok(answer)
    }

    /// Keeps the output of all choices; `request` is the body to go with it.
    pub fn record(&mut self, request: &Value) {
        for choice in &mut self.choices {
            choice.output.record(request.clone());
        }
    }

    /// Has the deltas say how their tokens came.
    pub fn tell_origins(&mut self) {
        for choice in &mut self.choices {
            choice.output.tell_origins();
        }
    }

    /// Has the usage say where the prompt parts from all that was kept.
    pub fn tell_cache(&mut self) {
        for choice in &mut self.choices {
            choice.output.tells_cache = true;
        }
    }

    /// The next step of a choice; `None` after the end of all or after an error. May be dropped
    /// while it waits.
    pub async fn next(&mut self) -> Option<Result<Progress, ApiError>> {
        while self.running > 0 {
            let (index, update) = self.updates.next().await?;
            let Choice {
                output, updates, ..
            } = &mut self.choices[index];
            if output.is_over() {
                continue;
            }
            let before = output.tokens.len();
            let step = output.take(update);
            if output.is_over() {
                updates.close();
                self.running -= 1;
            }
            if step.is_err() {
                self.running = 0;
            }
            return Some(step.map(|step| Progress {
                choice: index,
                step,
                tokens: output.tokens.len() - before,
            }));
        }
        None
    }

    /// Tokens so far, over all choices.
    pub fn usage(&self) -> Usage {
        let choices = self.choices.iter();
        let choices = choices.map(|choice| (&choice.output, choice.opens_prompt));
        usage(self.prompt_tokens, choices)
    }

    /// Recordings of the choices that are over.
    pub fn recorded(&mut self) -> Vec<ReplayFile> {
        let choices = self.choices.iter_mut();
        choices
            .filter_map(|choice| choice.output.recorded())
            .collect()
    }

    /// What each choice came to, in the order of their indices.
    pub fn choices(&self) -> impl ExactSizeIterator<Item = ChoiceTotals<'_>> {
        let room = self.max_model_len;
        self.choices.iter().map(move |choice| ChoiceTotals {
            prompt_tokens: choice.prompt_tokens,
            tokens: choice.output.tokens.len(),
            reasoning_tokens: choice.output.reasoning_tokens,
            max_tokens: choice.max_tokens.min(room - choice.prompt_tokens),
            engine: choice.output.totals.as_ref(),
        })
    }
}
