//! The chat template: a Jinja program that turns messages into the prompt, rendered character by
//! character as Python's jinja2 with Hugging Face's environment does.

mod guard;
mod python;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, Value};
use minijinja::{Environment, ErrorKind, context};
use serde_json::{Map, Value as Json};

use self::guard::Guard;
use crate::error::TemplateError;
use crate::messages::{Message, Role, ToolCall};
use crate::openai::Tool;

pub use python::python_strip;

const NAME: &str = "chat_template";

/// A compiled chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
}

/// Switches of the template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenderOptions {
    /// Open a think block in the answer; None leaves it to the template.
    pub enable_thinking: Option<bool>,
    /// Keep the thoughts of earlier answers.
    pub preserve_thinking: bool,
    /// End with the opening of the assistant's answer.
    pub add_generation_prompt: bool,
    /// End within the last message, right after its text, for the model to go on with it.
    pub continue_final_message: bool,
}

impl Default for RenderOptions {
    fn default() -> Self {
        Self {
            enable_thinking: None,
            preserve_thinking: false,
            add_generation_prompt: true,
            continue_final_message: false,
        }
    }
}

impl ChatTemplate {
    /// Compiles a template's source.
    ///
    /// # Errors
    /// [`TemplateError::Syntax`].
    pub fn new(source: impl Into<String>) -> Result<Self, TemplateError> {
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(TemplateError::Syntax)?;
        let mut environment = Environment::new();
        environment.set_syntax(syntax);
        environment.set_unknown_method_callback(python::call_method);
        environment.add_filter("tojson", python::to_json_filter);
        environment.add_filter("trim", python::trim_filter);
        environment.add_function("raise_exception", raise_exception);
        environment
            .add_template_owned(NAME, source.into())
            .map_err(TemplateError::Syntax)?;
        Ok(Self { environment })
    }

    /// The prompt for `messages`, which [`crate::messages::normalize`] has put in order.
    ///
    /// # Errors
    /// [`TemplateError::Refused`] with the template's own words, else [`TemplateError::Render`].
    pub fn render(
        &self,
        messages: &[Message],
        tools: &[Tool],
        options: RenderOptions,
    ) -> Result<String, TemplateError> {
        let guard = Guard { tokens: &[] };
        self.render_guarded(messages, tools, options, &Map::new(), guard)
    }

    /// The same prompt in pieces to be tokenized one by one: wherever messages or tools spell one
    /// of `control_tokens`, it is cut in two, so it cannot become that token. Tags that the model
    /// has to read (`<think>`, `<tool_call>`) do not belong in the list. `arguments` are what the
    /// template may know beside what it always does.
    ///
    /// # Errors
    /// As [`Self::render`].
    pub fn render_pieces(
        &self,
        messages: &[Message],
        tools: &[Tool],
        options: RenderOptions,
        arguments: &Map<String, Json>,
        control_tokens: &[String],
    ) -> Result<Vec<String>, TemplateError> {
        let tokens = control_tokens;
        let guard = Guard { tokens };
        let prompt = self.render_guarded(messages, tools, options, arguments, guard)?;
        Ok(guard.pieces(prompt))
    }

    fn render_guarded(
        &self,
        messages: &[Message],
        tools: &[Tool],
        options: RenderOptions,
        arguments: &Map<String, Json>,
        guard: Guard,
    ) -> Result<String, TemplateError> {
        let tools: Option<Vec<Value>> = (!tools.is_empty()).then(|| {
            let definitions = tools.iter().map(|tool| &tool.definition);
            definitions
                .map(|definition| python::from_json(definition, guard))
                .collect()
        });
        // Templates trim the text of messages.
        let last_text = messages
            .last()
            .filter(|_| options.continue_final_message)
            .map(|last| guard.marked(python_strip(&last.content)).into_owned());
        let messages = messages.iter().map(|message| message_value(message, guard));
        let template = self
            .environment
            .get_template(NAME)
            .expect("the template was added at construction: this is a bug");
        let arguments = python::from_fields(arguments, guard);
        // Templates tell "not given" from false.
        let arguments = match options.enable_thinking {
            None => arguments,
            Some(enable) => context! { enable_thinking => enable, ..arguments },
        };
        let context = context! {
            messages => messages.collect::<Vec<_>>(),
            tools => tools,
            preserve_thinking => options.preserve_thinking,
            add_generation_prompt => options.add_generation_prompt,
            ..arguments
        };
        let mut prompt = template
            .render(context)
            .map_err(|error| match refusal(&error) {
                Some(reason) => TemplateError::Refused(reason),
                None => TemplateError::Render(error),
            })?;
        if let Some(last) = last_text {
            let end = prompt
                .rfind(&last)
                .map(|at| at + last.len())
                .ok_or_else(|| {
                    let reason = "it does not show the last message as it was sent";
                    TemplateError::Refused(reason.to_owned())
                })?;
            prompt.truncate(end);
        }
        Ok(prompt)
    }
}

fn message_value(message: &Message, guard: Guard) -> Value {
    let role = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let mut fields = vec![
        ("role", Value::from(role)),
        ("content", Value::from(&*guard.marked(&message.content))),
    ];
    if let Some(reasoning) = &message.reasoning {
        fields.push(("reasoning_content", Value::from(&*guard.marked(reasoning))));
    }
    if !message.tool_calls.is_empty() {
        let calls = message
            .tool_calls
            .iter()
            .map(|call| call_value(call, guard));
        fields.push(("tool_calls", Value::from(calls.collect::<Vec<_>>())));
    }
    Value::from_pairs(fields)
}

fn call_value(call: &ToolCall, guard: Guard) -> Value {
    let function = context! {
        name => guard.marked(&call.name),
        arguments => python::from_fields(&call.arguments, guard),
    };
    context! { type => "function", function => function }
}

/// Marks errors of `raise_exception`, whose text is the template author's, for [`refusal`].
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

fn raise_exception(message: String, _: Rest<Value>, _: Kwargs) -> Result<Value, minijinja::Error> {
    let error = minijinja::Error::new(ErrorKind::InvalidOperation, "the template raised");
    Err(error.with_source(Refusal(message)))
}

/// The text given to `raise_exception`, if that is what `error` comes from.
fn refusal(error: &minijinja::Error) -> Option<String> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(Refusal(reason)) = error.downcast_ref() {
            return Some(reason.clone());
        }
        source = error.source();
    }
    None
}
