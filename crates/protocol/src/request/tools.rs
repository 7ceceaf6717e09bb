//! Declared tools and the choice among them.

use std::collections::HashSet;

use serde_json::Value;

use super::Features;
use super::constraint::check_schema;
use crate::error::{ApiError, clipped};
use crate::fields::Fields;

const MAX_TOOLS: usize = 1024;
const MAX_NAME_CHARS: usize = 128;

/// A function that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Name of the function.
    pub name: String,
    /// JSON schema of the arguments; null means that there are none declared.
    pub parameters: Value,
    /// Arguments have to follow the schema.
    pub strict: bool,
    /// The whole tool object in OpenAI's form, which is what the chat template shows.
    pub definition: Value,
}

/// Whether the model may call tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    Auto,
    /// At least one call; which ones is in the request's constraint.
    Required,
    /// No calls; tools are left out of the prompt.
    None,
}

/// Functions that calls are held to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Forced {
    pub(crate) names: Vec<String>,
    pub(crate) required: bool,
}

/// Tools of a request, with remarks on them.
#[derive(Debug, Default)]
pub(crate) struct Tools {
    pub(crate) functions: Vec<Tool>,
    pub(crate) notices: Vec<String>,
    seen: HashSet<String>,
}

impl Tools {
    /// Adds a function; two of one name are a 400 at `name_path`.
    pub(crate) fn add(&mut self, tool: Tool, name_path: &str) -> Result<(), ApiError> {
        if !self.seen.insert(tool.name.clone()) {
            let message = format!("tools has two functions with the name {:?}", tool.name);
            return Err(ApiError::invalid_value(name_path, message));
        }
        self.functions.push(tool);
        Ok(())
    }

    /// The entries of `tools`; absent, null and `[]` are the same.
    pub(crate) fn entries<'a>(body: &Fields<'a>) -> Result<Vec<Fields<'a>>, ApiError> {
        let tools = body.objects("tools")?;
        if tools.len() > MAX_TOOLS {
            let count = tools.len();
            let message = format!("tools has {count} entries; the limit is {MAX_TOOLS}");
            return Err(ApiError::invalid_value("tools", message));
        }
        Ok(tools)
    }
}

/// Reads `tools` in chat's form, `{"type": "function", "function": {…}}`.
pub(crate) fn read_tools(body: &Fields, features: &Features) -> Result<Tools, ApiError> {
    let mut tools = Tools::default();
    for fields in Tools::entries(body)? {
        let kind = fields.string("type")?.unwrap_or("function");
        if kind != "function" {
            let path = fields.path_of("type");
            let kind = clipped(&format!("{kind:?}"));
            let message = format!("{path} is {kind}; only tools of type \"function\" are known");
            return Err(ApiError::invalid_value(&path, message));
        }
        let function = fields
            .object("function")?
            .ok_or_else(|| ApiError::missing(&fields.path_of("function")))?;
        let name = function.required_string("name")?;
        let name_path = function.path_of("name");
        check_tool_name(name, &name_path)?;
        function.string("description")?;
        let (parameters, strict) =
            read_schema(&function, "parameters", features, &mut tools.notices)?;
        let tool = Tool {
            name: name.to_owned(),
            parameters,
            strict,
            definition: fields.to_value(),
        };
        tools.add(tool, &name_path)?;
    }
    Ok(tools)
}

/// Schema of a function's arguments, null if there is none, and whether it is strict.
pub(crate) fn read_schema(
    function: &Fields,
    name: &str,
    features: &Features,
    notices: &mut Vec<String>,
) -> Result<(Value, bool), ApiError> {
    let path = function.path_of(name);
    let schema = match function.union(name, &["object", "null"]) {
        None => Value::Null,
        Some(schema @ Value::Object(_)) => schema.clone(),
        Some(other) => {
            let expected = "an object (a JSON schema)";
            return Err(ApiError::wrong_type(&path, expected, other));
        }
    };
    let strict = function.switch("strict")? == Some(true);
    if strict && !features.forced_calls {
        notices.push(format!("{path}: strict is not enforced"));
    }
    let strict = strict && features.forced_calls;
    if strict && !schema.is_null() {
        check_schema(&schema, &path)?;
    }
    Ok((schema, strict))
}

