//! What the output is held to: `response_format`, vLLM's and llama.cpp's spellings of the same,
//! and forced calls.

use serde_json::{Map, Value, json};

use super::Features;
use super::sampling::read_strings;
use crate::error::{ApiError, clipped};
use crate::fields::Fields;
use crate::surface::Surface;

/// Longest regular expression or grammar.
const MAX_RULE_BYTES: usize = 64 * 1024;
const MAX_CHOICES: usize = 1024;
const MAX_SCHEMA_BYTES: usize = 256 * 1024;
const MAX_SCHEMA_DEPTH: usize = 64;

/// What the output is held to once the thoughts are over.
#[derive(Clone, Debug, PartialEq)]
pub enum Constraint {
    /// Any JSON object.
    JsonObject,
    /// JSON of this schema.
    JsonSchema {
        /// An object, or true for any JSON.
        schema: Value,
        /// Words of the schema that cannot be enforced are an error.
        strict: bool,
    },
    /// Text that a regular expression matches as a whole.
    Regex(String),
    /// Text of a grammar in Lark's or EBNF form.
    Grammar(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// Calls of these functions only, in the model's own markup.
    ToolCall {
        /// Declared names, at least one.
        names: Vec<String>,
        /// At least one call has to come.
        required: bool,
    },
}

/// Reads all spellings of a surface; two constraints at once are a 400.
pub(crate) fn read_format(
    body: &Fields,
    features: &Features,
    surface: Surface,
) -> Result<Option<Constraint>, ApiError> {
    let mut found: Option<(String, Constraint)> = None;
    let mut add = |param: String, constraint: Option<Constraint>| -> Result<(), ApiError> {
        let Some(constraint) = constraint else {
            return Ok(());
        };
        if !features.constraints {
            let message = format!(
                "{param} is not supported: nothing here holds the answer to a format. Ask for it in the messages, or declare a tool."
            );
            return Err(ApiError::unsupported_parameter(root_of(&param), message));
        }
        if let Some((first, _)) = &found {
            let message = format!("{first} and {param} cannot both hold the output");
            return Err(ApiError::invalid_value(&param, message));
        }
        found = Some((param, constraint));
        Ok(())
    };
    let mut typed = |fields: &Fields, name: &str| match fields.object(name)? {
        Some(format) => add(fields.path_of(name), read_typed(&format, features)?),
        None => Ok(()),
    };
    typed(body, "response_format")?;
    if surface == Surface::Responses
        && let Some(text) = body.object("text")?
    {
        text.string("verbosity")?;
        typed(&text, "format")?;
    }
    if surface == Surface::Messages {
        if let Some(config) = body.object("output_config")? {
            // Thoughts of a longer or shorter kind are nothing that the model has learnt.
            config.string("effort")?;
            typed(&config, "format")?;
        }
        typed(body, "output_format")?;
    }
    for (name, kind) in [
        ("guided_json", Kind::Schema),
        ("guided_regex", Kind::Regex),
        ("guided_choice", Kind::Choice),
        ("guided_grammar", Kind::Grammar),
        ("guided_json_object", Kind::Object),
        ("json_schema", Kind::Schema),
        ("regex", Kind::Regex),
        ("ebnf", Kind::Grammar),
        ("grammar", Kind::Grammar),
    ] {
        // Frontends with a field for a rule send it empty, too.
        let is_rule = matches!(kind, Kind::Regex | Kind::Grammar);
        if !(is_rule && body.get(name) == Some(&json!(""))) {
            add(name.to_owned(), kind.read(body, name, features)?)?;
        }
    }
    if let Some(fields) = body.object("structured_outputs")? {
        for (name, kind) in [
            ("json", Kind::Schema),
            ("regex", Kind::Regex),
            ("choice", Kind::Choice),
            ("grammar", Kind::Grammar),
            ("json_object", Kind::Object),
        ] {
            add(fields.path_of(name), kind.read(&fields, name, features)?)?;
        }
        if fields.peek("structural_tag").is_some() {
            let message = "structural_tag is not supported";
            return Err(ApiError::unsupported_parameter(
                "structured_outputs.structural_tag",
                message,
            ));
        }
    }
    Ok(found.map(|(_, constraint)| constraint))
}

/// `{"type": …}` with what belongs to the type.
fn read_typed(format: &Fields, features: &Features) -> Result<Option<Constraint>, ApiError> {
    const TYPES: &[&str] = &[
        "text",
        "json_object",
        "json_schema",
        "regex",
        "grammar",
        "structural_tag",
    ];
    let kind = format
        .word("type", TYPES)?
        .ok_or_else(|| ApiError::missing(&format.path_of("type")))?;
    if kind == "text" {
        return Ok(None);
    }
    let param = format.path();
    if kind == "structural_tag" || !features.constraints {
        let message = format!(
            "{param} {kind:?} is not supported: nothing here holds the answer to such a format. Ask for it in the messages, or declare a tool."
        );
        return Err(ApiError::unsupported_parameter(root_of(param), message));
    }
    match kind {
        "json_object" => match format.get("schema") {
            None => Ok(Some(Constraint::JsonObject)),
            Some(_) => Kind::Schema.read(format, "schema", features),
        },
        "json_schema" => {
            // Responses and messages put the schema beside the type.
            let inner = format.object("json_schema")?;
            let beside = param != "response_format" || format.peek("schema").is_some();
            let fields = match &inner {
                Some(inner) => inner,
                None if beside => format,
                None => return Err(ApiError::missing(&format.path_of("json_schema"))),
            };
            check_name(fields)?;
            let strict = fields.switch("strict")?.unwrap_or(false);
            let schema = fields
                .get("schema")
                .ok_or_else(|| ApiError::missing(&fields.path_of("schema")))?;
            let schema = schema_of(schema, &fields.path_of("schema"))?;
            Ok(Some(Constraint::JsonSchema { schema, strict }))
        }
        "regex" => {
            let name = if format.peek("pattern").is_some() {
                "pattern"
            } else {
                "regex"
            };
            required(format, name, Kind::Regex, features)
        }
        _ => {
            let name = if format.peek("definition").is_some() {
                "definition"
            } else {
                "grammar"
            };
            required(format, name, Kind::Grammar, features)
        }
    }
}

fn required(
    fields: &Fields,
    name: &str,
    kind: Kind,
    features: &Features,
) -> Result<Option<Constraint>, ApiError> {
    match kind.read(fields, name, features)? {
        None => Err(ApiError::missing(&fields.path_of(name))),
        found => Ok(found),
    }
}

fn check_name(fields: &Fields) -> Result<(), ApiError> {
    const MAX_NAME_CHARS: usize = 64;
    fields.string("description")?;
    let name = fields.string("name")?.unwrap_or_default();
    if name.chars().count() > MAX_NAME_CHARS {
        let path = fields.path_of("name");
        let message = format!("{path} must have at most {MAX_NAME_CHARS} characters");
        return Err(ApiError::invalid_value(&path, message));
    }
    Ok(())
}

/// A field that holds one kind of constraint.
#[derive(Clone, Copy)]
enum Kind {
    Schema,
    Regex,
    Choice,
    Grammar,
    /// A switch that can only be on.
    Object,
}

impl Kind {
    fn read(
        self,
        fields: &Fields,
        name: &str,
        features: &Features,
    ) -> Result<Option<Constraint>, ApiError> {
        let path = fields.path_of(name);
        if !features.constraints {
            // Whatever it holds: there is no need to judge what cannot be served.
            return Ok(fields.get(name).map(|_| Constraint::JsonObject));
        }
        match self {
            Self::Schema => {
                let value = fields.union(name, &["object", "string", "boolean", "null"]);
                let schema = value.map(|value| schema_of(value, &path)).transpose()?;
                Ok(schema.map(|schema| Constraint::JsonSchema {
                    schema,
                    strict: false,
                }))
            }
            Self::Regex => Ok(rule(fields, name)?.map(Constraint::Regex)),
            Self::Grammar => Ok(rule(fields, name)?.map(Constraint::Grammar)),
            Self::Choice => {
                let Some(choices) = read_strings(fields, name, MAX_CHOICES)? else {
                    return Ok(None);
                };
                if choices.is_empty() || choices.iter().any(String::is_empty) {
                    let message = format!("{path} must hold texts, none of them empty");
                    return Err(ApiError::invalid_value(&path, message));
                }
                Ok(Some(Constraint::Choice(choices)))
            }
            Self::Object => match fields.boolean(name)? {
                None => Ok(None),
                Some(true) => Ok(Some(Constraint::JsonObject)),
                Some(false) => Err(ApiError::invalid_value(
                    &path,
                    format!("{path} can only be true; leave it out for free text"),
                )),
            },
        }
    }
}

fn rule(fields: &Fields, name: &str) -> Result<Option<String>, ApiError> {
    let Some(text) = fields.string(name)? else {
        return Ok(None);
    };
    let path = fields.path_of(name);
    if text.trim().is_empty() || text.len() > MAX_RULE_BYTES {
        let message = format!(
            "{path} must have 1 to {MAX_RULE_BYTES} bytes, but has {}",
            text.len()
        );
        return Err(ApiError::invalid_value(&path, message));
    }
    Ok(Some(text.to_owned()))
}

/// A schema from itself or from its JSON text.
fn schema_of(value: &Value, path: &str) -> Result<Value, ApiError> {
    let schema = match value {
        Value::String(text) => serde_json::from_str(text).map_err(|error| {
            ApiError::invalid_value(path, format!("{path} is not JSON: {error}"))
        })?,
        other => other.clone(),
    };
    check_schema(&schema, path)?;
    Ok(schema)
}

/// Finds what no compiler of schemas could make sense of: a wrong shape, an unknown type, a
/// reference to nowhere, or more than is reasonable.
pub(crate) fn check_schema(schema: &Value, path: &str) -> Result<(), ApiError> {
    if !matches!(schema, Value::Object(_) | Value::Bool(true)) {
        return Err(ApiError::wrong_type(path, "a JSON schema", schema));
    }
    let size = schema.to_string().len();
    if size > MAX_SCHEMA_BYTES {
        let message = format!("{path} has {size} bytes; the limit is {MAX_SCHEMA_BYTES}");
        return Err(ApiError::invalid_value(path, message));
    }
    check_subschema(schema, schema, 0)
        .map_err(|reason| ApiError::invalid_value(path, format!("{path}: {reason}")))
}

fn check_subschema(schema: &Value, root: &Value, depth: usize) -> Result<(), String> {
    const TYPES: &[&str] = &[
        "null", "boolean", "object", "array", "number", "string", "integer",
    ];
    if depth > MAX_SCHEMA_DEPTH {
        return Err(format!("nested deeper than {MAX_SCHEMA_DEPTH} levels"));
    }
    let words = match schema {
        Value::Object(words) => words,
        Value::Bool(_) => return Ok(()),
        other => return Err(format!("a schema is {}", clipped(&other.to_string()))),
    };
    let known = |name: &Value| name.as_str().is_some_and(|name| TYPES.contains(&name));
    let type_is_known = match words.get("type") {
        None => true,
        Some(Value::Array(names)) => !names.is_empty() && names.iter().all(known),
        Some(name) => known(name),
    };
    if !type_is_known {
        let shown = clipped(&words["type"].to_string());
        return Err(format!("type {shown} is not one of {}", TYPES.join(", ")));
    }
    if let Some(reference) = words.get("$ref") {
        let target = reference.as_str().and_then(|text| text.strip_prefix('#'));
        if target.and_then(|pointer| root.pointer(pointer)).is_none() {
            return Err(format!(
                "$ref {} leads nowhere",
                clipped(&reference.to_string())
            ));
        }
    }
    for word in ["pattern", "format"] {
        if words.get(word).is_some_and(|value| !value.is_string()) {
            return Err(format!("{word} must be a string"));
        }
    }
    if words.get("items").is_some_and(Value::is_array) {
        return Err("items must be one schema; use prefixItems for positions".to_owned());
    }
    children(words)?
        .into_iter()
        .try_for_each(|child| check_subschema(child, root, depth + 1))
}

/// Schemas directly inside a schema.
fn children(words: &Map<String, Value>) -> Result<Vec<&Value>, String> {
    let mut children = Vec::new();
    for word in [
        "items",
        "additionalProperties",
        "not",
        "contains",
        "propertyNames",
    ] {
        children.extend(words.get(word));
    }
    for word in ["anyOf", "oneOf", "allOf", "prefixItems"] {
        match words.get(word) {
            None => {}
            Some(Value::Array(list)) if !list.is_empty() => children.extend(list),
            Some(_) => return Err(format!("{word} must be a list of schemas")),
        }
    }
    for word in ["properties", "patternProperties", "$defs", "definitions"] {
        match words.get(word) {
            None => {}
            Some(Value::Object(map)) => children.extend(map.values()),
            Some(_) => return Err(format!("{word} must be an object of schemas")),
        }
    }
    match words.get("enum") {
        Some(Value::Array(values)) if !values.is_empty() => Ok(children),
        None => Ok(children),
        Some(_) => Err("enum must be a list of values".to_owned()),
    }
}

/// The field of the body in which `param` lies.
fn root_of(param: &str) -> &str {
    param.split('.').next().unwrap_or(param)
}
