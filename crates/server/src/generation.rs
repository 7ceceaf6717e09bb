//! One running generation: from the engine's updates to parsed text and usage.

use std::sync::Arc;

use async_channel::Receiver;
use volley_engine::{RequestUpdate, Stop, Usage as EngineUsage};
use volley_protocol::ApiError;
use volley_protocol::openai::Usage;
use volley_protocol::parser::{Delta, End, OutputParser};

use crate::tokenizer::Tokenizer;

/// A generation under way. Dropping it cancels it within one step of the engine.
pub struct Generation {
    updates: Receiver<RequestUpdate>,
    output: Output,
}

impl Generation {
    pub(crate) fn new(
        updates: Receiver<RequestUpdate>,
        parser: OutputParser,
        tokenizer: Arc<Tokenizer>,
        prompt_tokens: usize,
    ) -> Self {
        let output = Output::new(parser, tokenizer, prompt_tokens);
        Self { updates, output }
    }

    /// Deltas of the next step, perhaps none; `None` after the last or after an error.
    pub async fn next(&mut self) -> Option<Result<Vec<Delta>, ApiError>> {
        if self.output.is_over() {
            return None;
        }
        let update = self.updates.recv().await.ok();
        Some(self.take(update))
    }

    /// As [`next`](Self::next), for a thread of its own.
    pub fn next_blocking(&mut self) -> Option<Result<Vec<Delta>, ApiError>> {
        if self.output.is_over() {
            return None;
        }
        let update = self.updates.recv_blocking().ok();
        Some(self.take(update))
    }

    /// Tokens so far.
    pub fn usage(&self) -> Usage {
        self.output.usage()
    }

    /// Generated token ids so far, end token included.
    pub fn tokens(&self) -> &[u32] {
        &self.output.tokens
    }

    /// The engine's totals with timings, once it has ended the request by itself.
    pub fn timings(&self) -> Option<EngineUsage> {
        self.output.terminal
    }

    fn take(&mut self, update: Option<RequestUpdate>) -> Result<Vec<Delta>, ApiError> {
        let result = self.output.take(update);
        if self.output.is_over() {
            self.updates.close();
        }
        result
    }
}

/// State of the output, apart from the channel.
struct Output {
    /// `None` when the generation is over.
    parser: Option<OutputParser>,
    tokenizer: Arc<Tokenizer>,
    prompt_tokens: usize,
    tokens: Vec<u32>,
    drafted: usize,
    accepted: usize,
    reasoning_tokens: usize,
    terminal: Option<EngineUsage>,
}

impl Output {
    fn new(parser: OutputParser, tokenizer: Arc<Tokenizer>, prompt_tokens: usize) -> Self {
        Self {
            parser: Some(parser),
            tokenizer,
            prompt_tokens,
            tokens: Vec::new(),
            drafted: 0,
            accepted: 0,
            reasoning_tokens: 0,
            terminal: None,
        }
    }

    fn is_over(&self) -> bool {
        self.parser.is_none()
    }

    fn usage(&self) -> Usage {
        let cached = self.terminal.map_or(0, |usage| usage.cached_tokens);
        Usage::new(self.prompt_tokens, self.tokens.len())
            .with_cached(cached)
            .with_reasoning(self.reasoning_tokens)
            .with_predictions(self.accepted, self.drafted - self.accepted)
    }

    /// Takes in one update; `None` stands for an engine that is gone.
    fn take(&mut self, update: Option<RequestUpdate>) -> Result<Vec<Delta>, ApiError> {
        let Some(mut parser) = self.parser.take() else {
            return Ok(Vec::new());
        };
        let Some(update) = update else {
            return Err(ApiError::engine_failure("it has stopped"));
        };
        self.drafted += update.drafted;
        self.accepted += update.accepted.min(update.drafted);
        let stop = update.terminal.map(|terminal| {
            self.terminal = Some(terminal.usage);
            terminal.stop
        });
        let mut deltas = Vec::new();
        let last = update.tokens.len().checked_sub(1);
        for (index, id) in update.tokens.into_iter().enumerate() {
            self.tokens.push(id);
            let ends = Some(index) == last && matches!(stop, Some(Stop::Token(end)) if end == id);
            if ends {
                continue;
            }
            append(&mut deltas, parser.push(self.tokenizer.bytes(id), Some(id)));
            self.reasoning_tokens = parser.reasoning_tokens();
            if parser.stopped() {
                append(&mut deltas, parser.finish(End::Stop));
                return Ok(deltas);
            }
        }
        match stop {
            None => self.parser = Some(parser),
            Some(Stop::Token(_)) => append(&mut deltas, parser.finish(End::Stop)),
            Some(Stop::Length | Stop::Repetition) => {
                append(&mut deltas, parser.finish(End::Length));
            }
            Some(Stop::Failed(reason)) => return Err(ApiError::engine_failure(&reason)),
            Some(Stop::Cancelled) => return Err(ApiError::shutting_down(2)),
        }
        Ok(deltas)
    }
}

