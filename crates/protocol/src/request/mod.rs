//! The request that all surfaces map to. Chat completions, completions, responses and messages
//! differ in how they spell a request; from here on they are the same.

mod arguments;
mod constraint;
mod policy;
mod sampling;
mod thinking;
mod tools;

use serde_json::{Map, Value};

use self::policy::refuse_unsupported;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::messages::{Message, Role};
use crate::parser::InitialState;
use crate::surface::Surface;
use crate::template::{RenderOptions, python_strip};
use crate::volatile;

pub use arguments::TemplateArguments;
pub use constraint::Constraint;
pub use policy::{IGNORED_FIELDS, UNSUPPORTED_FIELDS};
pub use sampling::SamplingFields;
pub use thinking::Thinking;
pub use tools::{Tool, ToolChoice};

pub(crate) use constraint::read_format;
pub(crate) use sampling::read_stop;
pub(crate) use tools::{Forced, Tools, check_tool_name, read_schema, read_tool_choice, read_tools};

/// Most entries of a top list.
pub const MAX_TOP_LOGPROBS: usize = 20;

/// What a server can do beyond text, tools and sampling. A request for anything that is off is a
/// 400 `unsupported_parameter`: what changes the answer is never silently left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Most answers per request.
    pub max_choices: usize,
    /// Most prompts in a list of prompts.
    pub max_prompts: usize,
    /// `logprobs` and `top_logprobs`.
    pub logprobs: bool,
    /// Output held to JSON, a schema, a regular expression, a grammar or a choice.
    pub constraints: bool,
    /// Forced tool calls, and arguments held to a strict schema.
    pub forced_calls: bool,
    /// Thinking ended after a number of tokens.
    pub thinking_budget: bool,
    /// Thoughts left out of the answer.
    pub hidden_reasoning: bool,
    /// Method and depth of speculation per request.
    pub speculative: bool,
    /// The prompt returned with the completion, with its logprobs.
    pub echo: bool,
    /// An answer that goes on with the last message.
    pub continue_final_message: bool,
    /// Responses kept, for `previous_response_id`.
    pub stored_responses: bool,
}

impl Default for Features {
    /// One answer, nothing more.
    fn default() -> Self {
        Self {
            max_choices: 1,
            max_prompts: 1,
            logprobs: false,
            constraints: false,
            forced_calls: false,
            thinking_budget: false,
            hidden_reasoning: false,
            speculative: false,
            echo: false,
            continue_final_message: false,
            stored_responses: false,
        }
    }
}

impl Features {
    /// Everything that this crate can express.
    pub const fn all() -> Self {
        Self {
            max_choices: 8,
            max_prompts: 64,
            logprobs: true,
            constraints: true,
            forced_calls: true,
            thinking_budget: true,
            hidden_reasoning: true,
            speculative: true,
            echo: true,
            continue_final_message: true,
            stored_responses: true,
        }
    }
}

/// A prompt without messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawPrompt {
    /// Text to be tokenized as it stands.
    Text(String),
    /// Token ids, not yet checked against the vocabulary.
    Tokens(Vec<u32>),
}

/// What a streaming client asks for beyond the deltas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamOptions {
    /// Send a last chunk with the usage.
    pub include_usage: bool,
    /// Carry the usage so far in every chunk.
    pub continuous_usage_stats: bool,
    /// Say of every delta of a chat how its tokens came.
    pub include_token_origins: bool,
}

/// Speculation as the request wants it; None leaves it to the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Speculative {
    /// Name of a proposer, or `none`.
    pub method: Option<String>,
    /// Most drafted tokens per step; 0 switches speculation off.
    pub max_drafts: Option<usize>,
    /// Most nodes of a tree of drafts per step.
    pub tree_budget: Option<usize>,
}

/// A checked request, whichever surface it came through.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerationRequest {
    /// Requested model; None is the one served.
    pub model: Option<String>,
    /// The conversation as sent; [`crate::messages::normalize`] comes next.
    pub messages: Vec<Message>,
    /// Prompts in place of messages, each to be answered on its own.
    pub raw_prompts: Vec<RawPrompt>,
    /// Server-sent events instead of one body.
    pub stream: bool,
    /// Options of the stream; all off unless `stream`.
    pub stream_options: StreamOptions,
    /// Answers per prompt.
    pub n: usize,
    /// Strings that end the answer.
    pub stop: Vec<String>,
    /// Declared functions.
    pub tools: Vec<Tool>,
    /// Whether they may be called.
    pub tool_choice: ToolChoice,
    /// More than one call in an answer is allowed.
    pub parallel_tool_calls: bool,
    /// What the output is held to, after the thoughts.
    pub constraint: Option<Constraint>,
    /// Logprobs of the answer's tokens, each with this many of the likeliest.
    pub logprobs: Option<usize>,
    /// Send the thoughts.
    pub include_reasoning: bool,
    /// The answer goes on with the last message.
    pub continue_final_message: bool,
    /// Speculation.
    pub speculative: Speculative,
    /// Only requests with the same salt share cached prompts.
    pub cache_salt: Option<String>,
    /// Say in the usage where the prompt parts from all that was kept.
    pub include_cache_details: bool,
    /// Requests of a lower number go first.
    pub priority: i64,
    /// Remarks for the log: things accepted that may surprise.
    pub notices: Vec<String>,
    /// Arguments of the chat template beside those about thinking.
    pub template_arguments: Map<String, Value>,
    pub(crate) sampling: SamplingFields,
    pub(crate) thinking: Thinking,
}

