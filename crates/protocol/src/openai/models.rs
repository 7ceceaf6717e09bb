//! `GET /v1/models` (API section 1.13).

use serde::Serialize;

/// One served model. The fields serve readers of OpenAI's and of Anthropic's list alike.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelInfo {
    /// Name that requests use.
    pub id: String,
    object: &'static str,
    /// Unix time in seconds.
    pub created: u64,
    owned_by: &'static str,
    /// Longest sequence, prompt and output together, in tokens.
    pub max_model_len: usize,
    root: String,
    parent: Option<String>,
    permission: [(); 0],
}

impl ModelInfo {
    /// A model of this name that was loaded at `created` (Unix seconds).
    pub fn new(id: impl Into<String>, created: u64, max_model_len: usize) -> Self {
        let id = id.into();
        Self {
            root: id.clone(),
            id,
            object: "model",
            created,
            owned_by: "volley",
            max_model_len,
            parent: None,
            permission: [],
        }
    }
}

/// The list of all served models.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelList {
    object: &'static str,
    /// Served models.
    pub data: Vec<ModelInfo>,
}

impl ModelList {
    /// A list of these models.
    pub fn new(data: Vec<ModelInfo>) -> Self {
        Self {
            object: "list",
            data,
        }
    }
}
