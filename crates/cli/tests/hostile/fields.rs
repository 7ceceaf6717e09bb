//! Numbers at their bounds, and fields that would cost too much.

use serde_json::{Value, json};

use crate::base;
use crate::common::canary::{CHAT, COMPLETIONS, Canary, MESSAGES, RESPONSES};

/// Numbers at and beyond the bounds of a field, as JSON: refused ones, then accepted ones.
const NUMBERS: &[(&str, &[&str], &[&str])] = &[
    (
        "temperature",
        &["-0.001", "2.001", "1e400", "\"1\"", "[]", "true"],
        &["0", "2", "1e-400", "1e-45", "-0.0", "null"],
    ),
    (
        "top_p",
        &["-1", "0", "1.0001", "\"1\"", "{}"],
        &["1", "1e-30", "null"],
    ),
    (
        "top_k",
        &["-2", "1.5", "1e99", "\"1\""],
        &["-1", "0", "1", "1000000000", "10.0", "null"],
    ),
    ("min_p", &["-0.1", "1.1", "\"0\""], &["0", "1", "null"]),
    (
        "presence_penalty",
        &["-2.1", "2.1", "\"0\""],
        &["-2", "2", "null"],
    ),
    (
        "frequency_penalty",
        &["-2.1", "2.1", "[0]"],
        &["-2", "2", "null"],
    ),
    (
        "repetition_penalty",
        &["0", "-1", "1e39", "\"1\""],
        &["1", "0.5", "2", "null"],
    ),
    ("min_tokens", &["-1", "1.5", "\"1\""], &["0", "1", "null"]),
    (
        "max_tokens",
        &["0", "-1", "1.5", "9223372036854775808", "\"10\"", "true"],
        &["1", "1.0"],
    ),
    (
        "seed",
        &["1.5", "\"1\"", "[]"],
        &[
            "0",
            "-1",
            "9223372036854775807",
            "-9223372036854775808",
            "null",
        ],
    ),
    ("ignore_eos", &["1", "\"true\""], &["false", "null"]),
    ("priority", &["\"high\"", "1.5"], &["0", "-5", "null"]),
];

#[test]
fn numbers_at_and_beyond_their_bounds() {
    let canary = Canary::new(&[]);
    for (field, wrong, right) in NUMBERS {
        for value in *wrong {
            let body = base(CHAT).to_string();
            let body = body.replacen('{', &format!("{{\"{field}\": {value}, "), 1);
            // The base has a limit of its own, which a second key would only repeat.
            let body = match *field {
                "max_tokens" => body.replacen(",\"max_tokens\":1}", "}", 1),
                _ => body,
            };
            // 1e400 is no number of JSON at all for some readers.
            let param = Some(*field);
            canary.refuses(CHAT, &body, param);
        }
        for value in *right {
            let mut body = base(CHAT);
            body[field] = serde_json::from_str(value).unwrap();
            let answer = canary.server.post(CHAT, &body.to_string());
            assert_eq!(answer.status, 200, "{field} {value}: {}", answer.body);
        }
        canary.sings(field);
    }
}

#[test]
fn fields_of_every_surface_that_would_cost_too_much() {
    let canary = Canary::new(&[]);
    let big_bias: serde_json::Map<String, Value> =
        (0..100_000).map(|id| (id.to_string(), json!(1))).collect();
    let many_stops = vec!["x"; 10_000];
    let tool = |name: &str| json!({"type": "function", "function": {"name": name}});
    let many_tools: Vec<Value> = (0..1_100).map(|i| tool(&format!("f{i}"))).collect();
    let long_name = tool(&"f".repeat(10_000));
    for (path, field, value, param) in [
        (CHAT, "n", json!(1_000_000_000), "n"),
        (CHAT, "n", json!(0), "n"),
        (CHAT, "n", json!(-1), "n"),
        (COMPLETIONS, "n", json!(1_000_000), "n"),
        (COMPLETIONS, "best_of", json!(1_000_000_000), "best_of"),
        (COMPLETIONS, "prompt", json!(vec!["x"; 200_000]), "prompt"),
        (COMPLETIONS, "prompt", json!([]), "prompt"),
        (COMPLETIONS, "prompt", json!([""]), "prompt[0]"),
        (COMPLETIONS, "prompt", json!(""), "prompt"),
        (COMPLETIONS, "prompt", json!([[]]), "prompt[0]"),
        (COMPLETIONS, "prompt", json!([4_000_000]), "prompt"),
        (COMPLETIONS, "prompt", json!([-1]), "prompt[0]"),
        (COMPLETIONS, "prompt", json!([1.5]), "prompt[0]"),
        (COMPLETIONS, "prompt", json!([1_u64 << 40]), "prompt[0]"),
        (COMPLETIONS, "prompt", json!(vec![1; 40_000]), "prompt"),
        (COMPLETIONS, "suffix", json!("end"), "suffix"),
        (CHAT, "logit_bias", Value::Object(big_bias), "logit_bias"),
        (CHAT, "logit_bias", json!({"5": 101}), "logit_bias.5"),
        (CHAT, "logit_bias", json!({"999999999": 1}), "logit_bias"),
        (CHAT, "stop", json!(many_stops), "stop"),
        (CHAT, "stop", json!("x".repeat(1 << 20)), "stop[0]"),
        (CHAT, "stop", json!([""]), "stop[0]"),
        (CHAT, "stop_token_ids", json!([-1]), "stop_token_ids[0]"),
        (CHAT, "top_logprobs", json!(21), "top_logprobs"),
        (CHAT, "tools", json!(many_tools), "tools"),
        (CHAT, "tools", json!([long_name]), "tools[0].function.name"),
        (
            CHAT,
            "tools",
            json!([tool("a\nb")]),
            "tools[0].function.name",
        ),
        (
            CHAT,
            "tools",
            json!([tool("a>b")]),
            "tools[0].function.name",
        ),
        (
            CHAT,
            "chat_template",
            json!("{% for i in range(10**9) %}x{% endfor %}"),
            "chat_template",
        ),
        (
            CHAT,
            "chat_template_kwargs",
            json!({"tokenize": true}),
            "chat_template_kwargs.tokenize",
        ),
        (
            CHAT,
            "chat_template_kwargs",
            json!({"x": "y".repeat(2 << 20)}),
            "chat_template_kwargs.x",
        ),
        (CHAT, "cache_salt", json!(""), "cache_salt"),
        (RESPONSES, "input", json!([]), "input"),
        (RESPONSES, "input", json!("word ".repeat(20_000)), "input"),
        (RESPONSES, "background", json!(true), "background"),
        (RESPONSES, "conversation", json!("c"), "conversation"),
        (MESSAGES, "max_tokens", json!(0), "max_tokens"),
        (MESSAGES, "messages", json!([]), "messages"),
        (
            MESSAGES,
            "thinking",
            json!({"type": "hard"}),
            "thinking.type",
        ),
    ] {
        let mut body = base(path);
        body[field] = value;
        canary.refuses(path, &body.to_string(), Some(param));
        body["stream"] = true.into();
        canary.refuses(path, &body.to_string(), Some(param));
    }
}
