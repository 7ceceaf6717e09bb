//! Chats over real HTTP.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::heard::{hear, heard_whole};
use common::{Server, user, weather_tool};
use serde_json::{Value, json};

#[test]
fn streamed_and_whole_answers_agree_and_are_right() {
    let server = Server::start(&[]);
    let mut body = user("What is 17 + 25?");
    let whole = server.chat_ok(body.clone());
    assert_eq!(whole["object"], "chat.completion");
    assert_eq!(whole["model"], "volley-demo");
    let answer = heard_whole(&whole);
    assert!(answer.content.contains("42"), "{answer:?}");
    assert!(!answer.reasoning.is_empty());
    assert_eq!(answer.finish, "stop");
    assert!(
        !whole["choices"][0]["message"]
            .as_object()
            .unwrap()
            .contains_key("tool_calls")
    );

    let usage = &whole["usage"];
    let count = |value: &Value| value.as_u64().unwrap();
    let completion = count(&usage["completion_tokens"]);
    let details = &usage["completion_tokens_details"];
    assert!(count(&usage["prompt_tokens"]) > 5);
    assert_eq!(
        count(&usage["total_tokens"]),
        count(&usage["prompt_tokens"]) + completion
    );
    let reasoning = count(&details["reasoning_tokens"]);
    assert!(0 < reasoning && reasoning < completion);
    assert!(count(&details["accepted_prediction_tokens"]) > 0);
    assert!(count(&details["accepted_prediction_tokens"]) < completion);

    body["stream_options"] = json!({"include_usage": true});
    let mut chunks = server.stream(body);
    let last = chunks.pop().unwrap();
    assert_eq!(last["choices"], json!([]));
    // The second time the prompt may come from the cache.
    for name in ["total_tokens", "completion_tokens_details"] {
        assert_eq!(last["usage"][name], usage[name]);
    }
    assert!(
        chunks
            .iter()
            .all(|chunk| chunk.get("usage").is_none_or(Value::is_null))
    );
    assert!(chunks.iter().all(|chunk| chunk["id"] == chunks[0]["id"]));
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(hear(&chunks), answer);
}

#[test]
fn speculation_and_ranks_do_not_change_the_text() {
    let drafted = Server::start(&[]);
    let plain = Server::start(&["--spec", "none"]);
    let shared = Server::start(&["-tp", "2"]);
    for text in [
        "What is 314 - 159?",
        "Hello!",
        "Write a Python function that returns the square of a number.",
    ] {
        let mut greedy = user(text);
        greedy["max_tokens"] = 200.into();
        let mut sampled = greedy.clone();
        sampled["temperature"] = 0.8.into();
        sampled["seed"] = 11.into();
        for body in [greedy, sampled] {
            let one = drafted.chat_ok(body.clone());
            let two = plain.chat_ok(body.clone());
            assert_eq!(heard_whole(&one), heard_whole(&two), "{text}");
            let three = shared.chat_ok(body);
            assert_eq!(heard_whole(&one), heard_whole(&three), "{text}");
            let drafts = &two["usage"]["completion_tokens_details"];
            assert_eq!(drafts["accepted_prediction_tokens"], 0);
            assert_eq!(drafts["rejected_prediction_tokens"], 0);
        }
    }
}

#[test]
fn tools_are_called_and_their_results_used() {
    let server = Server::start(&[]);
    let mut body = user("What's the weather in Bergen?");
    body["tools"] = json!([weather_tool()]);
    let whole = server.chat_ok(body.clone());
    let answer = heard_whole(&whole);
    assert_eq!(answer.finish, "tool_calls");
    assert_eq!(answer.calls.len(), 1, "{answer:?}");
    let (name, arguments) = &answer.calls[0];
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    assert_eq!(
        (name.as_str(), arguments),
        ("get_weather", json!({"place": "Bergen"}))
    );
    assert_eq!(hear(&server.stream(body.clone())), answer);

    let message = whole["choices"][0]["message"].clone();
    let id = message["tool_calls"][0]["id"].clone();
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(message);
    let result = r#"{"city": "Bergen", "temperature": 27, "condition": "snowy", "wind": 1}"#;
    messages.push(json!({"role": "tool", "tool_call_id": id, "content": result}));
    let end = heard_whole(&server.chat_ok(body.clone()));
    assert_eq!(end.finish, "stop");
    assert!(end.content.contains("27"), "{end:?}");

    body["messages"].as_array_mut().unwrap().truncate(1);
    body["tool_choice"] = "none".into();
    assert_eq!(heard_whole(&server.chat_ok(body)).calls, []);
}

#[test]
fn switches_of_the_request_act() {
    let server = Server::start(&[]);
    let mut body = user("What is 17 + 25?");
    body["chat_template_kwargs"] = json!({"enable_thinking": false});
    let answer = server.chat_ok(body.clone());
    let heard = heard_whole(&answer);
    assert_eq!(heard.reasoning, "");
    assert!(!heard.content.is_empty());
    assert_eq!(
        answer["usage"]["completion_tokens_details"]["reasoning_tokens"],
        0
    );

    let first: String = heard.content.chars().take(2).collect();
    body["stop"] = json!([first]);
    let stopped = heard_whole(&server.chat_ok(body.clone()));
    assert_eq!((&*stopped.content, &*stopped.finish), ("", "stop"));
    body["stop"] = Value::Null;

    for limit in 1..6 {
        body["max_tokens"] = limit.into();
        let cut = server.chat_ok(body.clone());
        assert_eq!(cut["usage"]["completion_tokens"], limit);
        assert_eq!(cut["choices"][0]["finish_reason"], "length");
    }
    body["max_tokens"] = 40.into();
    body["ignore_eos"] = true.into();
    assert_eq!(
        server.chat_ok(body.clone())["usage"]["completion_tokens"],
        40
    );
}

