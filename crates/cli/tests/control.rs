//! What holds the output of a chat, over real HTTP: formats, forced calls, thoughts under a
//! budget, sampling fields, logprobs.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{Server, user, weather_tool};
use serde_json::{Value, json};

/// A chat without thoughts.
fn quick(text: &str) -> Value {
    let mut body = user(text);
    body["enable_thinking"] = false.into();
    body["max_tokens"] = 200.into();
    body
}

fn content(response: &Value) -> &str {
    response["choices"][0]["message"]["content"]
        .as_str()
        .unwrap()
}

fn finish(response: &Value) -> &str {
    response["choices"][0]["finish_reason"].as_str().unwrap()
}

/// Names and arguments of the calls in an answer.
fn calls(response: &Value) -> Vec<(String, Value)> {
    let calls = response["choices"][0]["message"]["tool_calls"].as_array();
    let calls = calls.into_iter().flatten().map(|call| {
        let arguments = call["function"]["arguments"].as_str().unwrap();
        let name = call["function"]["name"].as_str().unwrap();
        (name.to_owned(), serde_json::from_str(arguments).unwrap())
    });
    calls.collect()
}

fn streamed_content(chunks: &[Value]) -> String {
    let choices = chunks
        .iter()
        .flat_map(|chunk| chunk["choices"].as_array().unwrap());
    choices
        .filter_map(|choice| choice["delta"]["content"].as_str())
        .collect()
}

fn refused(server: &Server, body: Value, param: &str) {
    let answer = server.chat(body.clone());
    assert_eq!(answer.status, 400, "{body}: {}", answer.body);
    let error = answer.json()["error"].clone();
    assert!(
        error["param"].as_str().unwrap().starts_with(param),
        "{body}: {error}"
    );
}

#[test]
fn formats_hold_the_answer_whatever_the_speculation() {
    let server = Server::start(&[]);
    let schema = json!({
        "type": "object",
        "properties": {
            "answer": {"type": "integer"},
            "unit": {"enum": ["none", "euros"]},
            "steps": {"type": "array", "maxItems": 2, "items": {"type": "string", "maxLength": 8}},
        },
        "required": ["answer", "unit", "steps"],
        "additionalProperties": false,
    });
    let format = json!({"type": "json_schema", "json_schema":
        {"name": "sum", "strict": true, "schema": schema}});
    for thinking in [false, true] {
        let mut body = quick("What is 17 + 25?");
        body["enable_thinking"] = thinking.into();
        body["response_format"] = format.clone();
        let answer = server.chat_ok(body.clone());
        let value: Value = serde_json::from_str(content(&answer)).unwrap();
        assert!(value["answer"].is_i64(), "{value}");
        assert!(["none", "euros"].contains(&value["unit"].as_str().unwrap()));
        assert!(value["steps"].as_array().unwrap().len() <= 2);
        assert_eq!(value.as_object().unwrap().len(), 3);
        assert_eq!(finish(&answer), "stop");
        let thoughts = &answer["choices"][0]["message"]["reasoning_content"];
        assert_eq!(thoughts.is_string(), thinking, "{thoughts}");
        let details = &answer["usage"]["completion_tokens_details"];
        assert!(details["accepted_prediction_tokens"].as_u64().unwrap() > 0);

        assert_eq!(
            streamed_content(&server.stream(body.clone())),
            content(&answer)
        );
        for speculative in [json!({"method": "none"}), json!({"max_drafts": 3})] {
            body["speculative"] = speculative;
            assert_eq!(content(&server.chat_ok(body.clone())), content(&answer));
        }
    }

    let mut body = quick("Which is larger?");
    body["guided_choice"] = json!(["the first", "the second"]);
    assert!(["the first", "the second"].contains(&content(&server.chat_ok(body))));
    let mut body = quick("Give me a code.");
    body["guided_regex"] = "[A-F]{3}-[0-9]{4}".into();
    let code = server.chat_ok(body);
    let code = content(&code);
    assert!(code.len() == 8 && code.as_bytes()[3] == b'-', "{code}");
    let mut body = quick("Count.");
    body["guided_grammar"] = "root ::= digit (\", \" digit)*\ndigit ::= [1-3]".into();
    body["max_tokens"] = 9.into();
    let count = server.chat_ok(body);
    assert!(content(&count).starts_with(['1', '2', '3']), "{count}");
    let mut body = quick("An object, please.");
    body["response_format"] = json!({"type": "json_object"});
    assert!(content(&server.chat_ok(body)).starts_with('{'));
}

