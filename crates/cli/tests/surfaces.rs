//! Every endpoint over real HTTP, streamed and not.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{Server, user, weather_tool};
use serde_json::{Value, json};

/// Events of a stream as name and data; the data of a nameless one that is no JSON is left out.
fn events(body: &str) -> Vec<(String, Value)> {
    let mut events = Vec::new();
    for event in body.split("\n\n").filter(|event| !event.is_empty()) {
        let mut name = String::new();
        for line in event.lines().filter(|line| !line.starts_with(':')) {
            if let Some(text) = line.strip_prefix("event: ") {
                name = text.to_owned();
            } else {
                let data = line.strip_prefix("data: ").unwrap();
                if data != "[DONE]" {
                    events.push((name.clone(), serde_json::from_str(data).unwrap()));
                }
            }
        }
    }
    events
}

fn post(server: &Server, path: &str, body: &Value) -> Value {
    let answer = server.post(path, &body.to_string());
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    answer.json()
}

fn stream(server: &Server, path: &str, mut body: Value) -> Vec<(String, Value)> {
    body["stream"] = true.into();
    let answer = server.post(path, &body.to_string());
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    events(&answer.body)
}

#[test]
fn completions_take_every_form_of_prompt() {
    let server = Server::start(&[]);
    let path = "/v1/completions";
    let text = "def square(x):\n    return";
    let body = json!({"prompt": text, "max_tokens": 12, "temperature": 0});
    let whole = post(&server, path, &body);
    assert_eq!(whole["object"], "text_completion");
    let said = whole["choices"][0]["text"].as_str().unwrap().to_owned();
    assert!(!said.is_empty());
    let chunks = stream(&server, path, body.clone());
    let streamed: String = chunks
        .iter()
        .map(|(_, chunk)| chunk["choices"][0]["text"].as_str().unwrap())
        .collect();
    assert_eq!(streamed, said);

    let tokens = post(&server, "/tokenize", &json!({"prompt": text}))["tokens"].clone();
    let mut by_id = body.clone();
    by_id["prompt"] = tokens.clone();
    let by_id = post(&server, path, &by_id);
    assert_eq!(by_id["choices"][0]["text"], said);
    let total = |answer: &Value| answer["usage"]["total_tokens"].clone();
    assert_eq!(total(&by_id), total(&whole));

    let list = json!({"prompt": [text, "Hello"], "n": 2, "max_tokens": 4, "temperature": 0});
    let list = post(&server, path, &list);
    let choices = list["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 4);
    for (index, choice) in choices.iter().enumerate() {
        assert_eq!(choice["index"], index);
    }
    assert_eq!(choices[0]["text"], choices[1]["text"]);
    assert!(said.starts_with(choices[0]["text"].as_str().unwrap()));
    assert_ne!(choices[0]["text"], choices[2]["text"]);
    assert_eq!(list["usage"]["completion_tokens"], 16);

    for prompt in [json!(text), tokens] {
        let echo = json!({"prompt": prompt, "max_tokens": 4, "temperature": 0, "echo": true});
        let echoed = post(&server, path, &echo)["choices"][0]["text"].clone();
        assert!(echoed.as_str().unwrap().starts_with(text), "{echoed}");
        let streamed = stream(&server, path, echo);
        let streamed = streamed
            .iter()
            .map(|(_, chunk)| chunk["choices"][0]["text"].as_str());
        assert_eq!(streamed.map(Option::unwrap).collect::<String>(), echoed);
    }
}

#[test]
fn choices_differ_by_their_seeds_and_share_the_prompt() {
    let server = Server::start(&[]);
    let mut body = user("Roll a die.");
    body["temperature"] = 1.into();
    body["seed"] = 3.into();
    let alone = server.chat_ok(body.clone());
    body["n"] = 8.into();
    let many = server.chat_ok(body.clone());
    let choices = many["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 8);
    assert_eq!(choices[0]["message"], alone["choices"][0]["message"]);
    assert!(
        choices
            .iter()
            .any(|choice| choice["message"] != choices[0]["message"])
    );
    assert_eq!(
        many["usage"]["prompt_tokens"],
        alone["usage"]["prompt_tokens"]
    );

    body["stream_options"] = json!({"include_usage": true});
    let chunks = server.stream(body);
    let mut texts = vec![String::new(); 8];
    let mut finishes = vec![0; 8];
    for choice in chunks.iter().flat_map(|c| c["choices"].as_array().unwrap()) {
        let index = choice["index"].as_u64().unwrap() as usize;
        texts[index] += choice["delta"]["content"].as_str().unwrap_or("");
        finishes[index] += usize::from(choice["finish_reason"].is_string());
    }
    assert_eq!(finishes, [1; 8]);
    for (text, choice) in texts.iter().zip(choices) {
        assert_eq!(*text, choice["message"]["content"].as_str().unwrap());
    }
    let total = |answer: &Value| answer["usage"]["total_tokens"].clone();
    assert_eq!(total(chunks.last().unwrap()), total(&many));
}

#[test]
fn messages_come_in_blocks() {
    let server = Server::start(&[]);
    let path = "/v1/messages";
    let mut body = json!({
        "max_tokens": 300, "temperature": 0, "thinking": {"type": "adaptive"},
        "messages": [{"role": "user", "content": "What's the weather in Bergen?"}],
        "tools": [{"name": "get_weather", "description": "Get the current weather",
            "input_schema": weather_tool()["function"]["parameters"]}],
    });
    let whole = post(&server, path, &body);
    assert_eq!(whole["stop_reason"], "tool_use", "{whole}");
    let blocks = whole["content"].as_array().unwrap();
    let call = blocks.last().unwrap();
    assert_eq!(
        (&call["type"], &call["name"]),
        (&json!("tool_use"), &json!("get_weather"))
    );
    assert_eq!(call["input"], json!({"place": "Bergen"}));

    let events = stream(&server, path, body.clone());
    assert_eq!(events[0].0, "message_start");
    assert_eq!(events.last().unwrap().0, "message_stop");
    assert!(events.iter().all(|(name, data)| data["type"] == **name));
    let starts = events
        .iter()
        .filter(|(name, _)| name == "content_block_start");
    assert_eq!(starts.count(), blocks.len());
    let json: String = events
        .iter()
        .filter_map(|(_, data)| data["delta"]["partial_json"].as_str())
        .collect();
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), call["input"]);

    let counted = post(&server, "/v1/messages/count_tokens", &body);
    let usage = &whole["usage"];
    let count = |name: &str| usage[name].as_u64().unwrap();
    assert_eq!(
        counted["input_tokens"].as_u64().unwrap(),
        count("input_tokens") + count("cache_read_input_tokens")
    );

    body["messages"] = json!([{"role": "user", "content": "word ".repeat(20_000)}]);
    let refused = server.post(path, &body.to_string());
    assert_eq!(refused.status, 400);
    let refused_body = refused.json();
    assert_eq!(refused_body["type"], "error");
    assert!(
        refused_body["error"]["message"]
            .as_str()
            .unwrap()
            .starts_with("prompt is too long: ")
    );
    assert_eq!(
        refused_body["request_id"].as_str(),
        refused.header("request-id")
    );
    assert_eq!(server.get(path).json()["type"], "error");
}

