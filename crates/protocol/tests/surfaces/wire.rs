//! Several choices, logprobs, hidden thoughts, echo, stored responses.

use serde_json::{Value, json};
use volley_protocol::logprobs::TokenLogprob;
use volley_protocol::openai::Usage;
use volley_protocol::parser::{Delta, End, FinishReason, InitialState, ParserConfig};
use volley_protocol::replay::{EngineEnd, Split, replay};
use volley_protocol::reply::{ClosedBy, Reply, Step, StepParser};
use volley_protocol::responses::{ResponsesRequest, StoredResponse};
use volley_protocol::stream::{ReasoningField, ResponseMeta};
use volley_protocol::{Features, Incoming, Surface};

use super::heard::{file, request};

fn incoming(surface: Surface, fields: &Value) -> Incoming {
    let body = request(surface, &json!({}), fields).to_string();
    surface.read(body.as_bytes(), &Features::all()).unwrap()
}

fn reply(surface: Surface, fields: &Value) -> Reply {
    incoming(surface, fields).reply(ResponseMeta {
        id: format!("{}1", surface.id_prefix()),
        created: 1,
        model: "m".to_owned(),
        system_fingerprint: "fp".to_owned(),
        reasoning_field: ReasoningField::Both,
    })
}

fn content(text: &str) -> Step {
    vec![Delta::Content(text.to_owned())].into()
}

fn finish(reason: FinishReason) -> Step {
    vec![Delta::Finish(reason)].into()
}

fn token(text: &str, logprob: f32) -> TokenLogprob {
    TokenLogprob {
        bytes: text.as_bytes().to_vec(),
        logprob: Some(logprob),
        top: vec![
            (text.as_bytes().to_vec(), logprob),
            (b"?".to_vec(), f32::NEG_INFINITY),
        ],
    }
}

#[test]
fn what_closed_the_thoughts_and_ended_the_answer_is_told_with_the_finish() {
    let closed = Step {
        closed_by: Some(ClosedBy::Budget),
        ..content("a")
    };
    let stopped = Step {
        stop_string: Some("END".to_owned()),
        ..finish(FinishReason::Stop)
    };
    let looped = Step {
        repetition: true,
        ..finish(FinishReason::Length)
    };
    for (end, stop_reason) in [(stopped, "END"), (looped, "repetition")] {
        let mut streamed = reply(Surface::Chat, &json!({"stream": true}));
        let mut whole = reply(Surface::Chat, &json!({}));
        let usage = Usage::new(3, 4);
        let mut sent = streamed.start(usage.clone());
        for step in [&closed, &end] {
            sent.extend(streamed.step(0, step, usage.clone()));
            whole.collect(0, step);
        }
        let chunks = sent
            .iter()
            .map(|event| -> Value { serde_json::from_str(&event.data).unwrap() });
        let chunks: Vec<Value> = chunks.map(|chunk| chunk["choices"][0].clone()).collect();
        let body: Value = serde_json::from_str(&whole.whole(usage.clone())).unwrap();
        let (last, before) = chunks.split_last().unwrap();
        for choice in [last, &body["choices"][0]] {
            assert_eq!(choice["closed_by"], "budget");
            assert_eq!(choice["stop_reason"], stop_reason);
        }
        for chunk in before {
            assert!(chunk.get("closed_by").is_none() && chunk.get("stop_reason").is_none());
        }
    }
}

#[test]
fn choices_have_a_role_a_finish_and_an_index_each() {
    let mut streamed = reply(Surface::Chat, &json!({"n": 2, "stream": true}));
    let mut whole = reply(Surface::Chat, &json!({"n": 2}));
    let usage = Usage::new(3, 4);
    let mut sent = streamed.start(usage.clone());
    for (choice, step) in [
        (1, content("b")),
        (0, content("a")),
        (1, finish(FinishReason::Length)),
        (0, finish(FinishReason::Stop)),
    ] {
        sent.extend(streamed.step(choice, &step, usage.clone()));
        whole.collect(choice, &step);
    }
    sent.extend(streamed.end(usage.clone()));
    let chunks: Vec<Value> = sent
        .iter()
        .filter_map(|event| serde_json::from_str(&event.data).ok())
        .collect();
    for (index, text, reason) in [(0, "a", "stop"), (1, "b", "length")] {
        let own: Vec<&Value> = chunks
            .iter()
            .map(|chunk| &chunk["choices"][0])
            .filter(|choice| choice["index"] == index)
            .collect();
        assert_eq!(own.len(), 3);
        assert_eq!(own[0]["delta"]["role"], "assistant");
        assert_eq!(own[1]["delta"]["content"], text);
        assert_eq!(own[2]["finish_reason"], reason);
    }
    let body: Value = serde_json::from_str(&whole.whole(usage.clone())).unwrap();
    assert_eq!(body["choices"][0]["message"]["content"], "a");
    assert_eq!(body["choices"][1]["finish_reason"], "length");
    assert_eq!(body["choices"][1]["index"], 1);
}