#[test]
fn a_format_that_makes_no_sense_is_refused_and_hurts_nobody() {
    let server = Server::start(&[]);
    let before = server.chat_ok(quick("What is 2 + 2?"));
    let schema = |schema: Value| {
        json!({"type": "json_schema", "json_schema":
            {"name": "x", "strict": true, "schema": schema}})
    };
    for format in [
        schema(json!({"type": "hiccup"})),
        schema(json!({"type": "string", "pattern": "("})),
        schema(json!({"type": "integer", "minimum": 2, "maximum": 1})),
        schema(json!({"not": {}})),
        schema(json!({"$ref": "#/nowhere"})),
    ] {
        let mut body = quick("Hello!");
        body["response_format"] = format;
        refused(&server, body, "response_format");
    }
    for pattern in [
        "(",
        "a(?=b)",
        &"(".repeat(30_000),
        "((a{1,999}){1,999}){1,999}",
    ] {
        let mut body = quick("Hello!");
        body["guided_regex"] = pattern.into();
        let answer = server.chat(body);
        assert!([200, 400].contains(&answer.status), "{}", answer.body);
    }
    let mut body = quick("Hello!");
    body["guided_grammar"] = "root ::= \"a\"\nroot ::= \"b\"".into();
    refused(&server, body, "response_format");
    assert_eq!(
        content(&server.chat_ok(quick("What is 2 + 2?"))),
        content(&before)
    );
    server.settles();
}

#[test]
fn calls_are_forced_and_keep_to_their_schema() {
    let server = Server::start(&[]);
    let pick = json!({"type": "function", "function": {"name": "pick", "strict": true,
        "parameters": {"type": "object",
            "properties": {"id": {"type": "integer"}, "unit": {"enum": ["km", "m"]}},
            "required": ["id", "unit"], "additionalProperties": false}}});
    let picked = |arguments: &Value| {
        assert!(arguments["id"].is_i64(), "{arguments}");
        assert!(["km", "m"].contains(&arguments["unit"].as_str().unwrap()));
    };
    for thinking in [false, true] {
        let mut body = quick("Hello!");
        body["enable_thinking"] = thinking.into();
        body["max_tokens"] = 400.into();
        body["tools"] = json!([weather_tool(), pick]);
        assert_eq!(calls(&server.chat_ok(body.clone())), []);

        body["tool_choice"] = "required".into();
        body["parallel_tool_calls"] = false.into();
        let answer = server.chat_ok(body.clone());
        assert_eq!(calls(&answer).len(), 1, "{answer}");
        assert_eq!(finish(&answer), "tool_calls");

        body["tool_choice"] = json!({"type": "function", "function": {"name": "pick"}});
        let answer = server.chat_ok(body.clone());
        let [(name, arguments)] = &calls(&answer)[..] else {
            panic!("{answer}")
        };
        assert_eq!(name, "pick");
        picked(arguments);
        body["speculative"] = json!({"method": "none"});
        assert_eq!(calls(&server.chat_ok(body.clone())), calls(&answer));

        body["tool_choice"] = "none".into();
        assert_eq!(calls(&server.chat_ok(body)), []);
    }

    // Strict functions hold calls that nobody forces, too.
    let mut body = quick("What's the weather in Bergen?");
    let mut weather = weather_tool();
    weather["function"]["strict"] = true.into();
    body["tools"] = json!([weather]);
    let answer = server.chat_ok(body);
    assert_eq!(
        calls(&answer),
        [("get_weather".to_owned(), json!({"place": "Bergen"}))]
    );

    // All of the tokens may go into the thoughts.
    let mut body = user("Hello!");
    body["max_tokens"] = 4.into();
    body["tools"] = json!([pick]);
    body["tool_choice"] = "required".into();
    let answer = server.chat_ok(body);
    assert_eq!((finish(&answer), calls(&answer).len()), ("length", 0));
}

