//! Fields that are accepted without effect, and fields that would change the output but are not
//! implemented. The lists are public so that documentation can print them.

use serde_json::Value;

use super::fields::Fields;
use crate::error::ApiError;

/// Accepted and without effect: they do not change what the model says.
pub const IGNORED_FIELDS: &[&str] = &[
    "cache_salt",
    "client_metadata",
    "include_obfuscation",
    "metadata",
    "moderation",
    "prediction",
    "priority",
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
    ("add_generation_prompt", &["true"]),
    ("allowed_token_ids", &["[]"]),
    ("audio", &[]),
    ("bad_words", &["[]"]),
    ("best_of", &["1"]),
    ("chat_template", &[]),
    ("continue_final_message", &["false"]),
    ("documents", &["[]"]),
    ("dry_multiplier", &["0"]),
    ("dynatemp_range", &["0"]),
    ("ebnf", &[]),
    ("echo", &["false"]),
    ("function_call", &["\"none\"", "\"auto\""]),
    ("functions", &["[]"]),
    ("grammar", &["\"\""]),
    ("guided_choice", &[]),
    ("guided_grammar", &[]),
    ("guided_json", &[]),
    ("guided_regex", &[]),
    ("include_reasoning", &["true"]),
    ("include_stop_str_in_output", &["false"]),
    ("json_schema", &[]),
    ("length_penalty", &["1"]),
    ("logits_processors", &["[]"]),
    ("logprobs", &["false", "0"]),
    ("min_new_tokens", &["0"]),
    ("mirostat", &["0"]),
    ("mm_processor_kwargs", &["{}"]),
    ("modalities", &["[\"text\"]"]),
    ("n_probs", &["0"]),
    ("no_stop_trim", &["false"]),
    ("prompt_logprobs", &["false", "0"]),
    ("reasoning_budget", &["-1"]),
    ("regex", &[]),
    ("repeat_penalty", &["1"]),
    ("return_token_ids", &["false"]),
    ("return_tokens_as_token_ids", &["false"]),
    ("samplers", &[]),
    ("separate_reasoning", &["true"]),
    ("skip_special_tokens", &["true"]),
    ("stop_regex", &["[]"]),
    ("structural_tag", &[]),
    ("structured_outputs", &["{}"]),
    ("suffix", &["\"\""]),
    ("tfs_z", &["1"]),
    ("thinking_budget", &["-1"]),
    ("thinking_token_budget", &["-1"]),
    ("top_a", &["0"]),
    ("top_logprobs", &["0"]),
    ("truncate_prompt_tokens", &["-1"]),
    ("typical_p", &["1"]),
    ("use_beam_search", &["false"]),
    ("xtc_probability", &["0"]),
];

/// Refuses every unsupported field that is set to something with an effect.
pub(crate) fn refuse_unsupported(body: &Fields) -> Result<(), ApiError> {
    for (name, neutral) in UNSUPPORTED_FIELDS {
        if let Some(value) = body.get(name)
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