#[test]
fn responses_are_kept_and_gone_on_from() {
    let server = Server::start(&["--max-stored-responses", "2"]);
    let path = "/v1/responses";
    let first = json!({"input": "Tell me about the Karra basket.", "temperature": 0});
    let one = post(&server, path, &first);
    assert_eq!(
        (&one["object"], &one["status"]),
        (&json!("response"), &json!("completed"))
    );
    let id = one["id"].as_str().unwrap();
    assert_eq!(server.get(&format!("{path}/{id}")).json(), one);

    let next = json!({"input": "And its weight?", "temperature": 0, "previous_response_id": id});
    let two = post(&server, path, &next);
    let text = |response: &Value| {
        let output = response["output"].as_array().unwrap();
        output.last().unwrap()["content"][0]["text"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(text(&two), "The Karra basket weighs 400 grams.");
    assert_eq!(two["previous_response_id"], id);

    let events = stream(&server, path, next.clone());
    for (number, (name, data)) in events.iter().enumerate() {
        assert_eq!(
            (&data["type"], &data["sequence_number"]),
            (&json!(name), &json!(number))
        );
    }
    let (name, last) = events.last().unwrap();
    assert_eq!(name, "response.completed");
    assert_eq!(text(&last["response"]), text(&two));
    // A streamed response is kept too; as the third it has pushed out the one least used.
    let streamed = last["response"]["id"].as_str().unwrap();
    assert_eq!(
        server.get(&format!("{path}/{streamed}")).json(),
        last["response"]
    );
    assert_eq!(
        server
            .get(&format!("/responses/{}", two["id"].as_str().unwrap()))
            .status,
        404
    );
    let gone = server.request("DELETE", &format!("{path}/{streamed}"), &[], b"");
    assert_eq!(gone.json()["deleted"], true);
    let mut lost = next;
    lost["previous_response_id"] = streamed.into();
    let lost = server.post(path, &lost.to_string());
    assert_eq!(lost.status, 404);
    assert_eq!(lost.json()["error"]["code"], "previous_response_not_found");

    let unkept = json!({"input": "Hello!", "store": false, "max_output_tokens": 1});
    let unkept = post(&server, path, &unkept);
    let id = unkept["id"].as_str().unwrap();
    assert_eq!(server.get(&format!("{path}/{id}")).status, 404);
    assert_eq!(unkept["status"], "incomplete");
}

#[test]
fn tokens_and_text_map_to_each_other() {
    let server = Server::start(&[]);
    let text = "Na\u{ef}ve caf\u{e9} \u{1f980}<|im_end|>";
    let body = json!({"prompt": text, "return_token_strs": true});
    let answer = post(&server, "/tokenize", &body);
    let tokens = answer["tokens"].as_array().unwrap();
    assert_eq!(answer["count"], tokens.len());
    assert!(answer["max_model_len"].as_u64().unwrap() > 100);
    assert_eq!(
        answer["token_strs"].as_array().unwrap().last().unwrap(),
        "<|im_end|>"
    );
    let back = post(&server, "/detokenize", &json!({"tokens": tokens}));
    assert_eq!(
        (&back["prompt"], &back["content"]),
        (&json!(text), &json!(text))
    );
    let apart = post(
        &server,
        "/tokenize",
        &json!({"content": text, "parse_special": false}),
    );
    assert!(apart["tokens"].as_array().unwrap().len() > tokens.len());
    let back = post(&server, "/detokenize", &json!({"tokens": apart["tokens"]}));
    assert_eq!(back["content"], text);

    let mut chat = user("What is 17 + 25?");
    let counted = post(&server, "/tokenize", &chat)["count"].clone();
    chat["max_tokens"] = 1.into();
    assert_eq!(server.chat_ok(chat)["usage"]["prompt_tokens"], counted);

    for (path, body, param) in [
        ("/detokenize", json!({"tokens": [4_000_000]}), "tokens"),
        ("/detokenize", json!({"tokens": [-1]}), "tokens[0]"),
        ("/tokenize", json!({}), "prompt"),
        (
            "/tokenize",
            json!({"prompt": "x".repeat(17 << 20)}),
            "prompt",
        ),
    ] {
        let refused = server.post(path, &body.to_string());
        assert_eq!(refused.status, 400, "{path}");
        assert_eq!(refused.json()["error"]["param"], param);
    }
}

#[test]
fn operators_see_what_goes_on() {
    let server = Server::start(&[]);
    assert_eq!(server.get("/ready").json(), json!({"status": "ready"}));
    let mut body = user("What is 17 + 25?");
    body["max_tokens"] = 60.into();
    let usage = server.chat_ok(body)["usage"].clone();
    assert_eq!(server.chat(json!({})).status, 400);
    let metrics = server.get("/metrics");
    assert!(
        metrics
            .header("content-type")
            .unwrap()
            .starts_with("text/plain; version=0.0.4")
    );
    for (name, value) in [
        ("vllm:num_requests_running", json!(0)),
        ("vllm:num_requests_waiting", json!(0)),
        ("vllm:prompt_tokens_total", usage["prompt_tokens"].clone()),
        (
            "vllm:generation_tokens_total",
            usage["completion_tokens"].clone(),
        ),
        ("vllm:time_to_first_token_seconds_count", json!(1)),
        ("vllm:e2e_request_latency_seconds_count", json!(1)),
        ("volley:engine_alive", json!(1)),
    ] {
        assert_eq!(server.metric(name), value.as_f64().unwrap(), "{name}");
    }
    assert!(server.metric("vllm:spec_decode_num_accepted_tokens_total") > 0.0);
    for status in [200, 400] {
        let name = format!(
            "volley:http_responses_total{{model_name=\"volley-demo\",path=\"/v1/chat/completions\",method=\"POST\",status=\"{status}\"}}"
        );
        assert_eq!(server.metric(&name), 1.0);
    }
    let document = server.get("/openapi.json").json();
    assert_eq!(document["openapi"], "3.1.0");
    for path in document["paths"].as_object().unwrap().keys() {
        let shown = path.replace("{id}", "volley-demo");
        assert_ne!(server.get(&shown).status, 500, "{path}");
        let answer = server.request("OPTIONS", &shown, &[], b"");
        assert!(answer.status < 500, "{path}");
    }
}

#[test]
fn silent_streams_have_heartbeats() {
    let server = Server::start(&["--sse-heartbeat", "0.001"]);
    let mut body = user("What is 17 + 25?");
    let quiet = server.chat_ok(body.clone());
    body["stream"] = true.into();
    let answer = server.chat(body.clone());
    assert!(answer.body.contains(": keep-alive\n\n"), "{}", answer.body);
    let said: String = events(&answer.body)
        .iter()
        .filter_map(|(_, chunk)| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(
        said,
        quiet["choices"][0]["message"]["content"].as_str().unwrap()
    );
    for (path, body) in [
        (
            "/v1/completions",
            json!({"prompt": "Hello", "stream": true}),
        ),
        ("/v1/responses", json!({"input": "Hello!", "stream": true})),
    ] {
        let answer = server.post(path, &body.to_string());
        assert!(answer.body.contains(": keep-alive\n\n"), "{path}");
    }
    body["max_tokens"] = 50.into();
    let answer = server.post("/v1/messages", &body.to_string());
    assert!(events(&answer.body).contains(&("ping".to_owned(), json!({"type": "ping"}))));
}

#[test]
fn a_request_that_takes_too_long_is_cut_off_in_the_shape_of_its_surface() {
    let server = Server::start(&["--request-timeout", "0.4"]);
    let mut chat = user("Hello!");
    chat["ignore_eos"] = true.into();
    let mut message = chat.clone();
    message["max_tokens"] = 30_000.into();
    let completion = json!({"prompt": "Hello", "ignore_eos": true, "max_tokens": 30_000});
    let response = json!({"input": "Hello!", "ignore_eos": true});
    for (path, body) in [
        ("/v1/chat/completions", chat),
        ("/v1/completions", completion),
        ("/v1/responses", response),
        ("/v1/messages", message),
    ] {
        let whole = server.post(path, &body.to_string());
        assert_eq!(whole.status, 504, "{path}: {}", whole.body);
        let events = stream(&server, path, body);
        let (name, last) = events.last().unwrap();
        match path {
            "/v1/messages" => {
                assert_eq!(whole.json()["error"]["type"], "timeout_error");
                assert_eq!(
                    (name.as_str(), &last["error"]["type"]),
                    ("error", &json!("timeout_error"))
                );
            }
            "/v1/responses" => {
                assert_eq!(name, "response.failed");
                assert_eq!(last["response"]["status"], "failed");
            }
            _ => assert_eq!(last["error"]["code"], "timeout", "{path}: {last}"),
        }
    }
    server.settles();
}

#[test]
fn a_request_may_choose_its_speculation() {
    let server = Server::start(&[]);
    let mut body = user("What is 17 + 25?");
    let whole = server.chat_ok(body.clone());
    let drafts = |answer: &Value| {
        let details = &answer["usage"]["completion_tokens_details"];
        let count = |name: &str| details[name].as_u64().unwrap();
        count("accepted_prediction_tokens") + count("rejected_prediction_tokens")
    };
    assert!(drafts(&whole) > 0);
    for off in [
        json!({"method": "none"}),
        json!({"max_drafts": 0}),
        json!({"num_speculative_tokens": 0}),
    ] {
        body["speculative"] = off;
        let plain = server.chat_ok(body.clone());
        assert_eq!(drafts(&plain), 0);
        assert_eq!(plain["choices"], whole["choices"]);
    }
    body["speculative"] = json!({"method": "dflash", "max_drafts": 3});
    assert_eq!(server.chat_ok(body.clone())["choices"], whole["choices"]);
    // The demo has its MTP head beside its drafter.
    body["speculative"] = json!({"method": "mtp"});
    let head = server.chat_ok(body.clone());
    assert_eq!(head["choices"], whole["choices"]);
    assert!(head["usage"]["speculation"]["methods"]["mtp"].as_u64() > Some(0));
    for (method, words) in [("eagle", "none, ngram, mtp"), ("ddtree", "tree_budget")] {
        body["speculative"] = json!({"method": method});
        let refused = server.chat(body.clone());
        let error = &refused.json()["error"];
        assert_eq!(
            (refused.status, &error["param"]),
            (400, &json!("speculative.method"))
        );
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn a_prefilled_answer_goes_on() {
    let server = Server::start(&[]);
    let mut body = user("What is 17 + 25?");
    body["chat_template_kwargs"] = json!({"enable_thinking": false});
    let whole = server.chat_ok(body.clone());
    let text = whole["choices"][0]["message"]["content"].as_str().unwrap();
    let half = &text[..text.find(' ').unwrap()];
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": half}));
    let mut messages = body.clone();
    messages["max_tokens"] = 200.into();
    messages["temperature"] = 0.into();
    body["continue_final_message"] = true.into();
    body["add_generation_prompt"] = false.into();
    let rest = server.chat_ok(body);
    let rest = rest["choices"][0]["message"]["content"].as_str().unwrap();
    assert_eq!(format!("{half}{rest}"), text);
    // On messages it needs no word.
    let rest = post(&server, "/v1/messages", &messages);
    let rest = rest["content"][0]["text"].as_str().unwrap();
    assert_eq!(format!("{half}{rest}"), text);
}

/// A stop string ends an answer before the engine does. Its counts are those of any other answer.
#[test]
fn a_stop_string_leaves_the_counts_complete() {
    let server = Server::start(&[]);
    let mut body = user("What is 17 + 25?");
    body["chat_template_kwargs"] = json!({"enable_thinking": false});
    let whole = server.chat_ok(body.clone());
    let cached = |answer: &Value| answer["usage"]["prompt_tokens_details"]["cached_tokens"].clone();
    assert_eq!(cached(&whole), 0);
    let again = server.chat_ok(body.clone());
    assert_ne!(cached(&again), 0);
    let timed = server.metric("vllm:request_decode_time_seconds_count");

    let text = whole["choices"][0]["message"]["content"].as_str().unwrap();
    let count = |value: &Value| value.as_u64().unwrap();
    let mut cut_inside_a_step = 0;
    // Wherever it ends, also among the drafts of a step.
    for at in [5, 9, 16, 30, 41] {
        body["stop"] = json!([text[at..at + 3]]);
        let stopped = server.chat_ok(body.clone());
        assert!(
            stopped["choices"][0]["stop_reason"].is_string(),
            "{stopped}"
        );
        assert_eq!(cached(&stopped), cached(&again), "{stopped}");
        let usage = &stopped["usage"];
        let details = &usage["completion_tokens_details"];
        let (tokens, steps) = (&usage["completion_tokens"], &usage["speculation"]["steps"]);
        let accepted = count(&details["accepted_prediction_tokens"]);
        let rejected = count(&details["rejected_prediction_tokens"]);
        let drafted = usage["speculation"]["drafted_per_pos"].as_array().unwrap();
        assert_eq!(accepted + rejected, drafted.iter().map(count).sum::<u64>());
        // Each step gives a token of the target's own, and so does the prompt.
        assert!(accepted <= count(tokens), "{usage}");
        assert!(accepted + count(steps) + 1 >= count(tokens), "{usage}");
        cut_inside_a_step += u64::from(accepted + count(steps) + 1 > count(tokens));

        let mut streamed = body.clone();
        streamed["stream_options"] = json!({"include_usage": true});
        let chunks = server.stream(streamed);
        assert_eq!(&chunks.last().unwrap()["usage"], usage);
    }
    assert!(cut_inside_a_step > 0);
    let metric = server.metric("vllm:request_decode_time_seconds_count");
    assert_eq!(metric, timed + 10.0);
}