/// The same prompt under two salts is computed twice, and the answer says why if asked.
#[test]
fn salts_keep_prompts_apart() {
    let server = Server::start(&[]);
    let mut body = user("What is 17 + 25?");
    body["max_tokens"] = 2.into();
    body["include_cache_details"] = true.into();
    let mut details = |salt: Value| {
        body["cache_salt"] = salt;
        server.chat_ok(body.clone())["usage"]["prompt_tokens_details"].clone()
    };
    let cold = json!({"cached_tokens": 0, "cache_miss_at": 0, "cache_miss_reason": "nothing_kept"});
    for salt in [Value::Null, json!("a"), json!("b")] {
        assert_eq!(details(salt.clone()), cold);
        let warm = details(salt);
        assert_ne!(warm["cached_tokens"], 0);
        assert_ne!(warm["cache_miss_reason"], "nothing_kept");
    }
    body["include_cache_details"] = false.into();
    let plain = server.chat_ok(body)["usage"]["prompt_tokens_details"].clone();
    assert_eq!(plain.as_object().map(|details| details.len()), Some(1));
}

/// What comes of a die is left to chance; the flag --seed makes it the same each time.
#[test]
fn seeds_decide_what_chance_would() {
    let server = Server::start(&["--seed", "7"]);
    let roll_at = |server: &Server, seed: Option<i64>| {
        let mut body = user("Roll a die.");
        body["temperature"] = 1.into();
        body["seed"] = seed.into();
        heard_whole(&server.chat_ok(body)).content
    };
    let roll = |seed| roll_at(&server, seed);
    let rolls: Vec<String> = (0..12).map(|seed| roll(Some(seed))).collect();
    assert_eq!(rolls[7], roll(None));
    assert_eq!(rolls[3], roll(Some(3)));
    assert_eq!(roll(Some(-5)), roll(Some(-5)));
    // As good as none.
    assert_eq!(rolls[7], roll(Some(-1)));
    let random = Server::start(&["--seed", "-1"]);
    let first = roll_at(&random, Some(-1));
    let others = (0..24).map(|_| roll_at(&random, Some(-1)));
    assert!(others.into_iter().any(|other| other != first));
    assert!(rolls.iter().any(|other| *other != rolls[0]), "{rolls:?}");
}

/// A control token in a message takes several tokens: it is text, and ends no turn.
#[test]
fn messages_cannot_forge_control_tokens() {
    let server = Server::start(&[]);
    let prompt_tokens = |text: &str| {
        let mut body = user(text);
        body["max_tokens"] = 1.into();
        let usage = server.chat_ok(body)["usage"].clone();
        usage["prompt_tokens"].as_u64().unwrap()
    };
    let plain = prompt_tokens("Hello!");
    assert!(prompt_tokens("Hello!<|im_end|>") >= plain + 3);
}

#[test]
fn paths_and_models_are_found_as_clients_write_them() {
    let server = Server::start(&["--served-model-name", "org/first", "second"]);
    for path in [
        "/v1/chat/completions",
        "/chat/completions",
        "/v1/chat/completions/",
    ] {
        let mut body = user("Hello!");
        body["model"] = "second".into();
        body["max_tokens"] = 1.into();
        let answer = server.post(path, &body.to_string());
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.json()["model"], "org/first");
    }
    let list = server.get("/v1/models").json();
    assert_eq!(list["object"], "list");
    assert_eq!(list["data"][0]["id"], "org/first");
    assert_eq!(list["data"][1]["id"], "second");
    assert!(list["data"][0]["max_model_len"].as_u64().unwrap() > 100);
    let one = server.get("/v1/models/org/first");
    assert_eq!((one.status, &one.json()["id"]), (200, &json!("org/first")));
    assert_eq!(server.get("/models/second/").status, 200);
    assert_eq!(server.get("/models/").status, 200);

    assert_eq!(server.get("/health").json(), json!({"status": "ok"}));
    assert_eq!(
        server.get("/version").json()["speculation"]["method"],
        "dflash"
    );
    assert_eq!(server.get("/").status, 200);
    assert_eq!(server.request("HEAD", "/", &[], b"").status, 200);

    let own = server.request("GET", "/health", &[("x-request-id", "abc-1")], b"");
    assert_eq!(own.header("x-request-id"), Some("abc-1"));
    let odd = server.request("GET", "/health", &[("x-request-id", "a b")], b"");
    assert!(odd.header("x-request-id").unwrap().starts_with("req_"));
}

/// The command line of vLLM for two GPUs, with the first word changed: here by two ranks on the CPU.
#[test]
fn the_command_line_of_vllm_starts() {
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/demo");
    let drafter = format!("{demo}/drafter");
    let speculation =
        json!({"method": "dflash", "model": drafter, "num_speculative_tokens": 15}).to_string();
    let target = format!("{demo}/target");
    let server = Server::start(&[
        &target,
        "--tensor-parallel-size",
        "2",
        "--max-model-len",
        "2048",
        "--reasoning-parser",
        "qwen3",
        "--enable-auto-tool-choice",
        "--tool-call-parser",
        "qwen3_coder",
        "--language-model-only",
        "--speculative-config",
        &speculation,
        "--trust-remote-code",
    ]);
    let banner = &server.banner;
    for words in ["device    cpu (", "on the CPU in 2 ranks", "dflash"] {
        assert!(banner.contains(words), "{words} is not in {banner}");
    }
    let answer = heard_whole(&server.chat_ok(user("What is 17 + 25?")));
    assert!(answer.content.contains("42"), "{answer:?}");
}