impl Default for GenerationRequest {
    /// No prompt, one answer, everything else left to the server.
    fn default() -> Self {
        Self {
            model: None,
            messages: Vec::new(),
            raw_prompts: Vec::new(),
            stream: false,
            stream_options: StreamOptions::default(),
            n: 1,
            stop: Vec::new(),
            tools: Vec::new(),
            tool_choice: ToolChoice::Auto,
            parallel_tool_calls: true,
            constraint: None,
            logprobs: None,
            include_reasoning: true,
            continue_final_message: false,
            speculative: Speculative::default(),
            cache_salt: None,
            include_cache_details: false,
            priority: 0,
            notices: Vec::new(),
            template_arguments: Map::new(),
            sampling: SamplingFields::default(),
            thinking: Thinking::default(),
        }
    }
}

impl GenerationRequest {
    /// Reads what all surfaces spell alike; messages, prompts and tools are the surface's.
    pub(crate) fn read_common(
        body: &Fields,
        features: &Features,
        surface: Surface,
    ) -> Result<Self, ApiError> {
        refuse_unsupported(body, surface)?;
        let arguments = TemplateArguments::read(body, features)?;
        let thinking = Thinking::read(body, features, &arguments)?;
        let cache_salt = body.string("cache_salt")?;
        if cache_salt == Some("") {
            let message = "cache_salt is empty; leave it out to share the cache with all";
            return Err(ApiError::invalid_value("cache_salt", message));
        }
        Ok(Self {
            model: body.string("model")?.map(str::to_owned),
            stream: body.boolean("stream")?.unwrap_or(false),
            include_reasoning: !thinking.hide,
            speculative: read_speculative(body, features)?,
            cache_salt: cache_salt.map(str::to_owned),
            include_cache_details: body.boolean("include_cache_details")?.unwrap_or(false),
            priority: body.integer("priority", i64::MIN..=i64::MAX)?.unwrap_or(0),
            sampling: SamplingFields::read(body)?,
            thinking,
            template_arguments: arguments.others,
            ..Self::default()
        })
    }

    /// Reads only what shapes the prompt.
    pub(crate) fn read_for_prompt(body: &Fields, features: &Features) -> Result<Self, ApiError> {
        let arguments = TemplateArguments::read(body, features)?;
        let model = body.string("model")?.map(str::to_owned);
        Ok(Self {
            model,
            thinking: Thinking::read(body, features, &arguments)?,
            template_arguments: arguments.others,
            ..Self::default()
        })
    }

    /// Takes over the conversation.
    pub(crate) fn set_messages(&mut self, mut messages: Vec<Message>) {
        volatile::settle(&mut messages, &mut self.notices);
        self.messages = messages;
    }

    /// Takes over tools and the choice among them.
    pub(crate) fn set_tools(
        &mut self,
        tools: Tools,
        choice: (ToolChoice, Option<Forced>),
    ) -> Result<(), ApiError> {
        let (tool_choice, forced) = choice;
        self.notices.extend(tools.notices);
        self.tools = tools.functions;
        self.tool_choice = tool_choice;
        let Some(Forced { names, required }) = forced else {
            return Ok(());
        };
        if self.constraint.is_some() {
            if !required {
                let message =
                    "tool_choice with allowed_tools cannot be combined with an output format";
                return Err(ApiError::invalid_value("tool_choice", message));
            }
            self.notices
                .push("the output format has no effect: a tool call is forced".to_owned());
        }
        self.constraint = Some(Constraint::ToolCall { names, required });
        Ok(())
    }

