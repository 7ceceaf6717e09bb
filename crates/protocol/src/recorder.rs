//! Notes which fields of a body the readers ask for. From that come the notice about unknown
//! fields and the request schemas of the OpenAPI document, which thus cannot drift from the code.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Longest list of unknown fields in a notice.
const MAX_SHOWN: usize = 8;

/// What was asked for.
pub(crate) struct Recorder {
    notes: RefCell<Notes>,
}

enum Notes {
    /// Names at the root.
    Names(Vec<String>),
    /// Schema of each field by its path from the root, list positions left out.
    Schemas(BTreeMap<Vec<String>, Value>),
}

impl Recorder {
    /// One that remembers the names at the body's root.
    pub(crate) fn names() -> Self {
        let notes = RefCell::new(Notes::Names(Vec::new()));
        Self { notes }
    }

    /// One that remembers the schema of every field at any depth.
    pub(crate) fn schemas() -> Self {
        let notes = RefCell::new(Notes::Schemas(BTreeMap::new()));
        Self { notes }
    }

    /// A reader has asked for `name` of the object at `path`.
    pub(crate) fn record(&self, path: &str, name: &str, schema: impl FnOnce() -> Value) {
        match &mut *self.notes.borrow_mut() {
            Notes::Names(names) if path.is_empty() => {
                if !names.iter().any(|known| known == name) {
                    names.push(name.to_owned());
                }
            }
            Notes::Names(_) => {}
            Notes::Schemas(schemas) => {
                let new = schema();
                let known = schemas.entry(steps(path, name)).or_insert(Value::Null);
                if known.as_object().is_none_or(Map::is_empty) {
                    *known = new;
                }
            }
        }
    }

    /// A remark on the fields of `body` that nobody asked for, if there are any.
    pub(crate) fn unknown_fields(
        &self,
        body: &Map<String, Value>,
        ignored: &[&str],
    ) -> Option<String> {
        let Notes::Names(names) = &*self.notes.borrow() else {
            return None;
        };
        let is_known = |name: &str| ignored.contains(&name) || names.iter().any(|n| n == name);
        let unknown = body.keys().filter(|name| !is_known(name));
        let shown: Vec<String> = unknown
            .take(MAX_SHOWN)
            .map(|name| crate::error::clipped(&format!("{name:?}")))
            .collect();
        (!shown.is_empty()).then(|| format!("unknown fields have no effect: {}", shown.join(", ")))
    }

    /// JSON schema of the body.
    pub(crate) fn schema(self) -> Value {
        let mut root = json!({"type": "object", "properties": {}});
        if let Notes::Schemas(schemas) = self.notes.into_inner() {
            for (path, schema) in schemas {
                place(&mut root, &path, schema);
            }
        }
        root
    }
}

/// `messages[2].content` as `messages`, `[]`, `content`.
fn steps(path: &str, name: &str) -> Vec<String> {
    let mut steps = Vec::new();
    for part in path.split('.').filter(|part| !part.is_empty()) {
        let (field, positions) = part.split_once('[').map_or((part, ""), |(f, p)| (f, p));
        steps.push(field.to_owned());
        steps.extend(positions.matches(']').map(|_| "[]".to_owned()));
    }
    steps.push(name.to_owned());
    steps
}

/// Puts the schema of one field into the schema of the whole. Parents sort before children.
fn place(root: &mut Value, path: &[String], schema: Value) {
    let mut at = root;
    for step in path {
        at = match step.as_str() {
            "[]" => &mut at["items"],
            name => &mut at["properties"][name],
        };
    }
    match (at.as_object_mut(), schema) {
        (Some(known), Value::Object(more)) => known.extend(more),
        (_, schema) => *at = schema,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_nested_schemas() {
        let recorder = Recorder::schemas();
        recorder.record("", "a", || json!({"type": "array"}));
        recorder.record("a[3].b[1]", "c", || json!({"type": "string"}));
        recorder.record("a[4]", "b", || json!({"type": "array"}));
        recorder.record("a[4].b[0]", "c", || json!({}));
        let c = json!({"properties": {"c": {"type": "string"}}});
        let b = json!({"type": "array", "items": c});
        let a = json!({"type": "array", "items": {"properties": {"b": b}}});
        assert_eq!(
            recorder.schema(),
            json!({"type": "object", "properties": {"a": a}})
        );
    }

    #[test]
    fn fields_that_nobody_reads_are_told() {
        let recorder = Recorder::names();
        recorder.record("", "seed", || json!({}));
        recorder.record("x", "odd", || json!({}));
        let Value::Object(body) = json!({"seed": 1, "odd": null, "user": "me"}) else {
            panic!("an object");
        };
        let notice = recorder.unknown_fields(&body, &["user"]).unwrap();
        assert_eq!(notice, "unknown fields have no effect: \"odd\"");
    }
}
