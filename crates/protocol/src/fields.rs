//! Reading of known fields from a JSON object: `null` counts as absent, and every wrong type or
//! range is a 400 that names the field.

use std::ops::RangeInclusive;

use serde_json::{Map, Number, Value, json};

use crate::error::{ApiError, clipped};
use crate::recorder::Recorder;

/// The JSON object that a request body is; a byte order mark before it is tolerated.
///
/// # Errors
/// 400 for anything else.
pub(crate) fn parse_body(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    match serde_json::from_slice(body).map_err(ApiError::malformed_body)? {
        Value::Object(object) => Ok(object),
        Value::Array(_) => Err(ApiError::malformed_body("it is a list")),
        _ => Err(ApiError::malformed_body("it is a single value")),
    }
}

/// An object and its path from the body's root ("" for the root itself). Every field that is
/// read is told to the recorder.
pub(crate) struct Fields<'a> {
    object: &'a Map<String, Value>,
    path: String,
    recorder: &'a Recorder,
}

impl<'a> Fields<'a> {
    /// The body itself.
    pub(crate) fn root(object: &'a Map<String, Value>, recorder: &'a Recorder) -> Self {
        Self {
            object,
            path: String::new(),
            recorder,
        }
    }

    /// An object further inside, or a 400.
    pub(crate) fn child(
        &self,
        value: &'a Value,
        path: impl Into<String>,
    ) -> Result<Self, ApiError> {
        let path = path.into();
        match value {
            Value::Object(object) => Ok(Self {
                object,
                path,
                recorder: self.recorder,
            }),
            other => Err(ApiError::wrong_type(&path, "an object", other)),
        }
    }

    /// Objects of the list `name`.
    pub(crate) fn objects(&self, name: &str) -> Result<Vec<Self>, ApiError> {
        let list = self.list(name)?.unwrap_or_default().iter().enumerate();
        let path = self.path_of(name);
        list.map(|(i, value)| self.child(value, format!("{path}[{i}]")))
            .collect()
    }

