//! One running generation, for programs that read it on a thread of their own.

use std::sync::Arc;

use async_channel::Receiver;
use volley_engine::{DraftStats, RequestUpdate, Usage as EngineUsage};
use volley_protocol::ApiError;
use volley_protocol::openai::{SpeculationUsage, Usage};
use volley_protocol::parser::{Delta, ParserConfig};
use volley_speculate::Method;

use crate::output::Output;
use crate::tokenizer::Tokenizer;

/// A generation under way. Dropping it cancels it within one step of the engine.
pub struct Generation {
    updates: Receiver<RequestUpdate>,
    output: Output,
    prompt_tokens: usize,
}

impl Generation {
    pub(crate) fn new(
        updates: Receiver<RequestUpdate>,
        parser: ParserConfig,
        tokenizer: Arc<Tokenizer>,
        prompt_tokens: usize,
    ) -> Self {
        Self {
            updates,
            output: Output::new(parser, tokenizer),
            prompt_tokens,
        }
    }

    /// Deltas of the next step, perhaps none; `None` after the last or after an error.
    pub fn next_blocking(&mut self) -> Option<Result<Vec<Delta>, ApiError>> {
        if self.output.is_over() {
            return None;
        }
        let step = self.output.take(self.updates.recv_blocking().ok());
        if self.output.is_over() {
            self.updates.close();
        }
        Some(step.map(|step| step.deltas))
    }

    /// Tokens so far.
    pub fn usage(&self) -> Usage {
        usage(self.prompt_tokens, [(&self.output, true)])
    }

    /// Generated token ids so far, end token included.
    pub fn tokens(&self) -> &[u32] {
        &self.output.tokens
    }

    /// The engine's totals with timings, once something has come.
    pub fn timings(&self) -> Option<EngineUsage> {
        self.output.totals.clone()
    }
}

/// Token counts of a response: its choices, each with whether it is the first of its prompt.
/// A prompt counts once, however many choices share it.
pub(crate) fn usage<'a>(
    prompt_tokens: usize,
    choices: impl IntoIterator<Item = (&'a Output, bool)>,
) -> Usage {
    let (mut tokens, mut cached, mut reasoning) = (0, 0, 0);
    let (mut drafted, mut accepted) = (0, 0);
    // Of several prompts the first one's.
    let mut miss = None;
    let (mut steps, mut drafts) = (0, DraftStats::default());
    for (output, opens_prompt) in choices {
        tokens += output.tokens.len();
        reasoning += output.reasoning_tokens;
        drafted += output.drafted;
        accepted += output.accepted;
        if let Some(totals) = output.totals.as_ref().filter(|_| output.is_over()) {
            steps += totals.steps;
            drafts.add(&totals.speculation);
        }
        let first = output.totals.as_ref().filter(|_| opens_prompt);
        cached += first.map_or(0, |totals| totals.cached_tokens);
        let told = first.filter(|_| output.tells_cache);
        miss = miss.or_else(|| told.and_then(|usage| usage.cache_miss));
    }
    let usage = Usage::new(prompt_tokens, tokens)
        .with_cached(cached)
        .with_reasoning(reasoning)
        .with_predictions(accepted, drafted - accepted)
        .with_speculation((drafts.drafts > 0).then(|| speculation(steps, drafts)));
    match miss {
        Some(miss) => usage.with_cache_miss(miss.at, miss.why.name()),
        None => usage,
    }
}

fn speculation(steps: usize, drafts: DraftStats) -> SpeculationUsage {
    let methods = Method::ALL.into_iter().map(|method| {
        let steps = drafts.methods.of(method);
        (method.to_string(), steps)
    });
    SpeculationUsage {
        steps,
        drafts: drafts.drafts,
        methods: methods.filter(|(_, steps)| *steps > 0).collect(),
        drafted_per_pos: drafts.drafted,
        accepted_per_pos: drafts.accepted,
    }
}
