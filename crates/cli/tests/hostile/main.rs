//! Requests that mean harm: each gets its status in the API's shape, and after each a fixed greedy
//! request gives the same bytes, and nothing runs, waits or holds memory.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "../common/mod.rs"]
mod common;

mod fields;
mod formats;
mod requests;
mod surroundings;
mod table;
mod texts;

use common::canary::{COMPLETIONS, RESPONSES};
use serde_json::{Value, json};

/// A small request of each surface, to which one field is added.
fn base(path: &str) -> Value {
    match path {
        COMPLETIONS => json!({"prompt": "Hello", "max_tokens": 1}),
        RESPONSES => json!({"input": "Hello!", "max_output_tokens": 16}),
        _ => json!({"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 1}),
    }
}
