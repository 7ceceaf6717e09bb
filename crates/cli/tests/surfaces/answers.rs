//! What a request may ask of its answer.

use serde_json::{Value, json};

use crate::common::{Server, user};
use crate::post;

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
