//! Sampling parameters for requests that leave them out.

use std::fmt;

use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// What is read of a `generation_config.json`.
const FIELDS: [&str; 6] = [
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "do_sample",
];

/// Default sampling, from a model's `generation_config.json` or by choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GenerationDefaults {
    /// 0 is greedy.
    pub temperature: f32,
    /// 0 is off.
    pub top_k: usize,
    /// 1 is off.
    pub top_p: f32,
    /// 0 is off.
    pub min_p: f32,
    /// 1 is off.
    pub repetition_penalty: f32,
}

impl GenerationDefaults {
    /// Neutral sampling at temperature 1, as OpenAI has it.
    pub fn neutral() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
        }
    }

    /// Always the likeliest token.
    pub fn greedy() -> Self {
        Self {
            temperature: 0.0,
            ..Self::neutral()
        }
    }

    /// Reads the contents of a `generation_config.json`: absent and null fields are neutral,
    /// `do_sample: false` is greedy; a field of a wrong type or range is an error that names it.
    pub fn from_json(json: &[u8]) -> Result<Self> {
        Self::neutral().changed_by(&object(json)?)
    }

    /// These, but for the fields of a JSON object. One that is none of them is an error.
    pub fn overridden(self, json: &str) -> Result<Self> {
        let fields = object(json.as_bytes())?;
        match fields.keys().find(|name| !FIELDS.contains(&name.as_str())) {
            Some(name) => Err(bad(format!("{name} is none of {}", FIELDS.join(", ")))),
            None => self.changed_by(&fields),
        }
    }

    fn changed_by(self, fields: &Map<String, Value>) -> Result<Self> {
        let number = |name: &str, default: f32, low: f64, high: f64| -> Result<f32> {
            match fields.get(name) {
                None | Some(Value::Null) => Ok(default),
                Some(value) => value
                    .as_f64()
                    .filter(|number| (low..=high).contains(number))
                    .map(|number| number as f32)
                    .ok_or_else(|| bad(format!("{name} is {value}, not in {low} to {high}"))),
            }
        };
        let mut defaults = Self {
            temperature: number("temperature", self.temperature, 0.0, 100.0)?,
            top_k: number("top_k", self.top_k as f32, 0.0, 1e9)? as usize,
            top_p: number("top_p", self.top_p, 1e-6, 1.0)?,
            min_p: number("min_p", self.min_p, 0.0, 1.0)?,
            repetition_penalty: number("repetition_penalty", self.repetition_penalty, 1e-6, 100.0)?,
        };
        if fields.get("do_sample") == Some(&Value::Bool(false)) {
            defaults.temperature = 0.0;
        }
        Ok(defaults)
    }
}

impl fmt::Display for GenerationDefaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.temperature == 0.0 {
            return f.write_str("greedy");
        }
        write!(f, "temperature {}", self.temperature)?;
        if self.top_k > 0 {
            write!(f, ", top_k {}", self.top_k)?;
        }
        if self.top_p < 1.0 {
            write!(f, ", top_p {}", self.top_p)?;
        }
        if self.min_p > 0.0 {
            write!(f, ", min_p {}", self.min_p)?;
        }
        if self.repetition_penalty != 1.0 {
            write!(f, ", repetition_penalty {}", self.repetition_penalty)?;
        }
        Ok(())
    }
}

fn object(json: &[u8]) -> Result<Map<String, Value>> {
    match serde_json::from_slice(json) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(bad("not a JSON object")),
        Err(error) => Err(bad(error.to_string())),
    }
}

fn bad(message: impl Into<String>) -> Error {
    Error::File {
        file: "generation_config.json".into(),
        message: message.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_released_file_is_read() {
        let defaults = GenerationDefaults::from_json(
            br#"{"do_sample": true, "temperature": 1.0, "top_k": 20, "top_p": 0.95,
                 "eos_token_id": [248046, 248044], "bos_token_id": 248044}"#,
        )
        .unwrap();
        assert_eq!(defaults.to_string(), "temperature 1, top_k 20, top_p 0.95");
    }

    #[test]
    fn absent_fields_are_neutral_and_no_sampling_is_greedy() {
        let defaults = GenerationDefaults::from_json(b"{\"eos_token_id\": 7}").unwrap();
        assert_eq!(defaults, GenerationDefaults::neutral());
        let greedy =
            GenerationDefaults::from_json(b"{\"do_sample\": false, \"temperature\": null}")
                .unwrap();
        assert_eq!(greedy, GenerationDefaults::greedy());
        assert_eq!(greedy.to_string(), "greedy");
    }

    #[test]
    fn fields_are_overridden_one_by_one() {
        let base = GenerationDefaults::from_json(br#"{"top_k": 20, "top_p": 0.95}"#).unwrap();
        let changed = base
            .overridden(r#"{"temperature": 0.6, "top_k": 0}"#)
            .unwrap();
        assert_eq!(changed.to_string(), "temperature 0.6, top_p 0.95");
        assert_eq!(base.overridden("{}").unwrap(), base);
        for (json, words) in [
            (r#"{"max_new_tokens": 10}"#, "max_new_tokens is none of"),
            (r#"{"top_p": 2}"#, "top_p is 2"),
            ("7", "object"),
        ] {
            let error = base.overridden(json).unwrap_err();
            assert!(error.to_string().contains(words), "{json}: {error}");
        }
    }

    #[test]
    fn wrong_fields_are_named() {
        for (json, name) in [
            ("{\"temperature\": \"hot\"}", "temperature"),
            ("{\"temperature\": -1}", "temperature"),
            ("{\"top_p\": 0}", "top_p"),
            ("[]", "object"),
            ("{", "EOF"),
        ] {
            let error = GenerationDefaults::from_json(json.as_bytes()).unwrap_err();
            assert!(error.to_string().contains(name), "{json}: {error}");
        }
    }
}
