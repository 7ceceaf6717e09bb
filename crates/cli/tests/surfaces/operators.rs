//! What operators see and set.

use serde_json::{Value, json};

use crate::common::{Server, user};
use crate::{events, post, stream};

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
fn streams_tell_their_usage_where_operators_want_it() {
    let server = Server::start(&["--enable-force-include-usage"]);
    let chat = json!({"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 4});
    for options in [json!(null), json!({"include_usage": false})] {
        let mut chat = chat.clone();
        chat["stream_options"] = options;
        let chunks = server.stream(chat);
        let last = chunks.last().unwrap();
        assert_eq!(last["usage"]["completion_tokens"], 4, "{last}");
    }
    let text = json!({"prompt": "1 + 1", "max_tokens": 4, "stream": true});
    let answer = server.post("/v1/completions", &text.to_string());
    let chunks = crate::common::stream_data(&answer);
    assert_eq!(chunks.last().unwrap()["usage"]["completion_tokens"], 4);
}

/// Paths that operators of vLLM ask.
#[test]
fn gateways_find_the_paths_that_they_ask() {
    let server = Server::start(&["--enable-tokenizer-info-endpoint", "--api-key", "sk-1"]);
    let key = [("authorization", "Bearer sk-1")];
    let get = |path: &str| server.request("GET", path, &key, b"");
    for (method, path) in [("GET", "/ping"), ("POST", "/ping"), ("GET", "/v1/ping/")] {
        let answer = server.request(method, path, &[], b"");
        assert_eq!(
            (answer.status, answer.json()),
            (200, json!({"status": "ok"}))
        );
    }
    assert_eq!(server.get("/load").status, 401);
    assert_eq!(get("/load").json(), json!({"server_load": 0}));
    let info = get("/tokenizer_info").json();
    assert_eq!(info["eos_token"], "<|im_end|>");
    assert!(
        info["chat_template"]
            .as_str()
            .unwrap()
            .contains("<|im_start|>")
    );

    let invoke = |body: Value| {
        let body = body.to_string();
        server.request("POST", "/invocations", &key, body.as_bytes())
    };
    let mut chat = user("What is 17 + 25?");
    chat["max_tokens"] = 5.into();
    assert_eq!(invoke(chat.clone()).json()["object"], "chat.completion");
    chat["stream"] = true.into();
    assert!(invoke(chat).body.contains("chat.completion.chunk"));
    let text = invoke(json!({"prompt": "1 + 1", "max_tokens": 5})).json();
    assert_eq!(text["object"], "text_completion");
    for (body, param) in [
        (json!({}), "messages"),
        (json!([1]), ""),
        (json!({"prompt": 5}), "prompt"),
    ] {
        let answer = invoke(body);
        assert_eq!(answer.status, 400);
        let told = &answer.json()["error"]["param"];
        assert_eq!(told.as_str().unwrap_or_default(), param);
    }

    let open = Server::start(&[]);
    let mut endless = user("Hello!");
    endless["ignore_eos"] = true.into();
    endless["n"] = 3.into();
    let socket = open.begin(endless, true);
    assert_eq!(open.get("/load").json(), json!({"server_load": 1}));
    drop(socket);
    let gone = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        open.get("/load").json() == json!({"server_load": 0})
    });
    assert!(gone);
    assert_eq!(open.get("/tokenizer_info").status, 404);
}