#[test]
fn a_thinking_budget_closes_the_thoughts() {
    let server = Server::start(&[]);
    let mut body = user("What is 347 + 58?");
    body["max_tokens"] = 300.into();
    let free = server.chat_ok(body.clone());
    assert_eq!(free["choices"][0]["closed_by"], "model");
    let thoughts = |answer: &Value| {
        answer["usage"]["completion_tokens_details"]["reasoning_tokens"]
            .as_u64()
            .unwrap()
    };
    assert!(thoughts(&free) > 40);
    for (field, value) in [
        ("thinking_budget", json!(16)),
        ("thinking", json!({"type": "enabled", "budget_tokens": 16})),
    ] {
        let mut body = body.clone();
        body[field] = value;
        let answer = server.chat_ok(body.clone());
        assert_eq!(answer["choices"][0]["closed_by"], "budget");
        assert!((16..=18).contains(&thoughts(&answer)), "{answer}");
        assert!(!content(&answer).contains("think"), "{answer}");
        assert!(!content(&answer).is_empty());
        let chunks = server.stream(body.clone());
        assert_eq!(streamed_content(&chunks), content(&answer));
        assert_eq!(chunks.last().unwrap()["choices"][0]["closed_by"], "budget");
        body["speculative"] = json!({"method": "none"});
        assert_eq!(content(&server.chat_ok(body)), content(&answer));
    }
    let mut body = body;
    body["thinking_budget"] = 250.into();
    let generous = server.chat_ok(body);
    assert_eq!(
        generous["choices"][0]["message"],
        free["choices"][0]["message"]
    );
}

