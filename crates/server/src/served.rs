//! The served model: from a checked request to a running generation.

use std::sync::Arc;

use async_channel::Receiver;
use volley_engine::{Control, EngineError, EngineHandle, Request, RequestUpdate, SpeculateOptions};
use volley_protocol::messages::normalize;
use volley_protocol::openai::SamplingFields;
use volley_protocol::parser::ParserConfig;
use volley_protocol::request::{RawPrompt, Speculative, TemplateArguments};
use volley_protocol::template::{ChatTemplate, RenderOptions};
use volley_protocol::{ApiError, Features, GenerationRequest};
use volley_speculate::{Method, SamplingParams};

use crate::app::RETRY_AFTER_S;
use crate::control::Controls;
use crate::defaults::GenerationDefaults;
use crate::generation::Generation;
use crate::replays::Replays;
use crate::tokenizer::Tokenizer;
use crate::turns::checkpoints;

/// Temperatures below this are greedy: they would overflow the division of the logits.
const LEAST_TEMPERATURE: f32 = 1e-5;

/// A running engine and what turns text into tokens and back.
pub struct ServedModel {
    /// Names that requests may use; the first is the one in answers.
    pub names: Vec<String>,
    /// Any name will do.
    pub any_name: bool,
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
    /// What requests ask of their outputs.
    pub controls: Controls,
    /// Arguments of the template where a request leaves them open.
    pub template_arguments: TemplateArguments,
    /// What answers are, if not the model's own.
    pub replays: Option<Replays>,
    /// Tokens to tokens.
    pub engine: EngineHandle,
}

/// One choice ready for the engine.
pub struct Prepared {
    /// For the engine.
    pub request: Request,
    /// For its output.
    pub parser: ParserConfig,
    /// It is the first choice of its prompt.
    pub opens_prompt: bool,
}

/// What this server does beyond text, tools and sampling.
pub const FEATURES: Features = Features::all();

impl ServedModel {
    /// The name in answers.
    pub fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// 404 unless the request names no model, as an empty name does for vLLM, or one of ours.
    pub fn check_name(&self, requested: Option<&str>) -> Result<(), ApiError> {
        match requested {
            None | Some("") => Ok(()),
            Some(name) => self.check_served(name),
        }
    }

    /// 404 unless this is a name of ours.
    pub fn check_served(&self, name: &str) -> Result<(), ApiError> {
        match self.any_name || self.names.iter().any(|ours| ours == name) {
            true => Ok(()),
            false => {
                let shown: String = name.chars().take(100).collect();
                Err(ApiError::model_not_found(&shown, self.name()))
            }
        }
    }

    /// Renders and encodes a request with one choice. As [`prepare_all`](Self::prepare_all).
    pub fn prepare(
        &self,
        request: GenerationRequest,
        call_id_prefix: String,
    ) -> Result<Prepared, ApiError> {
        let mut all = self.prepare_all(&request, &call_id_prefix)?;
        match all.pop() {
            Some(prepared) if all.is_empty() => Ok(prepared),
            _ => Err(ApiError::invalid_value("n", "one choice is wanted")),
        }
    }

    /// Renders and encodes a request, and fills in defaults: one entry per choice, the `n` of the
    /// first prompt first. Takes time in proportion to the prompt. Every failure is the client's:
    /// 400 or 404.
    pub fn prepare_all(
        &self,
        generation: &GenerationRequest,
        call_id_prefix: &str,
    ) -> Result<Vec<Prepared>, ApiError> {
        self.check_name(generation.model.as_deref())?;
        let mut prompts = Vec::new();
        let initial = if generation.raw_prompts.is_empty() {
            let pieces = self.pieces(generation, self.render_options(generation))?;
            let end = pieces.last().map_or("", String::as_str);
            let initial = generation.initial_state(end);
            prompts.push(self.encode(&pieces)?);
            initial
        } else {
            for prompt in &generation.raw_prompts {
                prompts.push(self.encode_raw(prompt)?);
            }
            generation.initial_state("")
        };
        let control = self.controls.of(generation, initial)?;
        let mut choices = Vec::with_capacity(generation.choices());
        for prompt in prompts {
            let mut first = self.request(prompt, generation.sampling())?;
            first.speculate = self.speculation(&generation.speculative)?;
            if control.constraint.is_some() {
                // The end of the format is the end of the answer.
                first.stop_ids.extend(&self.eos_ids);
            }
            first.control = control.clone();
            let most = i64::from(i32::MAX);
            if let Some(salt) = &generation.cache_salt {
                first.cache_salt = salt.as_str().into();
            }
            first.priority = generation.priority.clamp(-most, most) as i32;
            for k in 0..generation.n {
                let mut request = first.clone();
                let seed = &mut request.sampling.seed;
                *seed = seed.wrapping_add(k as u64);
                if let Some(replays) = &self.replays {
                    let (tokenizer, ends) = (&self.tokenizer, &self.eos_ids);
                    replays.script(&mut request, generation, initial, tokenizer, ends)?;
                }
                let parser = ParserConfig {
                    initial,
                    tools: generation.active_tools().to_vec(),
                    parallel_tool_calls: generation.parallel_tool_calls,
                    stop: generation.stop.clone(),
                    tag_ids: self.tokenizer.tags(),
                    call_id_prefix: match generation.choices() {
                        1 => call_id_prefix.to_owned(),
                        _ => format!("{call_id_prefix}{}_", choices.len()),
                    },
                };
                choices.push(Prepared {
                    request,
                    parser,
                    opens_prompt: k == 0,
                });
            }
        }
        Ok(choices)
    }

