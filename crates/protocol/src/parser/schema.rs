//! What JSON types a parameter may have, from a tool's JSON schema. Schemas come from clients:
//! anything odd in them means "untyped", never a failure.

use serde_json::Value;

/// Schemas visited per parameter, so that recursive ones end.
const MAX_VISITS: usize = 256;

/// A JSON type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JsonType {
    Null,
    Boolean,
    Integer,
    Number,
    Object,
    Array,
    String,
}

/// An untyped parameter is text, unless it reads as an object or array.
pub(super) const UNTYPED: [JsonType; 3] = [JsonType::Object, JsonType::Array, JsonType::String];

/// Is `name` a property that the schema of the arguments declares?
pub(super) fn declares(arguments: &Value, name: &str) -> bool {
    property(arguments, name).is_some()
}

/// Types of the argument `name` in the order of the schema, never empty.
pub(super) fn types_of(arguments: &Value, name: &str) -> Vec<JsonType> {
    let mut types = Vec::new();
    if let Some(schema) = property(arguments, name) {
        let mut walk = Walk::new(arguments);
        walk.collect(schema, &mut types);
    }
    if types.is_empty() {
        types.extend(UNTYPED);
    }
    types
}

/// The schema of a property, also behind `$ref`, `allOf`, `anyOf` and `oneOf`.
fn property<'a>(arguments: &'a Value, name: &str) -> Option<&'a Value> {
    let mut walk = Walk::new(arguments);
    let mut queue = vec![arguments];
    while let Some(schema) = queue.pop() {
        if !walk.visit() {
            return None;
        }
        if let Some(found) = schema.get("properties").and_then(|list| list.get(name)) {
            return Some(found);
        }
        queue.extend(walk.reference(schema));
        queue.extend(branches(schema).rev());
    }
    None
}

/// Subschemas that describe the same value.
fn branches(schema: &Value) -> impl DoubleEndedIterator<Item = &Value> {
    ["anyOf", "oneOf", "allOf"]
        .into_iter()
        .filter_map(|word| schema.get(word)?.as_array())
        .flatten()
}

struct Walk<'a> {
    root: &'a Value,
    visits: usize,
}

impl<'a> Walk<'a> {
    fn new(root: &'a Value) -> Self {
        Self { root, visits: 0 }
    }

    fn visit(&mut self) -> bool {
        self.visits += 1;
        self.visits <= MAX_VISITS
    }

    /// What `$ref` points to within the same schema.
    fn reference(&self, schema: &Value) -> Option<&'a Value> {
        let pointer = schema.get("$ref")?.as_str()?.strip_prefix('#')?;
        self.root.pointer(pointer)
    }

    fn collect(&mut self, schema: &'a Value, types: &mut Vec<JsonType>) {
        if !self.visit() {
            return;
        }
        let before = types.len();
        if let Some(target) = self.reference(schema) {
            self.collect(target, types);
        }
        match schema.get("type") {
            Some(Value::String(name)) => add_named(name, types),
            Some(Value::Array(names)) => {
                for name in names.iter().filter_map(Value::as_str) {
                    add_named(name, types);
                }
            }
            _ => self.collect_untyped(schema, types),
        }
        if types.len() == before && types.is_empty() {
            UNTYPED.into_iter().for_each(|kind| add(kind, types));
        }
        if schema.get("nullable") == Some(&Value::Bool(true)) {
            add(JsonType::Null, types);
        }
    }

    /// A schema without `type` still tells by its values, branches or other words.
    fn collect_untyped(&mut self, schema: &'a Value, types: &mut Vec<JsonType>) {
        let values = schema.get("enum").and_then(Value::as_array);
        values
            .into_iter()
            .flatten()
            .chain(schema.get("const"))
            .for_each(|v| add(kind_of(v), types));
        for branch in branches(schema) {
            self.collect(branch, types);
        }
        if schema.get("properties").is_some() {
            add(JsonType::Object, types);
        }
        if schema.get("items").is_some() {
            add(JsonType::Array, types);
        }
    }
}

fn add(kind: JsonType, types: &mut Vec<JsonType>) {
    if !types.contains(&kind) {
        types.push(kind);
    }
}

/// Adds a type by its name; names of programming languages occur in the wild.
fn add_named(name: &str, types: &mut Vec<JsonType>) {
    let kind = match name.to_ascii_lowercase().as_str() {
        "null" | "none" => JsonType::Null,
        "boolean" | "bool" => JsonType::Boolean,
        "integer" | "int" | "long" => JsonType::Integer,
        "number" | "float" | "double" => JsonType::Number,
        "object" | "dict" | "map" => JsonType::Object,
        "array" | "list" | "tuple" => JsonType::Array,
        "string" | "str" => JsonType::String,
        _ => {
            UNTYPED.into_iter().for_each(|kind| add(kind, types));
            return;
        }
    };
    add(kind, types);
}

fn kind_of(value: &Value) -> JsonType {
    match value {
        Value::Null => JsonType::Null,
        Value::Bool(_) => JsonType::Boolean,
        Value::Number(number) if number.is_i64() || number.is_u64() => JsonType::Integer,
        Value::Number(_) => JsonType::Number,
        Value::String(_) => JsonType::String,
        Value::Array(_) => JsonType::Array,
        Value::Object(_) => JsonType::Object,
    }
}
