//! Fields that are accepted without effect, and fields that would change the output but are not
//! implemented. The lists are public so that documentation can print them.

use serde_json::Value;

use crate::error::ApiError;
use crate::fields::Fields;
use crate::surface::Surface;

/// Accepted and without effect: they do not change what the model says.
pub const IGNORED_FIELDS: &[&str] = &[
    "client_metadata",
    "include_obfuscation",
    "metadata",
    "moderation",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "request_id",
    "safety_identifier",
    "service_tier",
    "spaces_between_special_tokens",
    "store",
    "user",
    "verbosity",
    "web_search_options",
];

/// Refused with `unsupported_parameter` unless null or one of the neutral values, given as JSON.
pub const UNSUPPORTED_FIELDS: &[(&str, &[&str])] = &[
    ("allowed_token_ids", &["[]"]),
    ("audio", &[]),
    ("bad_words", &["[]"]),
    ("best_of", &["1"]),
    ("chat_template", &[]),
    ("documents", &["[]"]),
    ("dry_multiplier", &["0"]),
    ("dynatemp_range", &["0"]),
    ("echo", &["false"]),
    ("function_call", &["\"none\"", "\"auto\""]),
    ("functions", &["[]"]),
    ("include_stop_str_in_output", &["false"]),
    ("length_penalty", &["1"]),
    ("logits_processors", &["[]"]),
    ("min_new_tokens", &["0"]),
    ("mirostat", &["0"]),
    ("mm_processor_kwargs", &["{}"]),
    ("modalities", &["[\"text\"]"]),
    ("n_predict", &["-1"]),
    ("n_probs", &["0"]),
    ("no_stop_trim", &["false"]),
    ("prompt_logprobs", &["false", "0"]),
    ("reasoning_format", &["\"auto\"", "\"deepseek\""]),
    ("repeat_penalty", &["1"]),
    ("return_token_ids", &["false"]),
    ("return_tokens_as_token_ids", &["false"]),
    ("samplers", &[]),
    ("separate_reasoning", &["true"]),
    ("skip_special_tokens", &["true"]),
    ("stop_regex", &["[]"]),
    ("structural_tag", &[]),
    ("suffix", &["\"\""]),
    ("tfs_z", &["1"]),
    ("top_a", &["0"]),
    ("truncate_prompt_tokens", &["-1"]),
    ("typical_p", &["1"]),
    ("use_beam_search", &["false"]),
    ("xtc_probability", &["0"]),
];

/// Fields above that completions do take.
const OF_COMPLETIONS: &[&str] = &["best_of", "echo", "suffix"];

/// Refused everywhere but on chat, in the form of the list above.
const OF_CHAT: &[(&str, &[&str])] = &[
    ("add_generation_prompt", &["true"]),
    ("continue_final_message", &["false"]),
];

/// Refuses every field that is set to something with an effect, and is not served on `surface`.
pub(crate) fn refuse_unsupported(body: &Fields, surface: Surface) -> Result<(), ApiError> {
    let of_chat = match surface {
        Surface::Chat => &[],
        _ => OF_CHAT,
    };
    for (name, neutral) in UNSUPPORTED_FIELDS.iter().chain(of_chat) {
        if surface == Surface::Completions && OF_COMPLETIONS.contains(name) {
            continue;
        }
        if let Some(value) = body.peek(name)
            && !neutral.iter().any(|text| same_value(text, value))
        {
            let message = match *name {
                "chat_template" => "a chat template of the request's own is not allowed".to_owned(),
                "functions" | "function_call" => {
                    format!("{name} is not supported; use tools and tool_choice")
                }
                _ if neutral.is_empty() => format!("{name} is not supported; leave it out"),
                _ => format!(
                    "{name} is not supported; leave it out or set it to {}",
                    neutral.join(" or ")
                ),
            };
            return Err(ApiError::unsupported_parameter(name, message));
        }
    }
    Ok(())
}

/// Is `value` the one written as `text`? Numbers compare by value: 1.0 is 1.
fn same_value(text: &str, value: &Value) -> bool {
    match value {
        Value::Number(number) => text.parse().ok() == number.as_f64(),
        other => serde_json::from_str::<Value>(text).is_ok_and(|neutral| neutral == *other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted_disjoint_and_neutral_values_are_json() {
        assert!(IGNORED_FIELDS.is_sorted());
        assert!(UNSUPPORTED_FIELDS.is_sorted());
        for (name, neutral) in UNSUPPORTED_FIELDS {
            assert!(!IGNORED_FIELDS.contains(name), "{name}");
            for text in *neutral {
                let value: Value = serde_json::from_str(text).unwrap();
                assert!(same_value(text, &value), "{name} {text}");
            }
        }
    }
}