    /// The rendered conversation in pieces to be tokenized one by one. Control tokens spelled in
    /// a message stay text: they must not end a turn or begin one.
    pub fn pieces(
        &self,
        generation: &GenerationRequest,
        options: RenderOptions,
    ) -> Result<Vec<String>, ApiError> {
        let messages = normalize(generation.messages.clone())?;
        let control = self.tokenizer.control_tokens();
        let tools = generation.active_tools();
        let mut arguments = self.template_arguments.others.clone();
        arguments.extend(generation.template_arguments.clone());
        Ok(self
            .template
            .render_pieces(&messages, tools, options, &arguments, control)?)
    }

    /// How to render a conversation.
    pub fn render_options(&self, generation: &GenerationRequest) -> RenderOptions {
        generation.render_options_or(self.template_arguments.thinking)
    }

    /// Token ids of the rendered conversation, of any length.
    pub fn chat_tokens(
        &self,
        generation: &GenerationRequest,
        options: RenderOptions,
    ) -> Result<Vec<u32>, ApiError> {
        self.check_name(generation.model.as_deref())?;
        self.tokens(&self.pieces(generation, options)?)
    }

    fn encode_raw(&self, prompt: &RawPrompt) -> Result<Vec<u32>, ApiError> {
        const PARAM: &str = "prompt";
        let about = |mut error: ApiError| {
            error.param = Some(PARAM.to_owned());
            error
        };
        match prompt {
            RawPrompt::Text(text) => self.encode(std::slice::from_ref(text)).map_err(about),
            RawPrompt::Tokens(ids) => {
                self.check_tokens(PARAM, ids)?;
                self.check_room(ids.len()).map_err(about)?;
                Ok(ids.clone())
            }
        }
    }

    fn speculation(&self, wanted: &Speculative) -> Result<SpeculateOptions, ApiError> {
        const PARAM: &str = "speculative.method";
        let offered = &self.engine.info().methods;
        let method = match wanted.method.as_deref() {
            None => None,
            Some(name) => {
                let method = offered.iter().find(|method| method.name() == name);
                let method = method.ok_or_else(|| {
                    let shown: String = name.chars().take(60).collect();
                    let names: Vec<&str> = offered.iter().map(|method| method.name()).collect();
                    let names = names.join(", ");
                    let how = how_to_offer(name);
                    let message = format!("{PARAM} is {shown:?}; this server has {names}{how}");
                    ApiError::invalid_value(PARAM, message)
                })?;
                Some(*method)
            }
        };
        let all = SpeculateOptions::default();
        Ok(SpeculateOptions {
            method,
            max_drafts: wanted.max_drafts.unwrap_or(all.max_drafts),
            tree_budget: wanted.tree_budget.unwrap_or(all.tree_budget),
        })
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
        let prompt = self.tokens(pieces)?;
        self.check_room(prompt.len())?;
        Ok(prompt)
    }

    /// Token ids of text in pieces, each encoded by itself.
    pub fn tokens(&self, pieces: &[String]) -> Result<Vec<u32>, ApiError> {
        let mut tokens = Vec::new();
        for piece in pieces {
            let ids = self
                .tokenizer
                .encode(piece)
                .map_err(|error| ApiError::invalid_value("messages", error.to_string()))?;
            tokens.extend(ids);
        }
        Ok(tokens)
    }

    /// 400 for an id that no token has.
    pub fn check_tokens(&self, param: &str, ids: &[u32]) -> Result<(), ApiError> {
        let count = self.tokenizer.count().min(self.engine.info().vocab_size);
        check_ids(param, ids.iter(), count)
    }

    fn check_room(&self, prompt_tokens: usize) -> Result<(), ApiError> {
        let limit = self.engine.info().max_model_len;
        match prompt_tokens >= limit {
            true => Err(ApiError::context_length(limit, prompt_tokens)),
            false => Ok(()),
        }
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
            control: Control::default(),
            priority: 0,
            cache_salt: "".into(),
        })
    }

    /// Hands a prepared request to the engine.
    pub fn start(&self, prepared: Prepared) -> Result<Generation, ApiError> {
        let prompt_tokens = prepared.request.prompt.len();
        let updates = self.submit(prepared.request)?;
        let tokenizer = Arc::clone(&self.tokenizer);
        Ok(Generation::new(
            updates,
            prepared.parser,
            tokenizer,
            prompt_tokens,
        ))
    }

    pub(crate) fn submit(&self, request: Request) -> Result<Receiver<RequestUpdate>, ApiError> {
        self.engine.submit(request).map_err(refusal)
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

/// How a server comes to have a way to draft that this one has not.
fn how_to_offer(method: &str) -> &'static str {
    match method.parse() {
        Ok(Method::Mtp) => {
            ". A target with an MTP head offers it when the server is started with \"mtp\": true in \
             --speculative-config"
        }
        Ok(Method::Ddtree) => {
            ". A server with a drafter offers trees when it is started with \"tree_budget\": N in \
             --speculative-config"
        }
        Ok(Method::Dflash) => ". It takes a drafter, named by --drafter or in --speculative-config",
        _ => "",
    }
}
