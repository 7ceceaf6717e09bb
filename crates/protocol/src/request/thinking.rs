//! Whether and how long to think, in the many spellings of clients.

use super::{Features, TemplateArguments};
use crate::error::ApiError;
use crate::fields::Fields;

/// Levels of `reasoning_effort`; all but the first switch thinking on.
pub(crate) const EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// Thinking as asked for; None is the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thinking {
    /// Open a think block.
    pub enable: Option<bool>,
    /// Keep the thoughts of earlier answers in the prompt.
    pub preserve: Option<bool>,
    /// Close the think block after this many tokens.
    pub budget_tokens: Option<usize>,
    /// Leave the thoughts out of the answer.
    pub hide: bool,
}

impl Thinking {
    /// Most specific first: `chat_template_kwargs`, then `enable_thinking`, then `thinking`,
    /// `reasoning`, and `reasoning_effort`.
    pub(super) fn read(
        body: &Fields,
        features: &Features,
        arguments: &TemplateArguments,
    ) -> Result<Self, ApiError> {
        let layers = [
            arguments.thinking,
            read_top_level(body, features)?,
            read_thinking(body, features)?,
            read_reasoning(body, features)?,
            Self::of_effort(body.word("reasoning_effort", EFFORTS)?),
        ];
        let first = layers.into_iter().reduce(Self::or);
        Ok(first.unwrap_or_default())
    }

    /// "none" switches thinking off, every other level switches it on.
    pub(crate) fn of_effort(effort: Option<&str>) -> Self {
        Self {
            enable: effort.map(|level| level != "none"),
            ..Self::default()
        }
    }

    /// These wishes, and the others where there are none.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            enable: self.enable.or(other.enable),
            preserve: self.preserve.or(other.preserve),
            budget_tokens: self.budget_tokens.or(other.budget_tokens),
            hide: self.hide || other.hide,
        }
    }
}

/// A budget: 0 is no thinking at all, -1 no limit.
pub(super) fn read_budget(
    fields: &Fields,
    name: &str,
    features: &Features,
) -> Result<Thinking, ApiError> {
    let budget = fields.integer(name, -1..=i64::from(u32::MAX))?;
    let path = fields.path_of(name);
    match budget {
        None | Some(-1) => Ok(Thinking::default()),
        Some(0) => Ok(Thinking {
            enable: Some(false),
            ..Thinking::default()
        }),
        Some(_) if !features.thinking_budget => Err(ApiError::unsupported_parameter(
            &path,
            format!("{path} is not supported; leave it out, or set it to 0 for no thinking"),
        )),
        Some(tokens) => Ok(Thinking {
            budget_tokens: Some(tokens as usize),
            ..Thinking::default()
        }),
    }
}

fn hide(path: &str, features: &Features) -> Result<Thinking, ApiError> {
    if !features.hidden_reasoning {
        let message = format!("{path}: leaving the thoughts out is not supported");
        return Err(ApiError::unsupported_parameter(path, message));
    }
    Ok(Thinking {
        hide: true,
        ..Thinking::default()
    })
}

fn read_top_level(body: &Fields, features: &Features) -> Result<Thinking, ApiError> {
    let mut thinking = Thinking {
        enable: body.boolean("enable_thinking")?,
        preserve: body.boolean("preserve_thinking")?,
        ..Thinking::default()
    };
    for name in [
        "thinking_budget",
        "thinking_token_budget",
        "thinking_budget_tokens",
        "reasoning_budget",
    ] {
        thinking = thinking.or(read_budget(body, name, features)?);
    }
    if body.boolean("include_reasoning")? == Some(false) {
        thinking = thinking.or(hide("include_reasoning", features)?);
    }
    Ok(thinking)
}

/// `thinking: {type, budget_tokens}`, also `thinking: true`.
fn read_thinking(body: &Fields, features: &Features) -> Result<Thinking, ApiError> {
    if let Some(enable) = body
        .union("thinking", &["object", "boolean", "null"])
        .and_then(|v| v.as_bool())
    {
        return Ok(Thinking {
            enable: Some(enable),
            ..Thinking::default()
        });
    }
    let Some(fields) = body.object("thinking")? else {
        return Ok(Thinking::default());
    };
    let kind = fields.word("type", &["enabled", "disabled", "adaptive", "auto"])?;
    let enable = match kind {
        None | Some("auto") => None,
        Some("disabled") => Some(false),
        Some(_) => Some(true),
    };
    let thinking = Thinking {
        enable,
        ..Thinking::default()
    };
    Ok(thinking.or(read_budget(&fields, "budget_tokens", features)?))
}

/// `reasoning: {effort, enabled, max_tokens, exclude, summary}`; a summary is the thoughts
/// themselves, there is no other.
fn read_reasoning(body: &Fields, features: &Features) -> Result<Thinking, ApiError> {
    let Some(fields) = body.object("reasoning")? else {
        return Ok(Thinking::default());
    };
    let effort = Thinking::of_effort(fields.word("effort", EFFORTS)?);
    let mut thinking = Thinking {
        enable: fields.boolean("enabled")?,
        ..Thinking::default()
    };
    thinking = thinking
        .or(effort)
        .or(read_budget(&fields, "max_tokens", features)?);
    if fields.boolean("exclude")? == Some(true) {
        thinking = thinking.or(hide("reasoning.exclude", features)?);
    }
    fields.string("summary")?;
    fields.string("generate_summary")?;
    Ok(thinking)
}
