//! Reading of known fields from a JSON object: `null` counts as absent, and every wrong type or
//! range is a 400 that names the field.

use std::ops::RangeInclusive;

use serde_json::{Map, Number, Value};

use crate::error::ApiError;

/// An object and its path from the body's root ("" for the root itself).
pub(crate) struct Fields<'a> {
    object: &'a Map<String, Value>,
    path: String,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(object: &'a Map<String, Value>, path: impl Into<String>) -> Self {
        Self {
            object,
            path: path.into(),
        }
    }

    /// The object at `path`, or a 400.
    pub(crate) fn of(value: &'a Value, path: impl Into<String>) -> Result<Self, ApiError> {
        let path = path.into();
        match value {
            Value::Object(object) => Ok(Self::new(object, path)),
            other => Err(ApiError::wrong_type(&path, "an object", other)),
        }
    }

    /// Path of a field, for errors.
    pub(crate) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        }
    }

    /// The field, unless absent or null.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// All names of the object.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'a String> {
        self.object.keys()
    }

    fn wrong_type(&self, name: &str, expected: &str, got: &Value) -> ApiError {
        ApiError::wrong_type(&self.path_of(name), expected, got)
    }

    pub(crate) fn boolean(&self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(other) => Err(self.wrong_type(name, "true or false", other)),
        }
    }

    pub(crate) fn string(&self, name: &str) -> Result<Option<&'a str>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(value)) => Ok(Some(value)),
            Some(other) => Err(self.wrong_type(name, "a string", other)),
        }
    }

    pub(crate) fn list(&self, name: &str) -> Result<Option<&'a [Value]>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Array(values)) => Ok(Some(values)),
            Some(other) => Err(self.wrong_type(name, "a list", other)),
        }
    }

    pub(crate) fn object(&self, name: &str) -> Result<Option<Fields<'a>>, ApiError> {
        self.get(name)
            .map(|value| Fields::of(value, self.path_of(name)))
            .transpose()
    }

    /// A finite number within `range`.
    pub(crate) fn number(
        &self,
        name: &str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f64>, ApiError> {
        let Some(value) = self.get(name) else {
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

    /// An integer within `range`; `10.0` counts as one.
    pub(crate) fn integer(
        &self,
        name: &str,
        range: RangeInclusive<i64>,
    ) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.get(name) else {
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
        let got = crate::error::clipped(&got.to_string());
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
