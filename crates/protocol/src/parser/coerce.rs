//! From a parameter's text to JSON, by the types that its schema allows.
//! Nothing is evaluated: text that is no literal of an allowed type stays a string.

use serde_json::Value;

use super::schema::JsonType;
use crate::json_text;

/// JSON text for a complete value: null where allowed, then the types in their order.
pub(super) fn coerce(text: &str, types: &[JsonType]) -> String {
    let literal = literal_part(text, types);
    if types.contains(&JsonType::Null) && is_null(literal) {
        return "null".to_owned();
    }
    for kind in types {
        let coerced = match kind {
            JsonType::Null => None,
            JsonType::Boolean => boolean(literal),
            JsonType::Integer => integer(literal),
            JsonType::Number => number(literal),
            JsonType::Object | JsonType::Array => container(literal),
            JsonType::String => break,
        };
        if let Some(json) = coerced {
            return json;
        }
    }
    json_text::string(text)
}

/// Is it certain that text which starts like this becomes a string, whatever follows?
pub(super) fn surely_string(text: &str, types: &[JsonType]) -> bool {
    let literal = literal_start(text, types);
    let word = literal.trim_end();
    let starts = |words: &[&str]| {
        let mut beginnings = words.iter().filter_map(|full| full.get(..word.len()));
        beginnings.any(|beginning| beginning.eq_ignore_ascii_case(word))
    };
    if types.contains(&JsonType::Null) && starts(&["null", "none"]) {
        return false;
    }
    let before_string = types.iter().take_while(|kind| **kind != JsonType::String);
    !before_string.into_iter().any(|kind| match kind {
        JsonType::Null | JsonType::String => false,
        JsonType::Boolean => starts(&["true", "false", "0", "1"]),
        JsonType::Integer | JsonType::Number => {
            let mut bytes = word.bytes();
            bytes.all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.' | b'e' | b'E'))
        }
        JsonType::Object | JsonType::Array => literal.is_empty() || literal.starts_with(['{', '[']),
    })
}

/// White space around a literal is no part of it, but it is part of a string.
fn literal_part<'a>(text: &'a str, types: &[JsonType]) -> &'a str {
    if types.first() == Some(&JsonType::String) || only_string_or_null(types) {
        text
    } else {
        text.trim()
    }
}

fn literal_start<'a>(text: &'a str, types: &[JsonType]) -> &'a str {
    if only_string_or_null(types) {
        text
    } else {
        text.trim_start()
    }
}

fn only_string_or_null(types: &[JsonType]) -> bool {
    let mut types = types.iter();
    types.all(|kind| matches!(kind, JsonType::String | JsonType::Null))
}

fn is_null(text: &str) -> bool {
    ["null", "none"]
        .iter()
        .any(|word| text.eq_ignore_ascii_case(word))
}

fn boolean(text: &str) -> Option<String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" => Some("true".to_owned()),
        "false" | "0" => Some("false".to_owned()),
        _ => None,
    }
}

/// A JSON integer with its digits as they are, or an integral number such as `1.0`.
fn integer(text: &str) -> Option<String> {
    let json = number(text)?;
    let digits = json.strip_prefix('-').unwrap_or(&json);
    digits.bytes().all(|b| b.is_ascii_digit()).then_some(json)
}

/// A JSON number; integral ones lose their fraction, `1.0` is `1`.
fn number(text: &str) -> Option<String> {
    /// Above this, neighbouring integers are no longer told apart by a float.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let number: serde_json::Number = serde_json::from_str(text).ok()?;
    let value = number.as_f64().filter(|value| value.is_finite())?;
    let fractional = text.contains(['.', 'e', 'E']);
    if fractional && value.fract() == 0.0 && value.abs() <= EXACT {
        return Some(format!("{}", value as i64));
    }
    Some(text.to_owned())
}

fn container(text: &str) -> Option<String> {
    let value: Value = serde_json::from_str(text).ok()?;
    (value.is_object() || value.is_array()).then(|| json_text::value(&value))
}
