//! Calls of tools in the model's own markup, as a grammar.
//!
//! A call is `<tool_call>⏎<function=NAME>⏎`, for each argument `<parameter=KEY>⏎VALUE⏎</parameter>⏎`,
//! and `</function>⏎</tool_call>`. Strings stand as they are, everything else as JSON.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use crate::rule::{Rule, json_expression, literal};
use crate::vocabulary::Vocabulary;
use crate::{Error, nesting};

/// What calls are held to.
#[derive(Clone, Debug, PartialEq)]
pub struct Calls {
    /// Functions that may be called, at least one.
    pub functions: Vec<Function>,
    /// The output is nothing but calls; without, it is free text, perhaps with calls at its end.
    pub required: bool,
    /// More than one call.
    pub parallel: bool,
    /// In place of free text: an answer held to this rule, or else calls.
    pub answer: Option<Box<Rule>>,
}

/// A function with its arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// JSON schema of the arguments; null declares none.
    pub parameters: Value,
    /// Arguments keep to the schema in every word. Without, what cannot be enforced is left out.
    pub strict: bool,
}

/// Longest chain of references.
const MAX_HOPS: usize = 16;

impl Calls {
    /// Whether any function is strict.
    pub(crate) fn strict(&self) -> bool {
        self.functions.iter().any(|function| function.strict)
    }

    pub(crate) fn to_lark(&self, vocabulary: &Vocabulary, relaxed: bool) -> Result<String, Error> {
        if self.functions.is_empty() {
            return Err(Error::Rule("no function may be called".to_owned()));
        }
        let tag = |tag: &str| match vocabulary.has_markup(tag) {
            true => tag.to_owned(),
            false => literal(tag),
        };
        let calls = match self.parallel {
            true => "call (\"\\n\" call)*",
            false => "call",
        };
        let mut lark = match (&self.answer, self.required) {
            (_, true) => format!("start: {calls}\n"),
            (Some(rule), false) => {
                format!("start: answer | {calls}\nanswer: {}\n", rule.expression()?)
            }
            (None, false) => format!("start: TEXT ({calls})?\nTEXT: /(?s:.*)/\n"),
        };
        let names: Vec<String> = (0..self.functions.len()).map(|i| format!("f{i}")).collect();
        let functions = names.join(" | ");
        let (open, close) = (tag("<tool_call>"), tag("</tool_call>"));
        let _ = writeln!(
            lark,
            "call: {open} ({functions}) \"</function>\\n\" {close}"
        );
        lark.push_str("FREE: /(?s:.*)/ & ~/(?s:.*)<\\/parameter>(?s:.*)/\n");
        let end = literal(PARAMETER_END);
        let _ = writeln!(lark, "free[suffix={end}]: FREE");
        let _ = writeln!(
            lark,
            "any: \"<parameter=\" /[^>\\n]{{1,128}}/ \">\\n\" free"
        );
        for (name, function) in names.iter().zip(&self.functions) {
            lark.push_str(&function.to_lark(name, relaxed && !function.strict)?);
        }
        Ok(lark)
    }
}

const PARAMETER_END: &str = "\n</parameter>\n";

impl Function {
    /// Rules of the function under the name `rule`.
    fn to_lark(&self, rule: &str, relaxed: bool) -> Result<String, Error> {
        let head = literal(&format!("\n<function={}>\n", self.name));
        let root = &self.parameters;
        let arguments = resolve(root, root);
        let Some(properties) = arguments.get("properties").and_then(Value::as_object) else {
            let takes_any = !root.is_null() && !closed(arguments);
            let any = if takes_any { " any*" } else { "" };
            return Ok(format!("{rule}: {head}{any}\n"));
        };
        let required: Vec<&str> = arguments
            .get("required")
            .and_then(Value::as_array)
            .map(|names| names.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        if let Some(name) = required
            .iter()
            .find(|name| !properties.contains_key(**name))
            && self.strict
        {
            let message = format!("{}: {name:?} is required but not declared", self.name);
            return Err(Error::Rule(message));
        }
        let mut line = format!("{rule}: {head}");
        let mut values = String::new();
        for (index, (key, schema)) in properties.iter().enumerate() {
            let is_required = required.contains(&key.as_str());
            if key.is_empty() || key.contains(['>', '\n']) {
                if is_required || self.strict {
                    let message = format!("{}: no call can spell the name {key:?}", self.name);
                    return Err(Error::Rule(message));
                }
                continue;
            }
            let value = format!("{rule}v{index}");
            let optional = if is_required { "" } else { "?" };
            let _ = write!(line, " {value}{optional}");
            let start = literal(&format!("<parameter={key}>\n"));
            let mut parameter = Parameter {
                root,
                strict: self.strict,
                rule: value.clone(),
                terminals: String::new(),
            };
            let forms = match relaxed {
                true => vec!["free".to_owned()],
                false => parameter.forms(schema)?,
            };
            let _ = writeln!(values, "{value}: {start} ({})", forms.join(" | "));
            values.push_str(&parameter.terminals);
        }
        Ok(format!("{line}\n{values}"))
    }
}

/// Whether a schema without properties allows none.
fn closed(schema: &Value) -> bool {
    schema.get("additionalProperties") == Some(&Value::Bool(false))
}

/// The schema that a reference leads to.
fn resolve<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let mut schema = schema;
    for _ in 0..MAX_HOPS {
        let target = schema
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|text| text.strip_prefix('#'))
            .and_then(|pointer| root.pointer(pointer));
        match target {
            Some(target) => schema = target,
            None => break,
        }
    }
    schema
}

