//! Where Python and Rust differ: JSON text, number formats, white space, string methods.

use minijinja::value::{Object, ObjectRepr, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};
use serde_json::{Map, Value as Json};

use super::guard::Guard;
use crate::json_text::write_string;

/// JSON as a template value: keys keep their order, integers of any size keep their digits.
pub(super) fn from_json(json: &Json, guard: Guard) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::String(text) => Value::from(&*guard.marked(text)),
        Json::Array(items) => {
            let items = items.iter().map(|item| from_json(item, guard));
            Value::from(items.collect::<Vec<_>>())
        }
        Json::Object(fields) => from_fields(fields, guard),
        Json::Number(number) => {
            let text = number.to_string();
            if text.contains(['.', 'e', 'E']) {
                Value::from(number.as_f64().unwrap_or(f64::INFINITY))
            } else if let Ok(integer) = text.parse::<i128>() {
                Value::from(integer)
            } else {
                Value::from_object(BigInteger(text))
            }
        }
    }
}

/// The fields of a JSON object as a template value.
pub(super) fn from_fields(fields: &Map<String, Json>, guard: Guard) -> Value {
    let pairs = fields
        .iter()
        .map(|(name, value)| (guard.marked(name).into_owned(), from_json(value, guard)));
    Value::from_pairs(pairs)
}

/// An integer beyond 128 bits, kept as its digits.
#[derive(Debug)]
struct BigInteger(String);

impl Object for BigInteger {
    fn repr(self: &std::sync::Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &std::sync::Arc<Self>, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// `tojson` as transformers defines it: `json.dumps(value, ensure_ascii=False)`.
pub(super) fn to_json_filter(value: &Value) -> Result<Value, Error> {
    let mut text = String::new();
    write_json(value, &mut text)?;
    Ok(Value::from_safe_string(text))
}

fn write_json(value: &Value, out: &mut String) -> Result<(), Error> {
    if let Some(BigInteger(digits)) = value.downcast_object_ref() {
        out.push_str(digits);
        return Ok(());
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number if value.is_integer() => out.push_str(&value.to_string()),
        ValueKind::Number => out.push_str(&float_repr(f64::try_from(value.clone())?)),
        ValueKind::String => write_string(value.as_str().unwrap_or_default(), out),
        ValueKind::Map => {
            out.push('{');
            for (i, name) in value.try_iter()?.enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write_string(&name.to_string(), out);
                out.push_str(": ");
                write_json(&value.get_item(&name)?, out)?;
            }
            out.push('}');
        }
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            for (i, item) in value.try_iter()?.enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write_json(&item, out)?;
            }
            out.push(']');
        }
        kind => {
            let message = format!("a value of kind {kind} has no JSON form");
            return Err(Error::new(ErrorKind::BadSerialization, message));
        }
    }
    Ok(())
}

/// `repr` of a float: the shortest digits that read back the same, with an exponent of at least
/// two digits below 1e-4 and from 1e16 on.
fn float_repr(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific
        .split_once('e')
        .expect("{:e} always writes an exponent: this is a bug");
    let exponent: i32 = exponent
        .parse()
        .expect("{:e} writes an integer exponent: this is a bug");
    if (-4..16).contains(&exponent) {
        let plain = value.to_string();
        if plain.contains('.') {
            plain
        } else {
            plain + ".0"
        }
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{mantissa}e{sign}{:02}", exponent.abs())
    }
}

/// `str.strip`: Python also counts the four information separators as white space.
pub fn python_strip(text: &str) -> &str {
    text.trim_matches(is_python_space)
}

fn is_python_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// `trim`, with Python's idea of white space unless characters are given.
pub(super) fn trim_filter(value: &Value, chars: Option<String>) -> String {
    let text = value.to_string();
    match chars {
        None => python_strip(&text).to_owned(),
        Some(chars) => text.trim_matches(|c| chars.contains(c)).to_owned(),
    }
}

/// Methods of Python's strings, lists and dicts that templates call.
pub(super) fn call_method(
    state: &mut State,
    value: &Value,
    method: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    if let (Some(text), []) = (value.as_str(), arguments) {
        match method {
            "strip" => return Ok(python_strip(text).into()),
            "lstrip" => return Ok(text.trim_start_matches(is_python_space).into()),
            "rstrip" => return Ok(text.trim_end_matches(is_python_space).into()),
            _ => {}
        }
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_in_python() {
        let cases = [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.234_567_890_123_456_8e22, "1.2345678901234568e+22"),
            (1e100, "1e+100"),
            (5e-324, "5e-324"),
        ];
        for (value, text) in cases {
            assert_eq!(float_repr(value), text);
        }
    }

    #[test]
    fn integers_keep_every_digit() {
        let text = format!(
            "[9007199254740993, -18446744073709551617, 1{}]",
            "0".repeat(60)
        );
        let json: Json = serde_json::from_str(&text).unwrap();
        let rendered = to_json_filter(&from_json(&json, Guard { tokens: &[] })).unwrap();
        assert_eq!(rendered.to_string(), text);
    }
}
