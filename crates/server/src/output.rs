//! The output of one choice: from the engine's updates to steps of parsed text.

use std::sync::Arc;

use serde_json::Value;
use volley_engine::{RequestUpdate, Stop, Usage};
use volley_protocol::ApiError;
use volley_protocol::logprobs;
use volley_protocol::parser::{Delta, End, InitialState, ParserConfig};
use volley_protocol::replay::{Recording, ReplayFile};
use volley_protocol::reply::{ClosedBy, Origin, Step, StepParser};
use volley_speculate::TokenLogprob;

use crate::tokenizer::Tokenizer;

/// What has come of one choice so far.
pub(crate) struct Output {
    /// `None` when the choice is over.
    parser: Option<StepParser>,
    tokenizer: Arc<Tokenizer>,
    initial: InitialState,
    recording: Option<Recording>,
    recorded: Option<ReplayFile>,
    tells_origins: bool,
    pub(crate) tells_cache: bool,
    /// Token ids so far, end token included.
    pub(crate) tokens: Vec<u32>,
    /// Drafts verified.
    pub(crate) drafted: usize,
    /// Of these, part of the output: those behind its end do not count.
    pub(crate) accepted: usize,
    /// Tokens of the thoughts.
    pub(crate) reasoning_tokens: usize,
    /// The engine's totals of the latest update.
    pub(crate) totals: Option<Usage>,
}

impl Output {
    pub(crate) fn new(config: ParserConfig, tokenizer: Arc<Tokenizer>) -> Self {
        Self {
            initial: config.initial,
            parser: Some(StepParser::new(config)),
            tokenizer,
            recording: None,
            recorded: None,
            tells_origins: false,
            tells_cache: false,
            tokens: Vec::new(),
            drafted: 0,
            accepted: 0,
            reasoning_tokens: 0,
            totals: None,
        }
    }

    /// From now on the output is kept, for [`recorded`](Self::recorded).
    pub(crate) fn record(&mut self, request: Value) {
        self.recording = Some(Recording::new(request, self.initial));
    }

    /// From now on each delta has the origin of its tokens.
    pub(crate) fn tell_origins(&mut self) {
        self.tells_origins = true;
    }

    /// The recording, once the choice is over.
    pub(crate) fn recorded(&mut self) -> Option<ReplayFile> {
        self.recorded.take()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.parser.is_none()
    }

    /// Takes in one update; `None` stands for an engine that is gone.
    pub(crate) fn take(&mut self, update: Option<RequestUpdate>) -> Result<Step, ApiError> {
        let mut step = Step::default();
        let Some(mut parser) = self.parser.take() else {
            return Ok(step);
        };
        let Some(update) = update else {
            return Err(ApiError::engine_failure("it has stopped"));
        };
        let (before, drafted) = (self.tokens.len(), update.drafted);
        let (stop, totals) = match update.terminal {
            None => (None, update.so_far),
            Some(terminal) => (Some(terminal.stop), Some(terminal.usage)),
        };
        self.totals = totals;
        let mut text = Vec::new();
        let mut end = match stop {
            None => None,
            Some(Stop::Token(_)) => Some(End::Stop),
            Some(Stop::Length | Stop::Repetition) => Some(End::Length),
            Some(Stop::Failed(reason)) => return Err(ApiError::engine_failure(&reason)),
            Some(Stop::Unfollowed(reason)) => return Err(ApiError::rule_not_followed(&reason)),
            Some(Stop::Cancelled) => return Err(ApiError::shutting_down(2)),
        };
        let mut logprobs = update.logprobs.into_iter();
        step.closed_by = update.closed_by.map(closed_by);
        step.repetition = stop == Some(Stop::Repetition);
        let last = update.tokens.len().checked_sub(1);
        for (index, &id) in update.tokens.iter().enumerate() {
            self.tokens.push(id);
            let logprob = logprobs.next().map(|of_token| self.logprob(id, of_token));
            let ends = Some(index) == last && matches!(stop, Some(Stop::Token(end)) if end == id);
            if ends {
                continue;
            }
            let bytes = self.tokenizer.bytes(id);
            text.extend_from_slice(bytes);
            parser.push(bytes, Some(id), logprob, &mut step);
            if self.tells_origins {
                let origin = match index {
                    _ if update.forced.contains(&index) => Origin::Forced,
                    _ if index < update.accepted => Origin::Accepted,
                    _ => Origin::Bonus,
                };
                step.origins.resize(step.deltas.len(), origin);
            }
            self.reasoning_tokens = parser.reasoning_tokens();
            if parser.stopped() {
                end = Some(End::Stop);
                break;
            }
        }
        self.drafted += drafted;
        let said = self.tokens.len() - before;
        self.accepted += update.accepted.min(drafted).min(said);
        if let Some(recording) = &mut self.recording {
            recording.step(&text);
        }
        match end {
            None => self.parser = Some(parser),
            Some(end) => {
                parser.end(end, &mut step);
                self.recorded = self.recording.take().map(|recording| recording.finish(end));
            }
        }
        if self.tells_origins {
            // Text that was held back comes out with what decided on it, or at the end.
            step.origins.resize(step.deltas.len(), Origin::Bonus);
        }
        merge(&mut step);
        Ok(step)
    }

