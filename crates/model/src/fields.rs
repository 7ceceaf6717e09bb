use std::fmt::Display;

use serde_json::{Map, Value};

use crate::{Error, Result};

/// A JSON object of a config whose errors name file and field. `null` counts as absent.
#[derive(Clone)]
pub(crate) struct Fields<'a> {
    file: &'a str,
    path: String,
    map: &'a Map<String, Value>,
}

/// Parses a config file.
pub(crate) fn parse(file: &str, text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|e| Error::Text {
        file: file.to_string(),
        message: format!("not valid JSON: {e}"),
    })
}

impl<'a> Fields<'a> {
    pub(crate) fn root(file: &'a str, value: &'a Value) -> Result<Self> {
        let map = value.as_object().ok_or_else(|| Error::Text {
            file: file.to_string(),
            message: "is not a JSON object".to_string(),
        })?;
        Ok(Self {
            file,
            path: String::new(),
            map,
        })
    }

    fn name(&self, key: &str) -> String {
        format!("{}{key}", self.path)
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.map.keys().map(String::as_str)
    }

    /// An error about `key`.
    pub(crate) fn error(&self, key: &str, message: impl Display) -> Error {
        Error::Config {
            file: self.file.to_string(),
            field: self.name(key),
            message: message.to_string(),
        }
    }

    /// `key` is missing, and the target would tell it.
    pub(crate) fn needs_target(&self, key: &str) -> Error {
        Error::NeedsTarget {
            file: self.file.to_string(),
            field: self.name(key),
        }
    }

    /// The refusal of `key` with its value.
    pub(crate) fn unsupported(&self, key: &str, why: &str) -> Error {
        let value = self.get(key).map_or("null".to_string(), shorten);
        Error::Unsupported {
            file: self.file.to_string(),
            what: format!("{} = {value}", self.name(key)),
            why: why.to_string(),
        }
    }

    fn read<T>(
        &self,
        key: &str,
        kind: &str,
        to: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        self.get(key)
            .map(|value| {
                to(value).ok_or_else(|| {
                    self.error(key, format!("is {}, expected {kind}", shorten(value)))
                })
            })
            .transpose()
    }

    fn required<T>(&self, key: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| self.error(key, "is missing"))
    }

    pub(crate) fn object(&self, key: &str) -> Result<Option<Self>> {
        let map = self.read(key, "an object", Value::as_object)?;
        Ok(map.map(|map| Self {
            file: self.file,
            path: format!("{}.", self.name(key)),
            map,
        }))
    }

    /// A positive count.
    pub(crate) fn opt_size(&self, key: &str) -> Result<Option<usize>> {
        self.read(key, "a positive whole number", |v| {
            whole(v).filter(|&n| n > 0)
        })
    }

    /// A positive count that has to be there.
    pub(crate) fn size(&self, key: &str) -> Result<usize> {
        let value = self.opt_size(key)?;
        self.required(key, value)
    }

    /// A whole number, 0 allowed.
    pub(crate) fn opt_count(&self, key: &str) -> Result<Option<usize>> {
        self.read(key, "a whole number", whole)
    }

    pub(crate) fn opt_id(&self, key: &str) -> Result<Option<u32>> {
        self.read(key, "a token id", id)
    }

    /// One token id or a list of them.
    pub(crate) fn ids(&self, key: &str) -> Result<Option<Vec<u32>>> {
        self.read(key, "a token id or a list of them", |v| match v {
            Value::Array(list) => list.iter().map(id).collect(),
            one => Some(vec![id(one)?]),
        })
    }

    pub(crate) fn sizes(&self, key: &str) -> Result<Option<Vec<usize>>> {
        self.read(key, "a list of whole numbers", |v| {
            v.as_array()?.iter().map(whole).collect()
        })
    }

    pub(crate) fn opt_f64(&self, key: &str) -> Result<Option<f64>> {
        self.read(key, "a positive number", |v| {
            v.as_f64().filter(|x| x.is_finite() && *x > 0.0)
        })
    }

    pub(crate) fn f64(&self, key: &str) -> Result<f64> {
        let value = self.opt_f64(key)?;
        self.required(key, value)
    }

    pub(crate) fn opt_bool(&self, key: &str) -> Result<Option<bool>> {
        self.read(key, "true or false", Value::as_bool)
    }

    pub(crate) fn opt_str(&self, key: &str) -> Result<Option<&'a str>> {
        self.read(key, "a string", Value::as_str)
    }

    pub(crate) fn strings(&self, key: &str) -> Result<Option<Vec<&'a str>>> {
        self.read(key, "a list of strings", |v| {
            v.as_array()?.iter().map(Value::as_str).collect()
        })
    }
}

fn whole(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|n| usize::try_from(n).ok())
}

fn id(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|n| u32::try_from(n).ok())
}

fn shorten(value: &Value) -> String {
    const MAX: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