/// Tokens of an output as the engine brings them, with logprobs where content comes out.
fn steps(raw: &[&[u8]], initial: InitialState, stop: &[&str], tools: bool) -> Vec<Step> {
    let tool = volley_protocol::openai::Tool {
        name: "f".to_owned(),
        parameters: Value::Null,
        strict: false,
        definition: Value::Null,
    };
    let mut parser = StepParser::new(ParserConfig {
        initial,
        tools: if tools { vec![tool] } else { Vec::new() },
        parallel_tool_calls: true,
        stop: stop.iter().map(|stop| (*stop).to_owned()).collect(),
        tag_ids: None,
        call_id_prefix: "c".to_owned(),
    });
    let mut steps = Vec::new();
    for bytes in raw {
        let logprob = TokenLogprob {
            bytes: bytes.to_vec(),
            logprob: Some(-1.0),
            top: Vec::new(),
        };
        let mut step = Step::default();
        parser.push(bytes, None, Some(logprob), &mut step);
        steps.push(step);
        if parser.stopped() {
            break;
        }
    }
    let mut last = Step::default();
    parser.end(End::Stop, &mut last);
    steps.push(last);
    steps
}

/// Tokens told with content, in all and in the order in which they came.
fn told(steps: &[Step]) -> Vec<String> {
    let tokens = steps.iter().flat_map(|step| &step.logprobs);
    tokens
        .map(|token| String::from_utf8_lossy(&token.bytes).into_owned())
        .collect()
}

#[test]
fn logprobs_cover_the_content_once() {
    let raw: [&[u8]; 10] = [
        b"Hm.", b"\n", b"</thi", b"nk>\n", b"\n", b"Hel", b"lo ", b"w\xC3", b"\xA9", b"\n",
    ];
    let played = steps(&raw, InitialState::ThinkOpen, &[], false);
    // The token with half a character goes with the one that completes it.
    assert_eq!(told(&played), ["Hel", "lo ", "w\u{FFFD}", "\u{FFFD}"]);
    for step in &played {
        let has_content = step
            .deltas
            .iter()
            .any(|delta| matches!(delta, Delta::Content(_)));
        assert!(step.logprobs.is_empty() || has_content);
    }

    let raw: [&[u8]; 6] = [b" one", b" ST", b"x", b" two", b" ST", b"OP three"];
    let played = steps(&raw, InitialState::ThinkClosed, &["STOP"], false);
    assert_eq!(told(&played), [" one", " ST", "x", " two", " ST"]);
    let end = played.last().unwrap();
    assert_eq!(end.stop_string.as_deref(), Some("STOP"));

    let raw: [&[u8]; 5] = [
        b"See:",
        b"<tool_call>",
        b"\n<function=f>\n</function>\n",
        b"</tool_call>",
        b"ok",
    ];
    let played = steps(&raw, InitialState::ThinkClosed, &[], true);
    assert_eq!(told(&played), ["See:", "ok"]);

    let raw: [&[u8]; 3] = [b" <", b"think", b"> a "];
    assert_eq!(
        told(&steps(&raw, InitialState::Verbatim, &[], false)),
        [" <", "think", "> a "]
    );
}

#[test]
fn chat_logprobs_are_the_same_streamed_and_not() {
    let fields = json!({"logprobs": true, "top_logprobs": 2});
    let mut streamed = reply(
        Surface::Chat,
        &json!({"stream": true, "logprobs": true, "top_logprobs": 2}),
    );
    let mut whole = reply(Surface::Chat, &fields);
    let mut step = Step::from(vec![
        Delta::Reasoning("hm".to_owned()),
        Delta::Content("Hello".to_owned()),
    ]);
    step.logprobs = vec![token("Hel", -0.5), token("lo", f32::NEG_INFINITY)];
    let usage = Usage::new(1, 1);
    let mut sent = Vec::new();
    for step in [step, finish(FinishReason::Stop)] {
        sent.extend(streamed.step(0, &step, usage.clone()));
        whole.collect(0, &step);
    }
    let entries: Vec<Value> = sent
        .iter()
        .filter_map(|event| serde_json::from_str::<Value>(&event.data).ok())
        .filter_map(|chunk| {
            chunk["choices"][0]["logprobs"]["content"]
                .as_array()
                .cloned()
        })
        .flatten()
        .collect();
    let body: Value = serde_json::from_str(&whole.whole(usage.clone())).unwrap();
    assert_eq!(
        body["choices"][0]["logprobs"]["content"],
        Value::from(entries)
    );
    let second = &body["choices"][0]["logprobs"]["content"][1];
    assert_eq!(second["logprob"], -9999.0);
    assert_eq!(second["bytes"], json!([108, 111]));
    assert_eq!(second["top_logprobs"][1]["logprob"], -9999.0);
    let plain: Value =
        serde_json::from_str(&reply(Surface::Chat, &json!({})).whole(usage.clone())).unwrap();
    assert_eq!(plain["choices"][0]["logprobs"], Value::Null);
}

