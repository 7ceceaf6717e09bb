//! Declared tools and the choice among them (API section 1.9).

use std::collections::HashSet;

use serde_json::Value;

use super::fields::Fields;
use crate::error::ApiError;

const MAX_TOOLS: usize = 1024;
const MAX_NAME_CHARS: usize = 128;

/// A function that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Name of the function.
    pub name: String,
    /// JSON schema of the arguments; null means that there are none declared.
    pub parameters: Value,
    /// The whole tool object as the client sent it, which is what the chat template shows.
    pub definition: Value,
}

/// Whether the model may call tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    Auto,
    /// No calls; tools are left out of the prompt.
    None,
}

/// Reads `tools`; absent, null and `[]` are the same.
pub(crate) fn read_tools(body: &Fields, notices: &mut Vec<String>) -> Result<Vec<Tool>, ApiError> {
    let list = body.list("tools")?.unwrap_or_default();
    if list.len() > MAX_TOOLS {
        let message = format!("tools has {} entries; the limit is {MAX_TOOLS}", list.len());
        return Err(ApiError::invalid_value("tools", message));
    }
    let mut seen = HashSet::new();
    let mut tools = Vec::with_capacity(list.len());
    for (i, definition) in list.iter().enumerate() {
        let tool = read_tool(definition, &format!("tools[{i}]"), notices)?;
        if !seen.insert(tool.name.clone()) {
            let message = format!("tools has two functions with the name {:?}", tool.name);
            return Err(ApiError::invalid_value(
                &format!("tools[{i}].function.name"),
                message,
            ));
        }
        tools.push(tool);
    }
    Ok(tools)
}

fn read_tool(definition: &Value, path: &str, notices: &mut Vec<String>) -> Result<Tool, ApiError> {
    let fields = Fields::of(definition, path)?;
    let kind = fields.string("type")?.unwrap_or("function");
    if kind != "function" {
        let message = format!("{path}.type is {kind:?}; only tools of type \"function\" are known");
        return Err(ApiError::invalid_value(&fields.path_of("type"), message));
    }
    let function = fields
        .object("function")?
        .ok_or_else(|| ApiError::missing(&fields.path_of("function")))?;
    let name_path = function.path_of("name");
    let name = function
        .string("name")?
        .ok_or_else(|| ApiError::missing(&name_path))?;
    let legal = |c: char| c.is_alphanumeric() || "_-./:".contains(c);
    if name.is_empty() || name.chars().count() > MAX_NAME_CHARS || !name.chars().all(legal) {
        let message = format!(
            "{name_path} must be 1 to {MAX_NAME_CHARS} letters, digits or any of _ - . / :, but is {}",
            crate::error::clipped(&format!("{name:?}"))
        );
        return Err(ApiError::invalid_value(&name_path, message));
    }
    function.string("description")?;
    if function.boolean("strict")? == Some(true) {
        notices.push(format!("{path}: strict is not enforced"));
    }
    let parameters = match function.get("parameters") {
        None => Value::Null,
        Some(schema @ Value::Object(_)) => schema.clone(),
        Some(other) => {
            let path = function.path_of("parameters");
            return Err(ApiError::wrong_type(
                &path,
                "an object (a JSON schema)",
                other,
            ));
        }
    };
    Ok(Tool {
        name: name.to_owned(),
        parameters,
        definition: definition.clone(),
    })
}

/// Reads `tool_choice`. Forcing a call is refused, since nothing would enforce it.
pub(crate) fn read_tool_choice(body: &Fields, tools: &[Tool]) -> Result<ToolChoice, ApiError> {
    const PARAM: &str = "tool_choice";
    let Some(choice) = body.get(PARAM) else {
        return Ok(ToolChoice::Auto);
    };
    let forced_name = match choice {
        Value::String(word) => match word.as_str() {
            "auto" => return Ok(ToolChoice::Auto),
            "none" => return Ok(ToolChoice::None),
            "required" | "any" => None,
            other => {
                let message = format!(
                    "tool_choice must be \"auto\", \"none\", \"required\" or an object, but is {}",
                    crate::error::clipped(&format!("{other:?}"))
                );
                return Err(ApiError::invalid_value(PARAM, message));
            }
        },
        Value::Object(object) => forced_name(&Fields::new(object, PARAM))?,
        other => return Err(ApiError::wrong_type(PARAM, "a string or an object", other)),
    };
    if tools.is_empty() {
        let message = "tool_choice asks for a call, but the request declares no tools";
        return Err(ApiError::invalid_value(PARAM, message));
    }
    if let Some(name) = forced_name
        && !tools.iter().any(|tool| tool.name == name)
    {
        let message = format!("tool_choice names {name:?}, which tools does not declare");
        return Err(ApiError::invalid_value(PARAM, message));
    }
    let message = "forcing a tool call is not supported; use \"auto\" or \"none\"";
    Err(ApiError::unsupported_parameter(PARAM, message))
}

/// Name in `{"type":"function","function":{"name":…}}` or in the flat forms of other surfaces.
fn forced_name<'a>(choice: &Fields<'a>) -> Result<Option<&'a str>, ApiError> {
    match choice.object("function")? {
        Some(function) => function.string("name"),
        None => choice.string("name"),
    }
}