/// The value of one parameter under way.
struct Parameter<'a> {
    root: &'a Value,
    strict: bool,
    rule: String,
    /// Definitions that the forms use.
    terminals: String,
}

impl Parameter<'_> {
    /// Ways to write a value, its end included.
    fn forms(&mut self, schema: &Value) -> Result<Vec<String>, Error> {
        let mut forms = Vec::new();
        self.collect(schema, &mut forms, 0)?;
        forms.dedup();
        // Free text covers every other form.
        match forms.is_empty() || forms.iter().any(|form| form == "free") {
            true => Ok(vec!["free".to_owned()]),
            false => Ok(forms),
        }
    }

    fn collect(
        &mut self,
        schema: &Value,
        forms: &mut Vec<String>,
        depth: usize,
    ) -> Result<(), Error> {
        let schema = resolve(schema, self.root);
        let Value::Object(words) = schema else {
            forms.push("free".to_owned());
            return Ok(());
        };
        if let Some(values) = listed(words) {
            forms.extend(values.iter().map(written));
            return Ok(());
        }
        let branches = ["anyOf", "oneOf"].iter().find_map(|word| words.get(*word));
        if let Some(branches) = branches.and_then(Value::as_array)
            && depth < MAX_HOPS
        {
            return branches
                .iter()
                .try_for_each(|branch| self.collect(branch, forms, depth + 1));
        }
        let kinds: Vec<&str> = match words.get("type") {
            Some(Value::String(kind)) => vec![kind],
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
            _ if words.contains_key("properties") => vec!["object"],
            _ if words.contains_key("items") => vec!["array"],
            _ => vec!["string"],
        };
        for kind in kinds {
            let form = self.form(kind, words)?;
            forms.push(form);
        }
        if words.get("nullable") == Some(&Value::Bool(true)) {
            forms.push(literal(&format!("null{PARAMETER_END}")));
        }
        Ok(())
    }

    /// A value of one type.
    fn form(&mut self, kind: &str, words: &Map<String, Value>) -> Result<String, Error> {
        let end = literal(PARAMETER_END);
        match kind.to_ascii_lowercase().as_str() {
            "null" | "none" => Ok(literal(&format!("null{PARAMETER_END}"))),
            "boolean" | "bool" => Ok(format!("/true|false|True|False/ {end}")),
            "integer" | "int" | "number" | "float" | "object" | "dict" | "array" | "list" => {
                let schema = self.alone(kind, words);
                Ok(format!("{} {end}", json_expression(&schema, self.strict)?))
            }
            "string" | "str" => self.text(words),
            _ => Ok("free".to_owned()),
        }
    }

    /// The schema with this type only, able to stand by itself.
    fn alone(&self, kind: &str, words: &Map<String, Value>) -> Value {
        let name = match kind.to_ascii_lowercase().as_str() {
            "int" => "integer",
            "float" => "number",
            "dict" => "object",
            "list" => "array",
            _ => kind,
        };
        let mut alone = words.clone();
        alone.insert("type".to_owned(), json!(name));
        for word in ["$defs", "definitions"] {
            if let Some(definitions) = self.root.get(word) {
                alone.insert(word.to_owned(), definitions.clone());
            }
        }
        Value::Object(alone)
    }

    /// Text as it stands, narrowed by pattern and length.
    fn text(&mut self, words: &Map<String, Value>) -> Result<String, Error> {
        let mut parts = Vec::new();
        if let Some(pattern) = words.get("pattern").and_then(Value::as_str) {
            nesting::check(pattern)?;
            let pattern = llguidance::regex_to_lark(&whole(pattern), "dw");
            parts.push(format!("/{pattern}/"));
        }
        let count = |word: &str| words.get(word).and_then(Value::as_u64);
        let (least, most) = (count("minLength").unwrap_or(0), count("maxLength"));
        if least > 0 || most.is_some() {
            let most = most.map_or(String::new(), |most| most.to_string());
            parts.push(format!("/(?s:.){{{least},{most}}}/"));
        }
        if parts.is_empty() {
            return Ok("free".to_owned());
        }
        let (terminal, rule) = (self.rule.to_uppercase(), format!("{}t", self.rule));
        let end = literal(PARAMETER_END);
        let _ = writeln!(self.terminals, "{terminal}: FREE & {}", parts.join(" & "));
        let _ = writeln!(self.terminals, "{rule}[suffix={end}]: {terminal}");
        Ok(rule)
    }
}

/// Values of `enum` or `const`.
fn listed(words: &Map<String, Value>) -> Option<Vec<Value>> {
    if let Some(value) = words.get("const") {
        return Some(vec![value.clone()]);
    }
    let values = words.get("enum")?.as_array()?;
    (!values.is_empty()).then(|| values.clone())
}

/// A value as a call writes it, its end included.
fn written(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    literal(&(text + PARAMETER_END))
}

/// A schema's pattern, which matches anywhere, as one of the whole text.
fn whole(pattern: &str) -> String {
    let (head, pattern) = match pattern.strip_prefix('^') {
        Some(rest) => ("", rest),
        None => ("(?s:.*)", pattern),
    };
    let escaped = pattern.ends_with("\\$");
    let (pattern, tail) = match pattern.strip_suffix('$') {
        Some(rest) if !escaped => (rest, ""),
        _ => (pattern, "(?s:.*)"),
    };
    format!("{head}(?:{pattern}){tail}")
}
