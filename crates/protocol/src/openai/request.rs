//! The chat completions request (API section 1.2).

use serde_json::Value;

use super::fields::Fields;
use super::policy::refuse_unsupported;
use super::sampling::{SamplingFields, read_stop};
use super::tools::{Tool, ToolChoice, read_tool_choice, read_tools};
use crate::error::ApiError;
use crate::messages::{self, Message};
use crate::template::RenderOptions;

/// What a streaming client asks for beyond the deltas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamOptions {
    /// Send a last chunk with the usage.
    pub include_usage: bool,
    /// Carry the usage so far in every chunk.
    pub continuous_usage_stats: bool,
}

/// A checked chat completions request.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatRequest {
    /// Requested model; None is the one served.
    pub model: Option<String>,
    /// The conversation as sent; [`messages::normalize`] comes next.
    pub messages: Vec<Message>,
    /// Server-sent events instead of one body.
    pub stream: bool,
    /// Options of the stream; all off unless `stream`.
    pub stream_options: StreamOptions,
    /// Strings that end the answer.
    pub stop: Vec<String>,
    /// Declared functions.
    pub tools: Vec<Tool>,
    /// Whether they may be called.
    pub tool_choice: ToolChoice,
    /// More than one call in an answer is allowed.
    pub parallel_tool_calls: bool,
    /// Remarks for the log: things accepted that may surprise.
    pub notices: Vec<String>,
    sampling: SamplingFields,
    thinking: Thinking,
}

impl ChatRequest {
    /// Reads and checks a request body. Unknown fields are ignored, null means absent.
    ///
    /// # Errors
    /// 400 that names the field at fault.
    pub fn from_json(body: &[u8]) -> Result<Self, ApiError> {
        let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
        let value: Value = serde_json::from_slice(body).map_err(ApiError::malformed_body)?;
        match &value {
            Value::Object(object) => Self::from_fields(&Fields::new(object, "")),
            Value::Array(_) => Err(ApiError::malformed_body("it is a list")),
            _ => Err(ApiError::malformed_body("it is a single value")),
        }
    }

    fn from_fields(body: &Fields) -> Result<Self, ApiError> {
        let mut notices = Vec::new();
        let list = body
            .list("messages")?
            .ok_or_else(|| ApiError::missing("messages"))?;
        let messages = messages::parse(list, &mut notices)?;
        let stream = body.boolean("stream")?.unwrap_or(false);
        let stream_options = read_stream_options(body)?;
        refuse_several_choices(body)?;
        refuse_unsupported(body)?;
        refuse_constrained_format(body)?;
        let tools = read_tools(body, &mut notices)?;
        Ok(Self {
            model: body.string("model")?.map(str::to_owned),
            messages,
            stream,
            stream_options: if stream {
                stream_options
            } else {
                StreamOptions::default()
            },
            stop: read_stop(body)?,
            tool_choice: read_tool_choice(body, &tools)?,
            tools,
            parallel_tool_calls: body.boolean("parallel_tool_calls")?.unwrap_or(true),
            sampling: SamplingFields::read(body)?,
            thinking: Thinking::read(body, &mut notices)?,
            notices,
        })
    }

    /// Sampling as asked for; the server fills the gaps.
    pub fn sampling(&self) -> &SamplingFields {
        &self.sampling
    }

    /// Functions that the model may call: those to show in the prompt and to give to the parser.
    pub fn active_tools(&self) -> &[Tool] {
        match self.tool_choice {
            ToolChoice::Auto => &self.tools,
            ToolChoice::None => &[],
        }
    }

    /// How to render the prompt. Thoughts of earlier answers stay in it by default when tools are
    /// in play, so that each prompt of a tool loop extends the one before.
    pub fn render_options(&self) -> RenderOptions {
        let preserve = self.thinking.preserve;
        RenderOptions {
            enable_thinking: self.thinking.enable,
            preserve_thinking: preserve.unwrap_or(!self.active_tools().is_empty()),
            add_generation_prompt: true,
        }
    }
}

fn read_stream_options(body: &Fields) -> Result<StreamOptions, ApiError> {
    let Some(options) = body.object("stream_options")? else {
        return Ok(StreamOptions::default());
    };
    Ok(StreamOptions {
        include_usage: options.boolean("include_usage")?.unwrap_or(false),
        continuous_usage_stats: options.boolean("continuous_usage_stats")?.unwrap_or(false),
    })
}

