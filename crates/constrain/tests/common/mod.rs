//! Random schemas, and the tokenizer of the demo pair.
#![allow(clippy::unwrap_used, dead_code, missing_docs)]

mod check;

use std::path::Path;
use std::sync::Arc;

use rand::seq::IndexedRandom;
use rand::{Rng, RngExt};
use serde_json::{Map, Value, json};
use volley_constrain::{TokenText, Vocabulary};

#[allow(unused_imports)]
pub use check::validate;

/// A schema that some JSON satisfies; whatever satisfies it is short.
pub fn schema(rng: &mut impl Rng) -> Value {
    let mut root = object(rng, 3);
    if rng.random_bool(0.3) {
        root["$defs"] = json!({"node": {
            "type": "object",
            "properties": {
                "value": scalar(rng),
                "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
            },
            "required": ["value"],
            "additionalProperties": false,
        }});
        root["properties"]["tree"] = json!({"$ref": "#/$defs/node"});
    }
    root
}

fn any(rng: &mut impl Rng, depth: usize) -> Value {
    match rng.random_range(0..10) {
        0 | 1 if depth > 0 => object(rng, depth - 1),
        2 | 3 if depth > 0 => array(rng, depth - 1),
        4 if depth > 0 => {
            let count = rng.random_range(2..4);
            let branches: Vec<Value> = (0..count).map(|_| any(rng, depth - 1)).collect();
            json!({"anyOf": branches})
        }
        _ => scalar(rng),
    }
}

fn object(rng: &mut impl Rng, depth: usize) -> Value {
    const NAMES: &[&str] = &[
        "a",
        "name",
        "city",
        "unit price",
        "x-y",
        "\"quoted\"",
        "back\\slash",
        "größe",
        "键",
        "n",
    ];
    let mut properties = Map::new();
    let count = rng.random_range(0..5);
    for name in NAMES.sample(rng, count) {
        properties.insert((*name).to_owned(), any(rng, depth));
    }
    let names: Vec<String> = properties.keys().cloned().collect();
    let required: Vec<&String> = names.iter().filter(|_| rng.random_bool(0.6)).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A thing",
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn array(rng: &mut impl Rng, depth: usize) -> Value {
    let least = rng.random_range(0..3);
    let most = least + rng.random_range(0..3);
    let mut schema = json!({
        "type": "array", "items": any(rng, depth), "minItems": least, "maxItems": most,
    });
    if rng.random_bool(0.2) {
        schema["prefixItems"] = json!([scalar(rng), scalar(rng)]);
    }
    schema
}

fn scalar(rng: &mut impl Rng) -> Value {
    let low = rng.random_range(-50..50);
    let high = low + rng.random_range(1..200);
    match rng.random_range(0..14) {
        0 => json!({"type": "boolean", "description": "yes or no"}),
        1 => json!({"type": "null"}),
        2 => json!({"type": "integer", "minimum": low, "maximum": high}),
        3 => json!({"type": "integer", "exclusiveMinimum": low, "exclusiveMaximum": high + 1}),
        4 => json!({"type": "integer", "minimum": 0, "maximum": 100, "multipleOf": 5}),
        5 => json!({"type": "number", "minimum": low, "maximum": high}),
        6 => json!({"enum": ["red", "green", 3, null, true, "a \"b\"", 1.5]}),
        7 => json!({"const": {"fixed": [1, "two"]}}),
        8 => json!({"type": "string", "pattern": "^[a-c]{2,4}(-[0-9]+)?$", "maxLength": 9}),
        9 => json!({"type": "string", "format": "date"}),
        10 => json!({"type": "string", "format": "uuid"}),
        11 => json!({"type": ["string", "null"], "maxLength": 5}),
        12 => json!({"allOf": [{"type": "integer", "minimum": low}, {"maximum": high}]}),
        _ => json!({"type": "string", "minLength": 1, "maxLength": 12}),
    }
}

/// The demo pair's tokens and tokenizer.
pub struct Demo {
    pub tokenizer: Arc<tokenizers::Tokenizer>,
    pub tokens: Vec<TokenText>,
    pub end_ids: Vec<u32>,
}

impl Demo {
    pub fn new() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let file = root.join("../../models/demo/target/tokenizer.json");
        let tokenizer = tokenizers::Tokenizer::from_file(file).unwrap();
        let vocabulary = tokenizer.get_vocab(true);
        let added = tokenizer.get_added_tokens_decoder();
        let alphabet = alphabet();
        let mut tokens = vec![TokenText::Unused; vocabulary.len()];
        for (text, id) in vocabulary {
            tokens[id as usize] = match added.get(&id) {
                Some(token) => TokenText::Markup(token.content.clone()),
                None => TokenText::Bytes(text.chars().map(|c| alphabet[&c]).collect()),
            };
        }
        let end_ids = vec![tokenizer.token_to_id("<|im_end|>").unwrap()];
        Self {
            tokenizer: Arc::new(tokenizer),
            tokens,
            end_ids,
        }
    }

    pub fn vocabulary(&self) -> Vocabulary {
        let tokenizer = Arc::clone(&self.tokenizer);
        let encode = move |text: &str| {
            let encoding = tokenizer.encode_fast(text, false).unwrap();
            encoding.get_ids().to_vec()
        };
        Vocabulary::new(&self.tokens, &self.end_ids, Arc::new(encode)).unwrap()
    }

    pub fn encode(&self, text: &str) -> Vec<u32> {
        self.tokenizer
            .encode_fast(text, false)
            .unwrap()
            .get_ids()
            .to_vec()
    }

    pub fn text(&self, ids: &[u32]) -> String {
        let mut bytes = Vec::new();
        for id in ids {
            match &self.tokens[*id as usize] {
                TokenText::Bytes(more) => bytes.extend(more),
                TokenText::Markup(tag) if !self.end_ids.contains(id) => bytes.extend(tag.bytes()),
                _ => {}
            }
        }
        String::from_utf8(bytes).unwrap()
    }
}

/// Letters of the byte-level alphabet.
fn alphabet() -> std::collections::HashMap<char, u8> {
    let printable = |byte: u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let moved = ('\u{100}'..).zip((0..=255u8).filter(|byte| !printable(*byte)));
    let own = (0..=255u8)
        .filter(|byte| printable(*byte))
        .map(|byte| (char::from(byte), byte));
    own.chain(moved).collect()
}

/// Ids of a mask's tokens.
pub fn ids(mask: &[u32]) -> Vec<u32> {
    let bit = |id: &u32| mask[*id as usize / 32] >> (id % 32) & 1 == 1;
    (0..mask.len() as u32 * 32).filter(bit).collect()
}
