//! From what a request asks of its output to the engine's control.

use std::sync::{Arc, OnceLock};

use volley_constrain::{
    Calls, CompileLimits, Compiler, Constraint, Encode, Error, Function, Rule, Vocabulary,
};
use volley_engine::{Control, RepetitionRule, Thinking};
use volley_protocol::parser::InitialState;
use volley_protocol::request::{self, Tool};
use volley_protocol::{ApiError, GenerationRequest};

use crate::tokenizer::Tokenizer;

/// What closes thoughts by force, and what stands between the tag and the answer.
const CLOSING: &str = "\n</think>\n\n";
const OPENING: &str = "\n\n";
const CLOSE_TAG: &str = "</think>";

/// Compiles what requests ask for, for one model.
pub struct Controls {
    tokenizer: Arc<Tokenizer>,
    eos_ids: Vec<u32>,
    /// What counts as runaway repetition.
    repetition: Option<RepetitionRule>,
    /// Made at the first constraint.
    compiler: OnceLock<Result<Compiler, Error>>,
}

impl Controls {
    /// Controls for the output of a model with this tokenizer and these end tokens.
    pub fn new(
        tokenizer: Arc<Tokenizer>,
        eos_ids: &[u32],
        repetition: Option<RepetitionRule>,
    ) -> Self {
        Self {
            tokenizer,
            eos_ids: eos_ids.to_vec(),
            repetition,
            compiler: OnceLock::new(),
        }
    }

    /// Control of the answers to a request whose prompt leaves off at `initial`. Takes time for a
    /// new constraint. Failures are the client's: 400, or 429 when many constraints are compiled.
    pub fn of(
        &self,
        request: &GenerationRequest,
        initial: InitialState,
    ) -> Result<Control, ApiError> {
        let constraint = match rule(request) {
            Some((param, rule)) => Some(self.compile(&rule).map_err(|e| refusal(param, e))?),
            None => None,
        };
        let thinking = match initial {
            InitialState::ThinkOpen => self.thinking(request, constraint.is_some())?,
            _ => None,
        };
        let endless = request.sampling().ignore_eos == Some(true);
        Ok(Control {
            constraint,
            thinking,
            repetition: self.repetition.filter(|_| !endless),
            logprobs: request.logprobs,
            ..Control::default()
        })
    }

    fn thinking(
        &self,
        request: &GenerationRequest,
        constrained: bool,
    ) -> Result<Option<Thinking>, ApiError> {
        let budget = request.thinking().budget_tokens;
        let encode = |text| self.tokenizer.encode(text);
        let parts = || -> crate::Result<_> { Ok((encode(CLOSING)?, encode(OPENING)?)) };
        let Some(close_id) = self.tokenizer.id(CLOSE_TAG) else {
            return match budget.is_some() || constrained {
                true => Err(ApiError::unsupported_parameter(
                    "thinking",
                    "this model has no token that closes its thoughts; switch thinking off",
                )),
                false => Ok(None),
            };
        };
        let (closing, opening) =
            parts().map_err(|error| ApiError::engine_failure(&error.to_string()))?;
        Ok(Some(Thinking {
            close_id,
            budget,
            closing,
            opening,
        }))
    }

    fn compile(&self, rule: &Rule) -> Result<Constraint, Error> {
        let compiler = self.compiler.get_or_init(|| {
            let tokenizer = Arc::clone(&self.tokenizer);
            // A text that does not encode is not drafted.
            let encode: Encode = Arc::new(move |text| tokenizer.encode(text).unwrap_or_default());
            let vocabulary = Vocabulary::new(&self.tokenizer.texts(), &self.eos_ids, encode)?;
            Ok(Compiler::new(vocabulary, CompileLimits::default()))
        });
        compiler.as_ref().map_err(Clone::clone)?.compile(rule)
    }
}

/// The rule for the answer and the field that asks for it.
fn rule(generation: &GenerationRequest) -> Option<(&'static str, Rule)> {
    let tools = generation.active_tools();
    let calls = |tools: &[&Tool], required, answer| {
        Rule::Calls(Calls {
            functions: tools.iter().map(|tool| function(tool)).collect(),
            required,
            parallel: generation.parallel_tool_calls,
            answer,
        })
    };
    let all: Vec<&Tool> = tools.iter().collect();
    match &generation.constraint {
        Some(request::Constraint::ToolCall { names, required }) => {
            let named = |tool: &&Tool| names.contains(&tool.name);
            let tools: Vec<&Tool> = tools.iter().filter(named).collect();
            Some(("tools", calls(&tools, *required, None)))
        }
        Some(format) => {
            let rule = format_rule(format)?;
            let rule = match tools.is_empty() {
                true => rule,
                // Either a call or an answer in the format.
                false => calls(&all, false, Some(Box::new(rule))),
            };
            Some(("response_format", rule))
        }
        None if tools.iter().any(|tool| tool.strict) => Some(("tools", calls(&all, false, None))),
        None => None,
    }
}

fn format_rule(format: &request::Constraint) -> Option<Rule> {
    Some(match format {
        request::Constraint::JsonObject => Rule::JsonObject,
        request::Constraint::JsonSchema { schema, strict } => Rule::JsonSchema {
            schema: schema.clone(),
            strict: *strict,
        },
        request::Constraint::Regex(pattern) => Rule::Regex(pattern.clone()),
        request::Constraint::Grammar(text) => Rule::Grammar(text.clone()),
        request::Constraint::Choice(texts) => Rule::Choice(texts.clone()),
        request::Constraint::ToolCall { .. } => return None,
    })
}

fn function(tool: &Tool) -> Function {
    Function {
        name: tool.name.clone(),
        parameters: tool.parameters.clone(),
        strict: tool.strict,
    }
}

/// What the client hears of a rule that does not compile.
fn refusal(param: &'static str, error: Error) -> ApiError {
    const RETRY_AFTER_S: u32 = 2;
    match error {
        Error::Busy { .. } => ApiError::queue_full(RETRY_AFTER_S),
        Error::Vocabulary(reason) => ApiError::unsupported_parameter(param, reason),
        other => ApiError::invalid_value(param, format!("{param}: {other}")),
    }
}