fn refuse_several_choices(body: &Fields) -> Result<(), ApiError> {
    match body.integer("n", 1..=128)? {
        None | Some(1) => Ok(()),
        Some(n) => Err(ApiError::unsupported_parameter(
            "n",
            format!("n is {n}, but only one answer per request is supported; send {n} requests"),
        )),
    }
}

fn refuse_constrained_format(body: &Fields) -> Result<(), ApiError> {
    let Some(format) = body.object("response_format")? else {
        return Ok(());
    };
    match format.string("type")? {
        Some("text") => Ok(()),
        Some(kind @ ("json_object" | "json_schema" | "structural_tag" | "grammar")) => {
            let message = format!(
                "response_format {kind:?} is not supported: nothing here holds the answer to a format. Ask for it in the messages, or declare a tool."
            );
            Err(ApiError::unsupported_parameter("response_format", message))
        }
        Some(other) => Err(ApiError::invalid_value(
            "response_format.type",
            format!(
                "response_format.type must be \"text\", but is {}",
                crate::error::clipped(&format!("{other:?}"))
            ),
        )),
        None => Err(ApiError::missing("response_format.type")),
    }
}

/// Whether to think, and whether to keep earlier thoughts in the prompt; None is the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Thinking {
    enable: Option<bool>,
    preserve: Option<bool>,
}

impl Thinking {
    /// Most specific first: `chat_template_kwargs`, then `enable_thinking`, then
    /// `reasoning_effort`.
    fn read(body: &Fields, notices: &mut Vec<String>) -> Result<Self, ApiError> {
        const MAX_KWARGS: usize = 32;
        const MAX_KWARG_BYTES: usize = 4096;
        /// Arguments of the renderer that a request must not replace.
        const RESERVED: &[&str] = &[
            "add_generation_prompt",
            "bos_token",
            "chat_template",
            "continue_final_message",
            "conversation",
            "documents",
            "eos_token",
            "max_length",
            "messages",
            "padding",
            "return_dict",
            "return_tensors",
            "tokenize",
            "tokenizer_kwargs",
            "tools",
            "truncation",
        ];
        let mut enable = body.boolean("enable_thinking")?.or(read_effort(body)?);
        let mut preserve = body.boolean("preserve_thinking")?;
        if let Some(kwargs) = body.object("chat_template_kwargs")? {
            let count = kwargs.names().count();
            if count > MAX_KWARGS {
                let message =
                    format!("chat_template_kwargs has {count} keys; the limit is {MAX_KWARGS}");
                return Err(ApiError::invalid_value("chat_template_kwargs", message));
            }
            for name in kwargs.names() {
                let path = kwargs.path_of(&crate::error::clipped(name));
                match name.as_str() {
                    "enable_thinking" | "preserve_thinking" | "reasoning_effort" => {}
                    name if RESERVED.contains(&name) => {
                        let message = format!("{path} is set by the server");
                        return Err(ApiError::invalid_value(&path, message));
                    }
                    name => {
                        let size = kwargs.get(name).map_or(0, |value| value.to_string().len());
                        if size > MAX_KWARG_BYTES {
                            let message =
                                format!("{path} has {size} bytes; the limit is {MAX_KWARG_BYTES}");
                            return Err(ApiError::invalid_value(&path, message));
                        }
                        notices.push(format!("{path} has no effect on this model"));
                    }
                }
            }
            enable = kwargs
                .boolean("enable_thinking")?
                .or(read_effort(&kwargs)?)
                .or(enable);
            preserve = kwargs.boolean("preserve_thinking")?.or(preserve);
        }
        Ok(Self { enable, preserve })
    }
}

/// `reasoning_effort`: "none" switches thinking off, every other level switches it on.
fn read_effort(fields: &Fields) -> Result<Option<bool>, ApiError> {
    const PARAM: &str = "reasoning_effort";
    match fields.string(PARAM)? {
        None => Ok(None),
        Some("none") => Ok(Some(false)),
        Some("minimal" | "low" | "medium" | "high" | "xhigh" | "max") => Ok(Some(true)),
        Some(other) => {
            let path = fields.path_of(PARAM);
            let message = format!(
                "{path} must be none, minimal, low, medium, high, xhigh or max, but is {}",
                crate::error::clipped(&format!("{other:?}"))
            );
            Err(ApiError::invalid_value(&path, message))
        }
    }
}