    fn logprob(&self, id: u32, of_token: TokenLogprob) -> logprobs::TokenLogprob {
        let top = of_token.top.into_iter();
        logprobs::TokenLogprob {
            bytes: self.tokenizer.bytes(id).to_vec(),
            logprob: Some(of_token.logprob),
            top: top
                .map(|(id, logprob)| (self.tokenizer.spelling(id).to_vec(), logprob))
                .collect(),
        }
    }
}

fn closed_by(closed: volley_engine::ClosedBy) -> ClosedBy {
    match closed {
        volley_engine::ClosedBy::Model => ClosedBy::Model,
        volley_engine::ClosedBy::Budget => ClosedBy::Budget,
        volley_engine::ClosedBy::Repetition => ClosedBy::Repetition,
    }
}

/// Puts text of one kind and origin in one piece: a step yields several tokens, and each piece
/// becomes an event on the wire.
fn merge(step: &mut Step) {
    let mut deltas: Vec<Delta> = Vec::new();
    let mut origins: Vec<Origin> = Vec::new();
    for (index, delta) in std::mem::take(&mut step.deltas).into_iter().enumerate() {
        let origin = step.origins.get(index).copied();
        let last = deltas
            .last_mut()
            .filter(|_| origin == origins.last().copied());
        match (last, delta) {
            (Some(Delta::Reasoning(text)), Delta::Reasoning(more))
            | (Some(Delta::Content(text)), Delta::Content(more)) => text.push_str(&more),
            (
                Some(Delta::ToolCallArguments { index, fragment }),
                Delta::ToolCallArguments {
                    index: same,
                    fragment: more,
                },
            ) if *index == same => fragment.push_str(&more),
            (_, delta) => {
                deltas.push(delta);
                origins.extend(origin);
            }
        }
    }
    step.deltas = deltas;
    step.origins = origins;
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use volley_engine::Terminal;
    use volley_protocol::parser::FinishReason;
    use volley_protocol::reply::Answer;

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
        let config = ParserConfig {
            initial: InitialState::ThinkOpen,
            tools: Vec::new(),
            parallel_tool_calls: true,
            stop: stop.iter().map(|text| text.to_string()).collect(),
            tag_ids: tokenizer.tags(),
            call_id_prefix: "call_".into(),
        };
        Output::new(config, Arc::new(tokenizer))
    }

    fn update(tokens: &[u32], drafted: usize, stop: Option<Stop>) -> RequestUpdate {
        RequestUpdate {
            tokens: tokens.to_vec(),
            drafted,
            accepted: tokens.len().saturating_sub(1).min(drafted),
            terminal: stop.map(|stop| Terminal {
                stop,
                usage: Usage::default(),
            }),
            ..RequestUpdate::default()
        }
    }

    fn ids(text: &str) -> Vec<u32> {
        text.bytes().map(u32::from).collect()
    }

    #[test]
    fn thoughts_text_and_counts_come_out() {
        let mut output = output(&[]);
        let mut answer = Answer::default();
        answer.extend(&output.take(Some(update(&ids("h"), 0, None))).unwrap());
        let step = [ids("m"), vec![THINK_CLOSE], ids("\n\nYes \u{e9}")].concat();
        let step = output.take(Some(update(&step, 15, None))).unwrap();
        let expected = [
            Delta::Reasoning("m".into()),
            Delta::Content("Yes \u{e9}".into()),
        ];
        assert_eq!(step.deltas, expected);
        answer.extend(&step);
        assert!(!output.is_over());
        let last = update(&[33, END], 15, Some(Stop::Token(END)));
        answer.extend(&output.take(Some(last)).unwrap());
        assert!(output.is_over());
        let text = &answer.aggregate;
        assert_eq!((&*text.reasoning, &*text.content), ("hm", "Yes \u{e9}!"));
        assert_eq!(answer.finish_reason(), FinishReason::Stop);
        assert_eq!(output.tokens.len(), 13);
        assert_eq!(output.reasoning_tokens, 2);
        assert_eq!((output.drafted, output.accepted), (30, 9 + 1));
    }

    #[test]
    fn a_stop_string_ends_the_choice_inside_a_step() {
        let mut output = output(&["END"]);
        let step = [vec![THINK_CLOSE], ids("one END two")].concat();
        let mut answer = Answer::default();
        answer.extend(&output.take(Some(update(&step, 15, None))).unwrap());
        assert_eq!(answer.aggregate.content, "one ");
        assert_eq!(answer.stop_string.as_deref(), Some("END"));
        assert!(output.is_over());
        assert_eq!(output.tokens.len(), 1 + 7);
    }

    #[test]
    fn the_limit_is_length_and_failures_are_errors() {
        let mut cut = output(&[]);
        let step = cut.take(Some(update(&ids("hm"), 1, Some(Stop::Length))));
        let length = Delta::Finish(FinishReason::Length);
        assert_eq!(step.unwrap().deltas.last(), Some(&length));

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

    #[test]
    fn origins_are_told_if_wanted() {
        let mut output = output(&[]);
        output.tell_origins();
        let step = output.take(Some(update(&ids("a"), 0, None))).unwrap();
        assert_eq!(step.origins, [Origin::Bonus]);
        let tokens = [ids("bc"), vec![THINK_CLOSE], ids("de")].concat();
        let step = output.take(Some(update(&tokens, 15, None))).unwrap();
        let expected = [
            (Delta::Reasoning("bc".into()), Origin::Accepted),
            (Delta::Content("d".into()), Origin::Accepted),
            (Delta::Content("e".into()), Origin::Bonus),
        ];
        let told: Vec<_> = step.deltas.into_iter().zip(step.origins).collect();
        assert_eq!(told, expected);
        let step = output
            .take(Some(update(&[END], 0, Some(Stop::Token(END)))))
            .unwrap();
        assert_eq!(step.origins.len(), step.deltas.len());
    }

    #[test]
    fn a_recording_holds_the_text_of_each_step() {
        let mut output = output(&[]);
        output.record(json!({"messages": []}));
        output.take(Some(update(&ids("hm"), 0, None))).unwrap();
        assert_eq!(output.recorded(), None);
        let last = [vec![THINK_CLOSE], ids("Yes"), vec![END]].concat();
        output
            .take(Some(update(&last, 15, Some(Stop::Token(END)))))
            .unwrap();
        let file = serde_json::to_value(output.recorded().unwrap()).unwrap();
        let expected = json!({
            "request": {"messages": []},
            "template_state": "think_open",
            "pieces": ["hm", "</think>Yes"],
            "finish_reason": "stop",
        });
        assert_eq!(file, expected);
    }
}
