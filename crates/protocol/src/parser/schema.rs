//! What JSON types a parameter may have, from a tool's JSON schema. Schemas come from clients:
//! anything odd in them means "untyped", never a failure.

use serde_json::Value;

/// Schemas visited per parameter.
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
        if !walk.visit(schema) {
            continue;
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

/// A walk that meets every schema once, so that recursive ones end.
struct Walk<'a> {
    root: &'a Value,
    met: Vec<&'a Value>,
}

impl<'a> Walk<'a> {
    fn new(root: &'a Value) -> Self {
        let met = Vec::new();
        Self { root, met }
    }

    /// Is this schema new, and not one too many?
    fn visit(&mut self, schema: &'a Value) -> bool {
        let is_new = !self.met.iter().any(|met| std::ptr::eq(*met, schema));
        self.met.push(schema);
        is_new && self.met.len() <= MAX_VISITS
    }

    /// What `$ref` points to within the same schema.
    fn reference(&self, schema: &Value) -> Option<&'a Value> {
        let pointer = schema.get("$ref")?.as_str()?.strip_prefix('#')?;
        self.root.pointer(pointer)
    }

    fn collect(&mut self, schema: &'a Value, types: &mut Vec<JsonType>) {
        if !self.visit(schema) {
            return;
        }
        let target = self.reference(schema);
        if let Some(target) = target {
            self.collect(target, types);
        }
        match schema.get("type") {
            Some(Value::String(name)) => add_named(name, types),
            Some(Value::Array(names)) => {
                for name in names.iter().filter_map(Value::as_str) {
                    add_named(name, types);
                }
            }
            _ => {
                let told = self.collect_without_type(schema, types);
                if !told && target.is_none() {
                    UNTYPED.into_iter().for_each(|kind| add(kind, types));
                }
            }
        }
        if schema.get("nullable") == Some(&Value::Bool(true)) {
            add(JsonType::Null, types);
        }
    }

    /// A schema without `type` may still tell by its values, branches or other words: does it?
    fn collect_without_type(&mut self, schema: &'a Value, types: &mut Vec<JsonType>) -> bool {
        let listed = schema.get("enum").and_then(Value::as_array);
        let values = listed.into_iter().flatten().chain(schema.get("const"));
        let mut kinds: Vec<JsonType> = values.map(kind_of).collect();
        kinds.extend(schema.get("properties").map(|_| JsonType::Object));
        kinds.extend(schema.get("items").map(|_| JsonType::Array));
        let mut told = !kinds.is_empty();
        kinds.into_iter().for_each(|kind| add(kind, types));
        for branch in branches(schema) {
            told = true;
            self.collect(branch, types);
        }
        told
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