    /// Reads whether the answer goes on with the last message, which the messages have to fit.
    pub(crate) fn read_continuation(
        &mut self,
        body: &Fields,
        features: &Features,
    ) -> Result<(), ApiError> {
        const PARAM: &str = "continue_final_message";
        const OTHER: &str = "add_generation_prompt";
        let wanted = body.boolean(PARAM)?.unwrap_or(false);
        let opening = body.boolean(OTHER)?;
        if wanted && opening == Some(true) {
            let message = "continue_final_message and add_generation_prompt exclude each other";
            return Err(ApiError::invalid_value(PARAM, message));
        }
        if wanted && !features.continue_final_message {
            let message = "continue_final_message is not supported; leave it out";
            return Err(ApiError::unsupported_parameter(PARAM, message));
        }
        if !wanted && opening == Some(false) {
            let message = "an answer needs its opening; leave add_generation_prompt out";
            return Err(ApiError::unsupported_parameter(OTHER, message));
        }
        if wanted && !self.ends_in_answer() {
            let message = "continue_final_message needs an assistant's text as the last message";
            return Err(ApiError::invalid_value(PARAM, message));
        }
        self.continue_final_message = wanted;
        Ok(())
    }

    /// Whether the last message is an assistant's text, which an answer can go on with.
    pub(crate) fn ends_in_answer(&self) -> bool {
        self.messages.last().is_some_and(|last| {
            let text = !python_strip(&last.content).is_empty();
            last.role == Role::Assistant && last.tool_calls.is_empty() && text
        })
    }

    /// Sampling as asked for; the server fills the gaps.
    pub fn sampling(&self) -> &SamplingFields {
        &self.sampling
    }

    /// Thinking as asked for.
    pub fn thinking(&self) -> Thinking {
        self.thinking
    }

    /// Functions that the model may call: those to show in the prompt and to give to the parser.
    pub fn active_tools(&self) -> &[Tool] {
        match self.tool_choice {
            ToolChoice::Auto | ToolChoice::Required => &self.tools,
            ToolChoice::None => &[],
        }
    }

    /// How to render the prompt. Thoughts of earlier answers stay in it by default when tools are
    /// in play, so that each prompt of a tool loop extends the one before.
    pub fn render_options(&self) -> RenderOptions {
        self.render_options_or(Thinking::default())
    }

    /// The same with a server's own `default` where the request leaves thinking open.
    pub fn render_options_or(&self, default: Thinking) -> RenderOptions {
        let Thinking {
            enable, preserve, ..
        } = self.thinking.or(default);
        RenderOptions {
            enable_thinking: enable,
            preserve_thinking: preserve.unwrap_or(!self.active_tools().is_empty()),
            add_generation_prompt: !self.continue_final_message,
            continue_final_message: self.continue_final_message,
        }
    }

    /// Where the rendered prompt leaves off, for the parser.
    pub fn initial_state(&self, prompt: &str) -> InitialState {
        match (self.raw_prompts.is_empty(), self.continue_final_message) {
            (false, _) => InitialState::Verbatim,
            (true, true) => InitialState::InText,
            (true, false) => InitialState::of_prompt(prompt),
        }
    }

    /// Answers to be generated, over all prompts.
    pub fn choices(&self) -> usize {
        self.n * self.raw_prompts.len().max(1)
    }
}

/// Reads `stream_options`, which have no effect without a stream.
pub(crate) fn read_stream_options(body: &Fields, stream: bool) -> Result<StreamOptions, ApiError> {
    let Some(options) = body.object("stream_options")? else {
        return Ok(StreamOptions::default());
    };
    let options = StreamOptions {
        include_usage: options.boolean("include_usage")?.unwrap_or(false),
        continuous_usage_stats: options.boolean("continuous_usage_stats")?.unwrap_or(false),
        include_token_origins: options.boolean("include_token_origins")?.unwrap_or(false),
    };
    Ok(match stream {
        true => options,
        false => StreamOptions::default(),
    })
}

/// Reads `n`.
pub(crate) fn read_choices(body: &Fields, features: &Features) -> Result<usize, ApiError> {
    const ANY: usize = 128;
    let most = match features.max_choices {
        1 => ANY,
        limit => limit,
    };
    let n = body.integer("n", 1..=most as i64)?;
    match n.map_or(1, |n| n as usize) {
        n if n > features.max_choices => Err(ApiError::unsupported_parameter(
            "n",
            format!("n is {n}, but only one answer per request is supported; send {n} requests"),
        )),
        n => Ok(n),
    }
}

fn read_speculative(body: &Fields, features: &Features) -> Result<Speculative, ApiError> {
    const MOST_DRAFTS: i64 = 1024;
    let Some(fields) = body.object("speculative")? else {
        return Ok(Speculative::default());
    };
    let count = |name| fields.integer(name, 0..=MOST_DRAFTS);
    // The name in --speculative-config, and a short one.
    let drafts = count("num_speculative_tokens")?;
    let speculative = Speculative {
        method: fields.string("method")?.map(str::to_owned),
        max_drafts: count("max_drafts")?.or(drafts).map(|n| n as usize),
        tree_budget: count("tree_budget")?.map(|nodes| nodes as usize),
    };
    if !features.speculative && speculative != Speculative::default() {
        let message = "speculation per request is not supported; leave it out";
        return Err(ApiError::unsupported_parameter("speculative", message));
    }
    Ok(speculative)
}