/// vLLM counts each choice as a request, all tokens of its prompt, and steps, not tokens, in the gaps.
#[test]
fn metrics_mean_what_vllms_mean() {
    let server = Server::start(&[]);
    let mut body = user("What is 17 + 25?");
    body["max_tokens"] = 60.into();
    let usage = server.chat_ok(body.clone())["usage"].clone();
    let prompt = usage["prompt_tokens"].as_f64().unwrap();
    let steps = usage["speculation"]["steps"].as_f64().unwrap();
    let gaps = "vllm:inter_token_latency_seconds_count";
    assert_eq!(server.metric(gaps), steps);
    body["n"] = 3.into();
    let usage = server.chat_ok(body.clone())["usage"].clone();
    let steps = steps + usage["speculation"]["steps"].as_f64().unwrap();
    let cached = usage["prompt_tokens_details"]["cached_tokens"].as_f64();
    let seconds = |name: &str| server.metric(&format!("vllm:{name}_seconds_count"));
    for name in [
        "time_to_first_token",
        "e2e_request_latency",
        "request_queue_time",
        "request_prefill_time",
        "request_decode_time",
        "request_inference_time",
        "request_time_per_output_token",
    ] {
        assert_eq!(seconds(name), 4.0, "{name}");
    }
    for (name, value) in [
        ("prompt_tokens_total", 4.0 * prompt),
        ("prefix_cache_queries_total", 4.0 * prompt),
        ("request_prompt_tokens_sum", 4.0 * prompt),
        ("request_generation_tokens_sum", 240.0),
        ("request_max_num_generation_tokens_sum", 120.0),
        ("request_params_max_tokens_sum", 240.0),
        ("request_params_n_sum", 4.0),
        ("generation_tokens_total", 240.0),
        ("inter_token_latency_seconds_count", steps),
    ] {
        assert_eq!(server.metric(&format!("vllm:{name}")), value, "{name}");
    }
    let hits = server.metric("vllm:prefix_cache_hits_total");
    assert!(hits >= 3.0 * cached.unwrap() && hits > 0.0, "{hits}");
    let source = |source: &str| {
        let labels = format!("model_name=\"volley-demo\",source=\"{source}\"");
        server.metric(&format!("vllm:prompt_tokens_by_source_total{{{labels}}}"))
    };
    assert_eq!(server.metric("vllm:prompt_tokens_cached_total"), hits);
    assert_eq!(source("local_cache_hit"), hits);
    assert_eq!(source("local_compute"), 4.0 * prompt - hits);
    assert_eq!(
        source("local_compute"),
        server.metric("volley:computed_tokens_total")
    );

    let ended = |how: &str| {
        let labels = format!("model_name=\"volley-demo\",finished_reason=\"{how}\"");
        server.metric(&format!("vllm:request_success_total{{{labels}}}"))
    };
    body["ignore_eos"] = true.into();
    body["max_tokens"] = 20_000.into();
    drop(server.begin(body, true));
    server.settles();
    assert_eq!((ended("length"), ended("abort")), (4.0, 3.0));
}

/// vLLM's flags for what requests leave open. What a request says goes before them.
#[test]
fn operators_choose_what_requests_leave_open() {
    let server = Server::start(&[
        "--default-chat-template-kwargs",
        "{\"enable_thinking\": false}",
        "--override-generation-config",
        "{\"temperature\": 0}",
    ]);
    let ask = |fields: Value| {
        let mut body = user("What is 17 + 25?");
        body.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        post(&server, "/v1/chat/completions", &body)
    };
    let thoughts = |answer: &Value| answer["choices"][0]["message"]["reasoning_content"].clone();
    let quiet = ask(json!({"seed": 1}));
    assert_eq!(thoughts(&quiet), Value::Null);
    assert_eq!(quiet["choices"], ask(json!({"seed": 2}))["choices"]);
    let wanted = [
        json!({"chat_template_kwargs": {"enable_thinking": true}}),
        json!({"reasoning_effort": "high"}),
    ];
    for fields in wanted {
        assert!(thoughts(&ask(fields)).is_string());
    }
    let tokens = |fields: Value| {
        let mut body = user("What is 17 + 25?");
        body.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        post(&server, "/tokenize", &body)["count"].clone()
    };
    assert_eq!(tokens(json!({})), quiet["usage"]["prompt_tokens"]);
}

/// A template of the operator's has the arguments of requests, and the operator's for the others.
#[test]
fn a_template_has_its_arguments() {
    let server = Server::start(&[
        "--chat-template",
        "{{ word }}{{ messages[0].content }}",
        "--default-chat-template-kwargs",
        "{\"word\": \"one \"}",
    ]);
    let tokens = |body: Value| post(&server, "/tokenize", &body)["tokens"].clone();
    let mut body = user("sum");
    assert_eq!(tokens(body.clone()), tokens(json!({"prompt": "one sum"})));
    body["chat_template_kwargs"] = json!({"word": "two "});
    assert_eq!(tokens(body.clone()), tokens(json!({"prompt": "two sum"})));
    body["max_tokens"] = 1.into();
    let answer = server.chat_ok(body.clone());
    let count = tokens(body).as_array().unwrap().len();
    assert_eq!(answer["usage"]["prompt_tokens"], count);
}

/// An empty name is none.
#[test]
fn names_of_models_are_checked_unless_any_will_do() {
    for (flags, other) in [(&[][..], 404), (&["--accept-any-model"], 200)] {
        let server = Server::start(flags);
        for path in ["/v1/chat/completions", "/v1/messages"] {
            for (name, status) in [("volley-demo", 200), ("", 200), ("gpt-4o", other)] {
                let mut body = user("Hello!");
                body["max_tokens"] = 1.into();
                body["model"] = name.into();
                let answer = server.post(path, &body.to_string());
                assert_eq!(answer.status, status, "{path} {name}: {}", answer.body);
                if status == 200 {
                    assert_eq!(answer.json()["model"], "volley-demo");
                }
            }
        }
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
