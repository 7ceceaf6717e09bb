//! Numbers of schemas, brought to what the library counts with: it multiplies and negates in 64 bits
//! and spells bounds digit by digit.

use serde_json::{Map, Value, json};

use crate::Error;

/// Bounds further from 0 are drawn in to this.
const FAR: f64 = 9e18;
/// Bounds closer to 0 are moved off it or onto it.
const NEAR: f64 = 1e-12;
/// Steps that can be told by remainders.
const STEPS: std::ops::RangeInclusive<f64> = 1e-6..=1e6;

/// The schema with bounds that can be enforced. They move inwards only, so that what keeps to them
/// keeps to those that were asked for.
///
/// # Errors
/// Bounds that leave only numbers beyond reach; if `strict`, also steps that cannot be told. Without,
/// these are left out.
pub(crate) fn tamed(schema: &Value, strict: bool) -> Result<Value, Error> {
    match schema {
        Value::Array(list) => list.iter().map(|value| tamed(value, strict)).collect(),
        Value::Object(words) => {
            let mut tame = Map::new();
            for (word, value) in words {
                if let Some(value) = word_tamed(word, value, strict)? {
                    tame.insert(word.clone(), value);
                }
            }
            Ok(Value::Object(tame))
        }
        plain => Ok(plain.clone()),
    }
}

fn word_tamed(word: &str, value: &Value, strict: bool) -> Result<Option<Value>, Error> {
    let moved_to = |bound: f64, moved: Option<f64>| match moved {
        Some(moved) if moved == bound => Ok(Some(value.clone())),
        Some(moved) => Ok(Some(json!(moved))),
        None => Err(Error::Rule(format!(
            "{word} {value} is further from 0 than {FAR:e}"
        ))),
    };
    match (word, value.as_f64()) {
        ("minimum" | "exclusiveMinimum", Some(bound)) => moved_to(bound, least(bound)),
        ("maximum" | "exclusiveMaximum", Some(bound)) => {
            moved_to(bound, least(-bound).map(|mirrored| 0.0 - mirrored))
        }
        ("multipleOf", Some(step)) if !STEPS.contains(&step.abs()) => match strict {
            true => {
                let (low, high) = (STEPS.start(), STEPS.end());
                let reason = format!("multipleOf must be between {low} and {high}, but is {step}");
                Err(Error::Rule(reason))
            }
            false => Ok(None),
        },
        ("enum" | "const" | "default" | "example" | "examples", _) => Ok(Some(value.clone())),
        _ => tamed(value, strict).map(Some),
    }
}

/// A lower bound, moved up where it has to be; `None` if it cannot be reached.
fn least(bound: f64) -> Option<f64> {
    match bound {
        _ if bound > FAR => None,
        _ if bound < -FAR => Some(-FAR),
        _ if bound > 0.0 && bound < NEAR => Some(NEAR),
        _ if bound < 0.0 && bound > -NEAR => Some(0.0),
        _ => Some(bound),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_move_inwards_and_only_where_they_have_to() {
        for (schema, tame) in [
            (
                json!({"minimum": -5, "maximum": 7}),
                json!({"minimum": -5, "maximum": 7}),
            ),
            (
                json!({"minimum": i64::MIN, "exclusiveMaximum": 1e300}),
                json!({"minimum": -FAR, "exclusiveMaximum": FAR}),
            ),
            (
                json!({"items": [{"maximum": u64::MAX}]}),
                json!({"items": [{"maximum": FAR}]}),
            ),
            (json!({"minimum": 1e-300}), json!({"minimum": NEAR})),
            (json!({"minimum": -1e-300}), json!({"minimum": 0.0})),
            (json!({"maximum": 1e-300}), json!({"maximum": 0.0})),
            (json!({"maximum": -1e-300}), json!({"maximum": -NEAR})),
            (
                json!({"properties": {"minimum": {"const": 1e300}}, "enum": [{"minimum": 1e300}]}),
                json!({"properties": {"minimum": {"const": 1e300}}, "enum": [{"minimum": 1e300}]}),
            ),
        ] {
            assert_eq!(tamed(&schema, true).unwrap(), tame);
        }
        for schema in [json!({"minimum": 1e300}), json!({"maximum": -1e19})] {
            assert!(tamed(&schema, false).is_err(), "{schema}");
        }
        for step in [1e-9, 1e9] {
            let schema = json!({"multipleOf": step});
            assert!(tamed(&schema, true).is_err());
            assert_eq!(tamed(&schema, false).unwrap(), json!({}));
        }
    }
}