    /// Path of the object itself.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Path of a field, for errors.
    pub(crate) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        }
    }

    /// The field, unless absent or null. The caller checks what it is.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.read(name, || json!({}))
    }

    /// The field, which the caller takes in several forms: names of JSON types.
    pub(crate) fn union(&self, name: &str, types: &[&str]) -> Option<&'a Value> {
        self.read(name, || json!({"type": types}))
    }

    /// The field if there, without a word to the recorder.
    pub(crate) fn peek(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    fn read(&self, name: &str, schema: impl FnOnce() -> Value) -> Option<&'a Value> {
        self.recorder.record(&self.path, name, schema);
        self.peek(name)
    }

    /// The object as it was sent.
    pub(crate) fn to_value(&self) -> Value {
        Value::Object(self.object.clone())
    }

    /// All names of the object.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'a String> {
        self.object.keys()
    }

    fn wrong_type(&self, name: &str, expected: &str, got: &Value) -> ApiError {
        ApiError::wrong_type(&self.path_of(name), expected, got)
    }

    pub(crate) fn boolean(&self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.read(name, || json!({"type": ["boolean", "null"]})) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(other) => Err(self.wrong_type(name, "true or false", other)),
        }
    }

    /// The same, or the word for it: some clients' examples have it so.
    pub(crate) fn switch(&self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.peek(name).and_then(Value::as_str) {
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            _ => self.boolean(name),
        }
    }

    pub(crate) fn string(&self, name: &str) -> Result<Option<&'a str>, ApiError> {
        match self.read(name, || json!({"type": ["string", "null"]})) {
            None => Ok(None),
            Some(Value::String(value)) => Ok(Some(value)),
            Some(other) => Err(self.wrong_type(name, "a string", other)),
        }
    }

    pub(crate) fn list(&self, name: &str) -> Result<Option<&'a [Value]>, ApiError> {
        match self.read(name, || json!({"type": ["array", "null"]})) {
            None => Ok(None),
            Some(Value::Array(values)) => Ok(Some(values)),
            Some(other) => Err(self.wrong_type(name, "a list", other)),
        }
    }

    pub(crate) fn object(&self, name: &str) -> Result<Option<Fields<'a>>, ApiError> {
        self.read(name, || json!({"type": ["object", "null"]}))
            .map(|value| self.child(value, self.path_of(name)))
            .transpose()
    }

    /// One of these words.
    pub(crate) fn word(
        &self,
        name: &str,
        words: &[&'static str],
    ) -> Result<Option<&'static str>, ApiError> {
        let schema = || {
            let mut allowed: Vec<Value> = words.iter().copied().map(Value::from).collect();
            allowed.push(Value::Null);
            json!({"enum": allowed})
        };
        let value = match self.read(name, schema) {
            None => return Ok(None),
            Some(Value::String(value)) => value,
            Some(other) => return Err(self.wrong_type(name, "a string", other)),
        };
        let known = words.iter().find(|word| *word == value);
        known.copied().map(Some).ok_or_else(|| {
            let path = self.path_of(name);
            let shown = clipped(&format!("{value:?}"));
            let message = format!("{path} must be one of {}, but is {shown}", words.join(", "));
            ApiError::invalid_value(&path, message)
        })
    }

    /// A string that has to be there.
    pub(crate) fn required_string(&self, name: &str) -> Result<&'a str, ApiError> {
        self.string(name)?
            .ok_or_else(|| ApiError::missing(&self.path_of(name)))
    }

    /// A list that has to be there.
    pub(crate) fn required_list(&self, name: &str) -> Result<&'a [Value], ApiError> {
        self.list(name)?
            .ok_or_else(|| ApiError::missing(&self.path_of(name)))
    }

    /// A finite number within `range`.
    pub(crate) fn number(
        &self,
        name: &str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f64>, ApiError> {
        let schema = || json!({"type": ["number", "null"], "minimum": range.start(), "maximum": range.end()});
        let Some(value) = self.read(name, schema) else {
            return Ok(None);
        };
        let Value::Number(number) = value else {
            return Err(self.wrong_type(name, "a number", value));
        };
        match number.as_f64() {
            Some(number) if range.contains(&number) => Ok(Some(number)),
            _ => Err(self.out_of_range(name, range.start(), range.end(), number)),
        }
    }

    /// A finite number above 0, at most `high`.
    pub(crate) fn positive(&self, name: &str, high: f64) -> Result<Option<f64>, ApiError> {
        let schema = || json!({"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": high});
        self.read(name, schema);
        match self.number(name, 0.0..=high)? {
            // The engine counts in single precision, where the least of them are 0.
            Some(value) if value as f32 <= 0.0 => {
                let path = self.path_of(name);
                let message = format!("{path} must be above 0 and at most {high}");
                Err(ApiError::invalid_value(&path, message))
            }
            value => Ok(value),
        }
    }

    /// An integer within `range`; `10.0` counts as one.
    pub(crate) fn integer(
        &self,
        name: &str,
        range: RangeInclusive<i64>,
    ) -> Result<Option<i64>, ApiError> {
        let schema = || json!({"type": ["integer", "null"], "minimum": range.start(), "maximum": range.end()});
        let Some(value) = self.read(name, schema) else {
            return Ok(None);
        };
        let Value::Number(number) = value else {
            return Err(self.wrong_type(name, "an integer", value));
        };
        match integral(number) {
            Some(integer) if range.contains(&integer) => Ok(Some(integer)),
            None if is_fraction(number) => Err(self.wrong_type(name, "an integer", value)),
            _ => Err(self.out_of_range(name, range.start(), range.end(), number)),
        }
    }

    fn out_of_range(
        &self,
        name: &str,
        low: &impl std::fmt::Display,
        high: &impl std::fmt::Display,
        got: &Number,
    ) -> ApiError {
        let path = self.path_of(name);
        let got = clipped(&got.to_string());
        let message = format!("{path} must be between {low} and {high}, but is {got}");
        ApiError::invalid_value(&path, message)
    }
}

/// The number as an integer, if it is one and fits; `10.0` and `1e3` do.
pub(crate) fn integral(number: &Number) -> Option<i64> {
    /// Above this, neighbouring integers are no longer told apart by a float.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    number.as_i64().or_else(|| {
        let value = number.as_f64()?;
        (value.fract() == 0.0 && value.abs() <= EXACT).then_some(value as i64)
    })
}

fn is_fraction(number: &Number) -> bool {
    number.as_f64().is_some_and(|value| value.fract() != 0.0)
}