/// Names go into the prompt's markup, so line ends and angle brackets are out.
pub(crate) fn check_tool_name(name: &str, path: &str) -> Result<(), ApiError> {
    let legal = |c: char| c.is_alphanumeric() || "_-./:".contains(c);
    if name.is_empty() || name.chars().count() > MAX_NAME_CHARS || !name.chars().all(legal) {
        let shown = clipped(&format!("{name:?}"));
        let message = format!(
            "{path} must be 1 to {MAX_NAME_CHARS} letters, digits or any of _ - . / :, but is {shown}"
        );
        return Err(ApiError::invalid_value(path, message));
    }
    Ok(())
}

/// Reads `tool_choice` in the words and objects of all surfaces.
pub(crate) fn read_tool_choice(
    body: &Fields,
    tools: &[Tool],
    features: &Features,
) -> Result<(ToolChoice, Option<Forced>), ApiError> {
    const PARAM: &str = "tool_choice";
    let Some(choice) = body.union(PARAM, &["string", "object", "null"]) else {
        return Ok((ToolChoice::Auto, None));
    };
    let all = || tools.iter().map(|tool| tool.name.clone()).collect();
    let forced = match choice {
        Value::String(word) => match word.as_str() {
            "auto" => return Ok((ToolChoice::Auto, None)),
            "none" => return Ok((ToolChoice::None, None)),
            "required" | "any" => Forced {
                names: all(),
                required: true,
            },
            other => return Err(unknown_choice(other)),
        },
        Value::Object(_) => {
            let fields = body.child(choice, PARAM)?;
            match fields.string("type")?.unwrap_or("function") {
                "auto" => return Ok((ToolChoice::Auto, None)),
                "none" => return Ok((ToolChoice::None, None)),
                "any" | "required" => Forced {
                    names: all(),
                    required: true,
                },
                "allowed_tools" => read_allowed(&fields)?,
                "function" | "tool" | "custom" => Forced {
                    names: vec![named(&fields)?.to_owned()],
                    required: true,
                },
                other => return Err(unknown_choice(other)),
            }
        }
        other => return Err(ApiError::wrong_type(PARAM, "a string or an object", other)),
    };
    if tools.is_empty() {
        let message = "tool_choice asks for a call, but the request declares no tools";
        return Err(ApiError::invalid_value(PARAM, message));
    }
    let undeclared = |name: &&String| !tools.iter().any(|tool| tool.name == **name);
    if let Some(name) = forced.names.iter().find(undeclared) {
        let name = clipped(&format!("{name:?}"));
        let message = format!("tool_choice names {name}, which tools does not declare");
        return Err(ApiError::invalid_value(PARAM, message));
    }
    if !features.forced_calls {
        let message = "forcing a tool call is not supported; use \"auto\" or \"none\"";
        return Err(ApiError::unsupported_parameter(PARAM, message));
    }
    let choice = match forced.required {
        true => ToolChoice::Required,
        false => ToolChoice::Auto,
    };
    Ok((choice, Some(forced)))
}

fn unknown_choice(choice: &str) -> ApiError {
    let message = format!(
        "tool_choice must be \"auto\", \"none\", \"required\" or an object that names a function, but is {}",
        clipped(&format!("{choice:?}"))
    );
    ApiError::invalid_value("tool_choice", message)
}

/// Name in `{"type":"function","function":{"name":…}}` or in the flat forms of other surfaces.
fn named<'a>(choice: &Fields<'a>) -> Result<&'a str, ApiError> {
    match choice.object("function")? {
        Some(function) => function.required_string("name"),
        None => choice.required_string("name"),
    }
}

/// `{"type":"allowed_tools","mode":…,"tools":[…]}`, also with the inner part in an object of its
/// own.
fn read_allowed(choice: &Fields) -> Result<Forced, ApiError> {
    let inner = choice.object("allowed_tools")?;
    let fields = inner.as_ref().unwrap_or(choice);
    let required = fields.word("mode", &["auto", "required"])? == Some("required");
    let tools = fields.objects("tools")?;
    let names: Vec<String> = tools
        .iter()
        .map(|tool| named(tool).map(str::to_owned))
        .collect::<Result<_, _>>()?;
    if names.is_empty() {
        let path = fields.path_of("tools");
        return Err(ApiError::invalid_value(&path, format!("{path} is empty")));
    }
    Ok(Forced { names, required })
}
