//! vLLM's way to write JSON by its keys: `--speculative-config.method dflash` is
//! `--speculative-config={"method": "dflash"}`.

use std::ffi::OsString;

use serde_json::{Map, Value};

/// Gathers flags with keys to one flag each, where the first of them stood.
pub(super) fn gather(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args = args.into_iter().peekable();
    let mut plain: Vec<Result<OsString, String>> = Vec::new();
    let mut objects: Map<String, Value> = Map::new();
    while let Some(arg) = args.next() {
        let Some((flag, keys, value)) = arg.to_str().and_then(split) else {
            plain.push(Ok(arg));
            continue;
        };
        let (flag, keys) = (flag.replace('_', "-"), keys.to_owned());
        let value = value.map(str::to_owned).or_else(|| {
            let next = args.next_if(|next| !next.to_string_lossy().starts_with("--"));
            next.map(|next| next.to_string_lossy().into_owned())
        });
        if !objects.contains_key(&flag) {
            plain.push(Err(flag.clone()));
        }
        let object = objects.entry(flag).or_insert_with(|| Map::new().into());
        *place(object, &keys) = value.map_or(Value::Bool(true), |text| {
            serde_json::from_str(&text).unwrap_or(Value::String(text))
        });
    }
    let written = |flag: String| OsString::from(format!("{flag}={}", objects[&flag]));
    plain
        .into_iter()
        .map(|arg| arg.unwrap_or_else(written))
        .collect()
}

/// Flag, keys, and the value behind an equals sign.
fn split(arg: &str) -> Option<(&str, &str, Option<&str>)> {
    let (name, value) = match arg.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (arg, None),
    };
    let (flag, keys) = name.split_once('.')?;
    let word = flag.trim_start_matches('-');
    let is_flag = flag.starts_with("--") || flag == "-cc";
    let is_word = |text: &str| {
        text.chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    let named = word.starts_with(|c: char| c.is_ascii_alphabetic()) && is_word(name);
    (is_flag && named && !keys.is_empty()).then_some((flag, keys, value))
}

/// The place of `keys` in an object, made if it is not there.
fn place<'a>(object: &'a mut Value, keys: &str) -> &'a mut Value {
    keys.split('.').fold(object, |value, key| {
        if !value.is_object() {
            *value = Map::new().into();
        }
        &mut value[key]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(line: &str) -> String {
        let args = gather(line.split(' ').map(OsString::from));
        let args: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
        args.join(" ")
    }

    #[test]
    fn keys_become_json() {
        for (line, expected) in [
            (
                "v serve --spec.method mtp --port 8 --spec.num_tokens=2 x",
                r#"v serve --spec={"method":"mtp","num_tokens":2} --port 8 x"#,
            ),
            (
                "v -cc.mode=3 -cc.pass.a false --b_c.on",
                r#"v -cc={"mode":3,"pass":{"a":false}} --b-c={"on":true}"#,
            ),
            ("v --a.b --c.d -1", r#"v --a={"b":true} --c={"d":-1}"#),
            ("v --a.b [1,2] --a.b.c x", r#"v --a={"b":{"c":"x"}}"#),
        ] {
            assert_eq!(gathered(line), expected);
        }
        for line in [
            "v ./x.json --model=/a.b --host 127.0.0.1 -1.5 --x=1.5 -- --. --a. -p.x",
            "v --prompt=a.b?c=d",
        ] {
            assert_eq!(gathered(line), line);
        }
    }
}