#[test]
fn completion_logprobs_begin_with_the_echoed_prompt() {
    let fields = json!({"echo": true, "logprobs": 1, "prompt": "Once é"});
    let mut whole = reply(Surface::Completions, &fields);
    let mut streamed = reply(Surface::Completions, &fields);
    let mut prompt = content("Once é");
    prompt.logprobs = vec![
        TokenLogprob {
            bytes: b"Once".to_vec(),
            logprob: None,
            top: Vec::new(),
        },
        token(" é", -1.0),
    ];
    let mut more = content(" upon");
    more.logprobs = vec![token(" upon", -2.0)];
    let usage = Usage::new(2, 1);
    let mut sent = Vec::new();
    for step in [prompt, more, finish(FinishReason::Length)] {
        sent.extend(streamed.step(0, &step, usage.clone()));
        whole.collect(0, &step);
    }
    let body: Value = serde_json::from_str(&whole.whole(usage.clone())).unwrap();
    let choice = &body["choices"][0];
    assert_eq!(choice["text"], "Once é upon");
    let logprobs = &choice["logprobs"];
    assert_eq!(logprobs["tokens"], json!(["Once", " é", " upon"]));
    assert_eq!(logprobs["token_logprobs"], json!([null, -1.0, -2.0]));
    assert_eq!(logprobs["text_offset"], json!([0, 4, 6]));
    assert_eq!(logprobs["top_logprobs"][0], Value::Null);
    assert_eq!(
        logprobs["top_logprobs"][1],
        json!({" é": -1.0, "?": -9999.0})
    );
    let chunk: Value = serde_json::from_str(&sent[1].data).unwrap();
    assert_eq!(chunk["choices"][0]["logprobs"]["text_offset"], json!([6]));
}

#[test]
fn thoughts_can_be_left_out() {
    for surface in super::heard::CHATTY {
        for fields in [
            json!({"include_reasoning": false}),
            json!({"reasoning": {"exclude": true}}),
        ] {
            let body = request(surface, &json!({}), &fields);
            let file = file(body, true, &["secret</think>open"], EngineEnd::Stop);
            for stream in [false, true] {
                let bytes = replay(&file, surface, stream, Split::Every(3)).body;
                let text = String::from_utf8(bytes).unwrap();
                assert!(!text.contains("sec") && text.contains("op"), "{text}");
            }
        }
    }
}

#[test]
fn a_response_goes_on_from_a_stored_one() {
    let read = |body: Value| {
        ResponsesRequest::from_json(body.to_string().as_bytes(), &Features::all()).unwrap()
    };
    let first = read(json!({"input": "What is 2+2?", "instructions": "Be brief."}));
    assert!(first.store);
    let answer = file(
        json!({"input": "What is 2+2?"}),
        true,
        &["Easy.</think>4"],
        EngineEnd::Stop,
    );
    let answer = replay(&answer, Surface::Responses, false, Split::Whole).body;
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    let stored: StoredResponse = first.to_stored(None, &answer);
    assert_eq!(stored.items.len(), 3);

    let mut second = read(json!({"input": "And 3+3?", "previous_response_id": "resp_1"}));
    assert_eq!(second.previous_response_id.as_deref(), Some("resp_1"));
    second.continue_from(&stored).unwrap();
    let said: Vec<(&str, Option<&str>)> = second
        .generation
        .messages
        .iter()
        .map(|message| (message.content.as_str(), message.reasoning.as_deref()))
        .collect();
    assert_eq!(
        said,
        [
            ("What is 2+2?", None),
            ("4", Some("Easy.")),
            ("And 3+3?", None)
        ]
    );
    assert_eq!(second.to_stored(Some(&stored), &answer).items.len(), 6);
    assert!(!read(json!({"input": "x", "store": false})).store);
}

#[test]
fn a_response_repeats_its_request() {
    let fields = json!({"temperature": 0.5, "metadata": {"a": "b"}, "store": false,
        "tools": [{"type": "web_search"}], "reasoning": {"effort": "low"}});
    let body: Value =
        serde_json::from_str(&reply(Surface::Responses, &fields).whole(Usage::new(1, 1))).unwrap();
    for (name, value) in fields.as_object().unwrap() {
        assert_eq!(body[name], *value);
    }
    for name in [
        "id",
        "object",
        "created_at",
        "status",
        "error",
        "incomplete_details",
        "instructions",
        "model",
        "output",
        "parallel_tool_calls",
        "tool_choice",
        "top_p",
        "max_output_tokens",
        "text",
        "truncation",
        "usage",
        "previous_response_id",
        "user",
        "service_tier",
    ] {
        assert!(body.get(name).is_some(), "{name}");
    }
}
