//! Whether JSON satisfies a schema, for the words that the random schemas use; others panic.

use serde_json::Value;

/// Checks a text against a schema.
pub fn validate(schema: &Value, text: &str) -> Result<(), String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    check(schema, schema, &value)
}

fn check(schema: &Value, root: &Value, value: &Value) -> Result<(), String> {
    let words = schema.as_object().unwrap();
    for (word, argument) in words {
        if !satisfied(word, argument, schema, root, value)? {
            return Err(format!("{value} breaks {word}: {argument}"));
        }
    }
    Ok(())
}

fn satisfied(
    word: &str,
    argument: &Value,
    schema: &Value,
    root: &Value,
    value: &Value,
) -> Result<bool, String> {
    let number = || value.as_f64().zip(argument.as_f64());
    let size = argument.as_u64().map_or(0, |size| size as usize);
    let text = value.as_str();
    let list = value.as_array();
    let fields = value.as_object();
    let ok = |schema: &Value, value: &Value| check(schema, root, value);
    Ok(match word {
        "$schema" | "$defs" | "title" | "description" => true,
        "type" => match argument {
            Value::Array(names) => names.iter().any(|name| is_a(value, name.as_str().unwrap())),
            name => is_a(value, name.as_str().unwrap()),
        },
        "enum" => argument.as_array().unwrap().contains(value),
        "const" => argument == value,
        "$ref" => {
            let target = argument.as_str().unwrap().strip_prefix('#').unwrap();
            ok(root.pointer(target).unwrap(), value).map(|()| true)?
        }
        "anyOf" => {
            let branches = argument.as_array().unwrap();
            branches.iter().any(|branch| ok(branch, value).is_ok())
        }
        "allOf" => {
            let branches = argument.as_array().unwrap();
            branches.iter().all(|branch| ok(branch, value).is_ok())
        }
        "minimum" => number().is_none_or(|(value, limit)| value >= limit),
        "maximum" => number().is_none_or(|(value, limit)| value <= limit),
        "exclusiveMinimum" => number().is_none_or(|(value, limit)| value > limit),
        "exclusiveMaximum" => number().is_none_or(|(value, limit)| value < limit),
        "multipleOf" => number().is_none_or(|(value, unit)| value % unit == 0.0),
        "minLength" => text.is_none_or(|text| text.chars().count() >= size),
        "maxLength" => text.is_none_or(|text| text.chars().count() <= size),
        "pattern" => text.is_none_or(|text| matches(argument.as_str().unwrap(), text)),
        "format" => text.is_none_or(|text| is_formatted(argument.as_str().unwrap(), text)),
        "minItems" => list.is_none_or(|list| list.len() >= size),
        "maxItems" => list.is_none_or(|list| list.len() <= size),
        "prefixItems" => {
            let schemas = argument.as_array().unwrap();
            let pairs = schemas.iter().zip(list.into_iter().flatten());
            pairs
                .into_iter()
                .all(|(schema, item)| ok(schema, item).is_ok())
        }
        "items" => {
            let prefix = schema.get("prefixItems").and_then(Value::as_array);
            let rest = list.into_iter().flatten().skip(prefix.map_or(0, Vec::len));
            rest.into_iter().all(|item| ok(argument, item).is_ok())
        }
        "properties" => fields.is_none_or(|fields| {
            let schemas = argument.as_object().unwrap();
            let declared = |(name, value)| schemas.get(name).is_none_or(|s| ok(s, value).is_ok());
            fields.iter().all(declared)
        }),
        "required" => fields.is_none_or(|fields| {
            let names = argument.as_array().unwrap();
            names
                .iter()
                .all(|name| fields.contains_key(name.as_str().unwrap()))
        }),
        "additionalProperties" => {
            assert_eq!(argument, false);
            fields.is_none_or(|fields| {
                fields
                    .keys()
                    .all(|name| schema["properties"].get(name).is_some())
            })
        }
        other => panic!("{other} is not checked"),
    })
}

fn is_a(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other} is no type"),
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    assert_eq!(pattern, "^[a-c]{2,4}(-[0-9]+)?$");
    let (letters, digits) = match text.split_once('-') {
        Some((letters, digits)) => (letters, Some(digits)),
        None => (text, None),
    };
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (2..=4).contains(&letters.len())
        && letters.bytes().all(|b| (b'a'..=b'c').contains(&b))
        && digits.is_none_or(all_digits)
}

fn is_formatted(format: &str, text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    match format {
        "date" => {
            let number = |index: usize| parts[index].parse::<u32>().unwrap_or(0);
            lengths == [4, 2, 2] && (1..=12).contains(&number(1)) && (1..=31).contains(&number(2))
        }
        "uuid" => {
            let hex = |part: &&str| part.bytes().all(|b| b.is_ascii_hexdigit());
            lengths == [8, 4, 4, 4, 12] && parts.iter().all(hex)
        }
        other => panic!("{other} is not checked"),
    }
}
