//! The served model: from a checked request to a running generation.

use std::sync::Arc;

use volley_engine::{Control, EngineError, EngineHandle, Request, SpeculateOptions};
use volley_protocol::ApiError;
use volley_protocol::messages::normalize;
use volley_protocol::openai::{ChatRequest, SamplingFields};
use volley_protocol::parser::{InitialState, OutputParser, ParserConfig};
use volley_protocol::template::ChatTemplate;
use volley_speculate::SamplingParams;

use crate::app::RETRY_AFTER_S;
use crate::defaults::GenerationDefaults;
use crate::generation::Generation;
use crate::tokenizer::Tokenizer;
use crate::turns::checkpoints;

/// Temperatures below this are greedy: they would overflow the division of the logits.
const LEAST_TEMPERATURE: f32 = 1e-5;

/// A running engine and what turns text into tokens and back.
pub struct ServedModel {
    /// Names that requests may use; the first is the one in answers.
    pub names: Vec<String>,
    /// Text to tokens.
    pub tokenizer: Arc<Tokenizer>,
    /// Messages to text.
    pub template: ChatTemplate,
    /// Sampling of requests that leave it open.
    pub defaults: GenerationDefaults,
    /// End-of-sequence ids.
    pub eos_ids: Vec<u32>,
    /// Seed of requests that bring none; random for each when `None`.
    pub seed: Option<u64>,
    /// Tokens to tokens.
    pub engine: EngineHandle,
}

/// A request ready for the engine.
pub struct Prepared {
    /// For the engine.
    pub request: Request,
    /// For its output.
    pub parser: OutputParser,
}

impl ServedModel {
    /// The name in answers.
    pub fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// 404 unless the request names no model or one of ours.
    pub fn check_name(&self, requested: Option<&str>) -> Result<(), ApiError> {
        match requested {
            Some(name) if !self.names.iter().any(|ours| ours == name) => {
                let shown: String = name.chars().take(100).collect();
                Err(ApiError::model_not_found(&shown, self.name()))
            }
            _ => Ok(()),
        }
    }

    /// Renders and encodes a request, and fills in defaults. Takes time in proportion to the
    /// prompt. Every failure is the client's: 400 or 404.
    pub fn prepare(&self, chat: ChatRequest, call_id_prefix: String) -> Result<Prepared, ApiError> {
        self.check_name(chat.model.as_deref())?;
        let options = chat.render_options();
        let fields = chat.sampling().clone();
        let tools = chat.active_tools().to_vec();
        let messages = normalize(chat.messages)?;
        // Control tokens spelled in a message stay text: they must not end a turn or begin one.
        let control = self.tokenizer.control_tokens();
        let pieces = self
            .template
            .render_pieces(&messages, &tools, options, control)?;
        let prompt = self.encode(&pieces)?;
        let end = pieces.last().map_or("", String::as_str);
        let parser = OutputParser::new(ParserConfig {
            initial: InitialState::of_prompt(end),
            tools,
            parallel_tool_calls: chat.parallel_tool_calls,
            stop: chat.stop,
            tag_ids: self.tokenizer.tags(),
            call_id_prefix,
        });
        let request = self.request(prompt, &fields)?;
        Ok(Prepared { request, parser })
    }

    /// Token ids of a prompt in pieces, each encoded by itself; 400 if they leave no room in the
    /// context.
    pub fn encode(&self, pieces: &[String]) -> Result<Vec<u32>, ApiError> {
        let limit = self.engine.info().max_model_len;
        let bytes = pieces.iter().map(String::len).sum();
        let least = self.tokenizer.least_tokens(bytes);
        if least >= limit {
            return Err(ApiError::context_length(limit, least));
        }
        let mut prompt = Vec::new();
        for piece in pieces {
            let ids = self
                .tokenizer
                .encode(piece)
                .map_err(|error| ApiError::invalid_value("messages", error.to_string()))?;
            prompt.extend(ids);
        }
        if prompt.len() >= limit {
            return Err(ApiError::context_length(limit, prompt.len()));
        }
        Ok(prompt)
    }

    /// A request of the engine, with defaults for the fields that are open. `max_tokens` is
    /// lowered to what the context leaves.
    pub fn request(&self, prompt: Vec<u32>, fields: &SamplingFields) -> Result<Request, ApiError> {
        let info = self.engine.info();
        let room = info.max_model_len.saturating_sub(prompt.len()).max(1);
        let stop_token_ids = fields.stop_token_ids.as_deref().unwrap_or_default();
        check_ids("stop_token_ids", stop_token_ids.iter(), info.vocab_size)?;
        let logit_bias = fields.logit_bias.clone().unwrap_or_default();
        check_ids("logit_bias", logit_bias.keys(), info.vocab_size)?;
        let mut stop_ids = stop_token_ids.to_vec();
        if !fields.ignore_eos.unwrap_or(false) {
            stop_ids.extend(&self.eos_ids);
        }
        let defaults = &self.defaults;
        let temperature = fields.temperature.unwrap_or(defaults.temperature);
        let sampling = SamplingParams {
            temperature: if temperature < LEAST_TEMPERATURE {
                0.0
            } else {
                temperature
            },
            top_k: fields.top_k.unwrap_or(defaults.top_k),
            top_p: fields.top_p.unwrap_or(defaults.top_p),
            min_p: fields.min_p.unwrap_or(defaults.min_p),
            presence_penalty: fields.presence_penalty.unwrap_or(0.0),
            frequency_penalty: fields.frequency_penalty.unwrap_or(0.0),
            repetition_penalty: fields
                .repetition_penalty
                .unwrap_or(defaults.repetition_penalty),
            logit_bias,
            seed: fields.seed.or(self.seed).unwrap_or_else(rand::random),
        };
        Ok(Request {
            checkpoints: checkpoints(&prompt, &self.tokenizer),
            prompt,
            sampling,
            max_tokens: fields.max_tokens.map_or(room, |asked| asked.min(room)),
            min_tokens: fields.min_tokens.unwrap_or(0).min(room),
            stop_ids,
            speculate: SpeculateOptions::default(),
            priority: 0,
            control: Control::default(),
        })
    }

    /// Hands a prepared request to the engine.
    pub fn start(&self, prepared: Prepared) -> Result<Generation, ApiError> {
        let prompt_tokens = prepared.request.prompt.len();
        let updates = self.engine.submit(prepared.request).map_err(refusal)?;
        let tokenizer = Arc::clone(&self.tokenizer);
        Ok(Generation::new(
            updates,
            prepared.parser,
            tokenizer,
            prompt_tokens,
        ))
    }
}

fn check_ids<'a>(
    param: &str,
    mut ids: impl Iterator<Item = &'a u32>,
    vocab_size: usize,
) -> Result<(), ApiError> {
    match ids.find(|id| **id as usize >= vocab_size) {
        Some(id) => Err(ApiError::invalid_value(
            param,
            format!("{param}: token id {id} is outside the vocabulary of {vocab_size}"),
        )),
        None => Ok(()),
    }
}

/// What the client hears when the engine does not take a request.
fn refusal(error: EngineError) -> ApiError {
    match error {
        EngineError::PromptTooLong { prompt, limit } => ApiError::context_length(limit, prompt),
        EngineError::QueueFull { .. } => ApiError::queue_full(RETRY_AFTER_S),
        EngineError::Stopped(_) => ApiError::shutting_down(RETRY_AFTER_S),
        EngineError::EmptyPrompt | EngineError::UnknownToken { .. } => {
            ApiError::invalid_value("messages", error.to_string())
        }
        other => ApiError::engine_failure(&other.to_string()),
    }
}