#[test]
fn logprobs_cover_the_text_and_are_the_targets() {
    let server = Server::start(&[]);
    let mut body = user("What is 17 + 25?");
    body["logprobs"] = true.into();
    body["top_logprobs"] = 3.into();
    let answer = server.chat_ok(body.clone());
    let entries = answer["choices"][0]["logprobs"]["content"]
        .as_array()
        .unwrap()
        .clone();
    let text = |entries: &[Value]| {
        let bytes = entries
            .iter()
            .flat_map(|entry| entry["bytes"].as_array().unwrap());
        let bytes: Vec<u8> = bytes.map(|byte| byte.as_u64().unwrap() as u8).collect();
        String::from_utf8(bytes).unwrap()
    };
    assert_eq!(text(&entries), content(&answer));
    for entry in &entries {
        let top = entry["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        // Greedy: the likeliest token is the one that came.
        assert_eq!(top[0]["token"], entry["token"]);
        assert_eq!(top[0]["logprob"], entry["logprob"]);
        let numbers: Vec<f64> = top.iter().map(|t| t["logprob"].as_f64().unwrap()).collect();
        assert!(numbers.is_sorted_by(|a, b| a >= b) && numbers[0] <= 0.0);
    }
    let chunks = server.stream(body.clone());
    let choices = chunks
        .iter()
        .map(|chunk| &chunk["choices"][0]["logprobs"]["content"]);
    let streamed: Vec<Value> = choices
        .filter_map(Value::as_array)
        .flatten()
        .cloned()
        .collect();
    assert_eq!(streamed, entries);

    body["speculative"] = json!({"method": "none"});
    let plain = server.chat_ok(body);
    let plain = plain["choices"][0]["logprobs"]["content"]
        .as_array()
        .unwrap();
    for (one, other) in entries.iter().zip(plain) {
        assert_eq!(one["token"], other["token"]);
        let difference = one["logprob"].as_f64().unwrap() - other["logprob"].as_f64().unwrap();
        assert!(difference.abs() < 1e-3, "{one} {other}");
    }

    let completion = json!({"prompt": "1 + 1 =", "max_tokens": 6, "temperature": 0, "logprobs": 2});
    let answer = server
        .post("/v1/completions", &completion.to_string())
        .json();
    let lists = &answer["choices"][0]["logprobs"];
    let tokens = lists["tokens"].as_array().unwrap();
    let joined: String = tokens.iter().map(|token| token.as_str().unwrap()).collect();
    assert_eq!(joined, answer["choices"][0]["text"]);
    assert_eq!(
        lists["token_logprobs"].as_array().unwrap().len(),
        tokens.len()
    );
    assert_eq!(
        lists["top_logprobs"].as_array().unwrap().len(),
        tokens.len()
    );
}

#[test]
fn several_choices_have_seeds_of_their_own() {
    let server = Server::start(&[]);
    let mut body = quick("Tell me about the Vinto basket.");
    body["guided_regex"] = "[a-z]{8}".into();
    body["temperature"] = 2.into();
    body["seed"] = 7.into();
    body["max_tokens"] = 24.into();
    let alone = server.chat_ok(body.clone());
    body["n"] = 4.into();
    let answer = server.chat_ok(body.clone());
    let choices = answer["choices"].as_array().unwrap();
    let texts: Vec<&Value> = choices
        .iter()
        .map(|choice| &choice["message"]["content"])
        .collect();
    assert_eq!(
        choices
            .iter()
            .map(|c| c["index"].as_u64().unwrap())
            .collect::<Vec<_>>(),
        [0, 1, 2, 3]
    );
    assert_eq!(texts[0], &alone["choices"][0]["message"]["content"]);
    assert!(texts[1..].iter().any(|text| *text != texts[0]), "{texts:?}");
    assert_eq!(
        answer["usage"]["prompt_tokens"],
        alone["usage"]["prompt_tokens"]
    );
    assert_eq!(server.chat_ok(body)["choices"], answer["choices"]);
}

#[test]
fn sampling_fields_act_on_drafted_tokens_too() {
    let server = Server::start(&[]);
    let plain = server.chat_ok(quick("What is 17 + 25?"));
    let cases = [
        ("repetition_penalty", json!(1.8)),
        ("presence_penalty", json!(2.0)),
        ("frequency_penalty", json!(-2.0)),
        ("frequency_penalty", json!(2.0)),
    ];
    let mut changed = 0;
    for (field, value) in cases {
        let mut body = quick("What is 17 + 25?");
        body["max_tokens"] = 40.into();
        body[field] = value;
        let drafted = server.chat_ok(body.clone());
        body["speculative"] = json!({"method": "none"});
        assert_eq!(content(&server.chat_ok(body)), content(&drafted), "{field}");
        changed += usize::from(content(&drafted) != content(&plain));
    }
    assert!(changed > 0);

    let ids = |text: &str| {
        let body = json!({"prompt": text}).to_string();
        server.post("/tokenize", &body).json()["tokens"]
            .as_array()
            .unwrap()
            .clone()
    };
    let first = ids(content(&plain))[0].clone();
    let mut body = quick("What is 17 + 25?");
    body["logit_bias"] = json!({first.to_string(): -100});
    let other = server.chat_ok(body.clone());
    assert!(!content(&other).starts_with(content(&plain)));
    body["speculative"] = json!({"method": "none"});
    assert_eq!(content(&server.chat_ok(body)), content(&other));

    let mut body = quick("What is 17 + 25?");
    body["stop_token_ids"] = json!([first]);
    let stopped = server.chat_ok(body.clone());
    assert_eq!((content(&stopped), finish(&stopped)), ("", "stop"));
    body["min_tokens"] = 5.into();
    let later = server.chat_ok(body);
    assert!(later["usage"]["completion_tokens"].as_u64().unwrap() > 5);

    let mut body = quick("What is 17 + 25?");
    let count = plain["usage"]["completion_tokens"].as_u64().unwrap();
    body["min_tokens"] = (count + 10).into();
    let longer = server.chat_ok(body);
    assert!(longer["usage"]["completion_tokens"].as_u64().unwrap() > count + 9);
}

#[test]
fn an_answer_that_repeats_itself_without_end_is_ended() {
    let server = Server::start(&[]);
    let mut body = quick("Hello!");
    let token = json!({"prompt": " the"}).to_string();
    let id = server.post("/tokenize", &token).json()["tokens"][0].to_string();
    body["logit_bias"] = json!({id: 100});
    body["max_tokens"] = 1000.into();
    let answer = server.chat_ok(body.clone());
    assert_eq!(finish(&answer), "length");
    assert_eq!(answer["choices"][0]["stop_reason"], "repetition");
    assert_eq!(answer["usage"]["completion_tokens"], 512);
    let chunks = server.stream(body.clone());
    assert_eq!(
        chunks.last().unwrap()["choices"][0]["stop_reason"],
        "repetition"
    );
    body["ignore_eos"] = true.into();
    let answer = server.chat_ok(body);
    assert_eq!(answer["usage"]["completion_tokens"], 1000);
    assert!(answer["choices"][0].get("stop_reason").is_none());
}
