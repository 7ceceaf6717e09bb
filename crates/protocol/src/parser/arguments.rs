//! Writes the arguments of a call as JSON text, piece by piece.

use super::coerce::{coerce, surely_string};
use super::schema::JsonType;
use crate::json_text;

/// Writer of one JSON object. A value goes out while it is generated as soon as it is certain to
/// be a string, and when it is complete otherwise.
#[derive(Debug, Default)]
pub(super) struct ArgumentWriter {
    opened: bool,
    key: String,
    types: Vec<JsonType>,
    /// Text of the value that is not out yet.
    text: String,
    in_string: bool,
}

impl ArgumentWriter {
    pub(super) fn begin_value(&mut self, key: &str, types: Vec<JsonType>) {
        self.key = key.to_owned();
        self.types = types;
        self.text.clear();
        self.in_string = false;
    }

    pub(super) fn feed(&mut self, text: &str, out: &mut String) {
        if self.in_string {
            json_text::escape(text, out);
            return;
        }
        self.text.push_str(text);
        if surely_string(&self.text, &self.types) {
            self.write_key(out);
            out.push('"');
            json_text::escape(&std::mem::take(&mut self.text), out);
            self.in_string = true;
        }
    }

    pub(super) fn end_value(&mut self, out: &mut String) {
        if self.in_string {
            out.push('"');
        } else {
            self.write_key(out);
            out.push_str(&coerce(&self.text, &self.types));
        }
        self.in_string = false;
    }

    pub(super) fn end(&mut self, out: &mut String) {
        out.push_str(if self.opened { "}" } else { "{}" });
    }

    fn write_key(&mut self, out: &mut String) {
        out.push_str(if self.opened { ", " } else { "{" });
        self.opened = true;
        out.push_str(&json_text::string(&self.key));
        out.push_str(": ");
    }
}
