//! Every endpoint, streamed and not.

use serde_json::{Value, json};

use crate::common::{Server, user, weather_tool};
use crate::{post, stream};

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
    let counted = post(&server, "/v1/responses/input_tokens", &next);
    let tokens = two["usage"]["input_tokens"].clone();
    assert_eq!(
        counted,
        json!({"object": "response.input_tokens", "input_tokens": tokens})
    );

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
    let count = server.post("/v1/responses/input_tokens", &lost.to_string());
    assert_eq!(count.status, 404);
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
