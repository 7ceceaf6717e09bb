//! JSON text in the form of Python's `json.dumps(value, ensure_ascii=False)`, which is what the
//! model has been trained on: `", "` and `": "` between items, nothing escaped without need.

use std::fmt::Write;

use serde_json::Value;

/// Text of any value. Numbers keep their digits.
pub(crate) fn value(json: &Value) -> String {
    let mut out = String::new();
    write_value(json, &mut out);
    out
}

/// A string in quotes.
pub(crate) fn string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    write_string(text, &mut out);
    out
}

/// A string in quotes.
pub(crate) fn write_string(text: &str, out: &mut String) {
    out.push('"');
    escape(text, out);
    out.push('"');
}

/// The inside of a string: the two-letter escapes, `\u00XX` for other control characters.
pub(crate) fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' => {
                write!(out, "\\u{:04x}", u32::from(c)).expect("a String takes all: this is a bug");
            }
            c => out.push(c),
        }
    }
}

fn write_value(json: &Value, out: &mut String) {
    match json {
        Value::String(text) => write_string(text, out),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write_value(item, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push('{');
            for (i, (name, item)) in fields.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write_string(name, out);
                out.push_str(": ");
                write_value(item, out);
            }
            out.push('}');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}
