//! `GET /v1/models`.

use schemars::JsonSchema;
use serde::Serialize;

/// One served model. The fields serve readers of OpenAI's and of Anthropic's list alike.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ModelInfo {
    /// Name that requests use.
    pub id: String,
    object: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    display_name: String,
    /// Unix time in seconds.
    pub created: u64,
    created_at: String,
    owned_by: &'static str,
    /// Longest sequence, prompt and output together, in tokens.
    pub max_model_len: usize,
    /// The same in Anthropic's words.
    max_input_tokens: usize,
    max_tokens: usize,
    lifecycle: &'static str,
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
            display_name: id.clone(),
            id,
            object: "model",
            kind: "model",
            created,
            created_at: rfc3339(created),
            owned_by: "volley",
            max_model_len,
            max_input_tokens: max_model_len,
            max_tokens: max_model_len,
            lifecycle: "active",
            parent: None,
            permission: [],
        }
    }
}

/// The list of all served models.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ModelList {
    object: &'static str,
    /// Served models.
    pub data: Vec<ModelInfo>,
    has_more: bool,
    first_id: Option<String>,
    last_id: Option<String>,
}

impl ModelList {
    /// A list of these models.
    pub fn new(data: Vec<ModelInfo>) -> Self {
        Self {
            object: "list",
            has_more: false,
            first_id: data.first().map(|model| model.id.clone()),
            last_id: data.last().map(|model| model.id.clone()),
            data,
        }
    }
}

/// Unix seconds as `2026-01-31T12:00:00Z`.
fn rfc3339(seconds: u64) -> String {
    const SECONDS_PER_DAY: u64 = 86_400;
    let (days, second) = (seconds / SECONDS_PER_DAY, seconds % SECONDS_PER_DAY);
    // Years are counted from March on, so that the leap day comes last; 400 years repeat.
    let day = days + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn dates_are_right() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (1_772_323_200, "2026-03-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ];
        for (seconds, text) in cases {
            assert_eq!(rfc3339(seconds), text);
        }
    }
}