/// Adds `more` to the deltas of a step, text of one kind in one piece: a step yields several
/// tokens, and each piece becomes an event on the wire.
fn append(deltas: &mut Vec<Delta>, more: Vec<Delta>) {
    for delta in more {
        match (deltas.last_mut(), delta) {
            (Some(Delta::Reasoning(text)), Delta::Reasoning(more))
            | (Some(Delta::Content(text)), Delta::Content(more)) => text.push_str(&more),
            (
                Some(Delta::ToolCallArguments { index, fragment }),
                Delta::ToolCallArguments {
                    index: same,
                    fragment: more,
                },
            ) if *index == same => fragment.push_str(&more),
            (_, delta) => deltas.push(delta),
        }
    }
}

#[cfg(test)]
mod tests {
    use volley_engine::Terminal;
    use volley_protocol::parser::{Aggregate, FinishReason, InitialState, ParserConfig};

    use super::*;
    use crate::tokenizer::tests::byte_tokenizer;

    const END: u32 = 256;
    const THINK_CLOSE: u32 = 258;

    fn output(stop: &[&str]) -> Output {
        let tokens = [
            ("<|im_end|>", true),
            ("<think>", false),
            ("</think>", false),
            ("<tool_call>", false),
            ("</tool_call>", false),
        ];
        let tokenizer = Tokenizer::from_json(&byte_tokenizer(&tokens)).unwrap();
        let parser = OutputParser::new(ParserConfig {
            initial: InitialState::ThinkOpen,
            tools: Vec::new(),
            parallel_tool_calls: true,
            stop: stop.iter().map(|text| text.to_string()).collect(),
            tag_ids: tokenizer.tags(),
            call_id_prefix: "call_".into(),
        });
        Output::new(parser, Arc::new(tokenizer), 5)
    }

    fn update(tokens: &[u32], drafted: usize, stop: Option<Stop>) -> RequestUpdate {
        RequestUpdate {
            tokens: tokens.to_vec(),
            drafted,
            accepted: tokens.len().saturating_sub(1).min(drafted),
            terminal: stop.map(|stop| Terminal {
                stop,
                usage: EngineUsage::default(),
            }),
            ..RequestUpdate::default()
        }
    }

    fn ids(text: &str) -> Vec<u32> {
        text.bytes().map(u32::from).collect()
    }

    #[test]
    fn thoughts_text_and_usage_come_out() {
        let mut output = output(&[]);
        let mut answer = Aggregate::default();
        answer.extend(&output.take(Some(update(&ids("h"), 0, None))).unwrap());
        let step = [ids("m"), vec![THINK_CLOSE], ids("\n\nYes \u{e9}")].concat();
        let deltas = output.take(Some(update(&step, 15, None))).unwrap();
        let expected = [
            Delta::Reasoning("m".into()),
            Delta::Content("Yes \u{e9}".into()),
        ];
        assert_eq!(deltas, expected);
        answer.extend(&deltas);
        assert!(!output.is_over());
        let last = update(&[33, END], 15, Some(Stop::Token(END)));
        answer.extend(&output.take(Some(last)).unwrap());
        assert!(output.is_over());
        assert_eq!(
            (&*answer.reasoning, &*answer.content),
            ("hm", "Yes \u{e9}!")
        );
        assert_eq!(answer.finish_reason, Some(FinishReason::Stop));
        let usage = output.usage();
        assert_eq!((usage.prompt_tokens, usage.completion_tokens), (5, 13));
        let details = usage.completion_tokens_details;
        assert_eq!(details.reasoning_tokens, 2);
        assert_eq!(details.accepted_prediction_tokens, 9 + 1);
        assert_eq!(details.rejected_prediction_tokens, 6 + 14);
    }

    #[test]
    fn a_stop_string_ends_the_generation_inside_a_step() {
        let mut output = output(&["END"]);
        let step = [vec![THINK_CLOSE], ids("one END two")].concat();
        let deltas = output.take(Some(update(&step, 15, None))).unwrap();
        let mut answer = Aggregate::default();
        answer.extend(&deltas);
        assert_eq!(answer.content, "one ");
        assert_eq!(answer.finish_reason, Some(FinishReason::Stop));
        assert!(output.is_over());
        assert_eq!(output.usage().completion_tokens, 1 + 7);
    }

    #[test]
    fn the_limit_is_length_and_failures_are_errors() {
        let mut cut = output(&[]);
        let deltas = cut.take(Some(update(&ids("hm"), 1, Some(Stop::Length))));
        let length = Delta::Finish(FinishReason::Length);
        assert_eq!(deltas.unwrap().last(), Some(&length));

        let mut failed = output(&[]);
        let reason = Stop::Failed("no memory".into());
        let error = failed.take(Some(update(&[], 0, Some(reason)))).unwrap_err();
        assert_eq!(error.status, 500);
        assert!(error.message.contains("no memory"));
        assert!(failed.is_over());

        let mut gone = output(&[]);
        assert_eq!(gone.take(None).unwrap_err().status, 500);
        let mut cancelled = output(&[]);
        let update = update(&[], 0, Some(Stop::Cancelled));
        assert_eq!(cancelled.take(Some(update)).unwrap_err().status, 503);
    }
}
