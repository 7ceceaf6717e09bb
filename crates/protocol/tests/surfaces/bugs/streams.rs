//! What goes over the wire: B28, B71, B84, B93, B96, B98.

use serde_json::{Value, json};
use volley_protocol::openai::Usage;
use volley_protocol::parser::{Delta, FinishReason};
use volley_protocol::replay::{EngineEnd, Split, replay};
use volley_protocol::reply::{Event, Reply, Step};
use volley_protocol::stream::{ReasoningField, ResponseMeta};
use volley_protocol::{ApiError, Features, Surface};

use super::{call, string};
use crate::heard::{Sent, events, file, request};

const ALL: [Surface; 4] = [
    Surface::Chat,
    Surface::Completions,
    Surface::Responses,
    Surface::Messages,
];

fn reply(surface: Surface, fields: &Value) -> Reply {
    let body = request(surface, &json!({}), fields).to_string();
    let incoming = surface.read(body.as_bytes(), &Features::all()).unwrap();
    incoming.reply(ResponseMeta {
        id: format!("{}1", surface.id_prefix()),
        created: 1,
        model: "m".to_owned(),
        system_fingerprint: "fp".to_owned(),
        reasoning_field: ReasoningField::Both,
    })
}

fn bodies(sent: &[Event]) -> Vec<Value> {
    let json = |event: &Event| serde_json::from_str(&event.data).unwrap_or(Value::Null);
    sent.iter().map(json).collect()
}

#[test]
fn b28_an_engine_failure_is_one_error_event_and_no_finish() {
    for surface in ALL {
        let mut reply = reply(surface, &json!({"stream": true}));
        let usage = Usage::new(3, 1);
        let mut sent = reply.start(usage.clone());
        sent.extend(reply.step(0, &vec![Delta::Content("half".to_owned())].into(), usage));
        sent.extend(reply.fail(&ApiError::engine_failure("it has stopped")));
        let bodies = bodies(&sent);
        let last = bodies.last().unwrap();
        let text = last.to_string();
        assert!(text.contains("it has stopped"), "{text}");
        match surface {
            Surface::Responses => {
                assert_eq!(last["type"], "response.failed");
                assert_eq!(last["response"]["status"], "failed");
            }
            Surface::Messages => assert_eq!(last["error"]["type"], "api_error"),
            _ => assert_eq!(last["error"]["code"], "engine_failure"),
        }
        let all: String = bodies.iter().map(Value::to_string).collect();
        for end in ["\"stop\"", "response.completed", "message_stop", "DONE"] {
            assert!(!all.contains(end), "{end} in {all}");
        }
    }
}

#[test]
fn b71_b84_usage_is_the_same_everywhere() {
    for cached in [0, 192] {
        for surface in ALL {
            let usage = Usage::new(214, 41).with_cached(cached).with_reasoning(8);
            let fields = match surface {
                Surface::Chat | Surface::Completions => {
                    json!({"stream": true, "stream_options": {"include_usage": true}})
                }
                _ => json!({"stream": true}),
            };
            let mut streamed = reply(surface, &fields);
            let mut whole = reply(surface, &json!({}));
            let step = Step::from(vec![
                Delta::Content("x".to_owned()),
                Delta::Finish(FinishReason::Stop),
            ]);
            streamed.step(0, &step, usage.clone());
            whole.collect(0, &step);
            let end = bodies(&streamed.end(usage.clone()));
            let body: Value = serde_json::from_str(&whole.whole(usage)).unwrap();
            let told = match surface {
                Surface::Responses => &end[0]["response"]["usage"],
                _ => &end[0]["usage"],
            };
            assert_eq!(*told, body["usage"], "{surface:?}");
            let (prompt, in_cache) = match surface {
                Surface::Responses => (
                    told["input_tokens"].as_u64(),
                    told["input_tokens_details"]["cached_tokens"].as_u64(),
                ),
                Surface::Messages => {
                    let read = told["cache_read_input_tokens"].as_u64().unwrap();
                    (
                        told["input_tokens"].as_u64().map(|tokens| tokens + read),
                        Some(read),
                    )
                }
                _ => {
                    assert_eq!(end[0]["choices"], json!([]));
                    (
                        told["prompt_tokens"].as_u64(),
                        told["prompt_tokens_details"]["cached_tokens"].as_u64(),
                    )
                }
            };
            assert_eq!(
                (prompt, in_cache),
                (Some(214), Some(cached as u64)),
                "{surface:?}"
            );
        }
    }
}

#[test]
fn b84_continuous_usage_is_in_every_chunk() {
    for surface in [Surface::Chat, Surface::Completions] {
        let options = json!({"include_usage": true, "continuous_usage_stats": true});
        let mut reply = reply(surface, &json!({"stream": true, "stream_options": options}));
        let mut sent = reply.start(Usage::new(3, 0));
        let step = Step::from(vec![Delta::Content("x".to_owned())]);
        sent.extend(reply.step(0, &step, Usage::new(3, 1)));
        for body in bodies(&sent) {
            assert_eq!(body["usage"]["prompt_tokens"], 3);
        }
    }
}

fn thinking_then_call() -> String {
    format!(
        "The user wants the weather.\n</think>\n\n{}",
        call("weather", &[("town", "Oslo")])
    )
}

fn play(surface: Surface, raw: &str, split: Split) -> Vec<Sent> {
    let tools = json!({"weather": {"type": "object", "properties": {"town": string()}}});
    let file = file(
        request(surface, &tools, &json!({})),
        true,
        &[raw],
        EngineEnd::Stop,
    );
    events(&replay(&file, surface, true, split).body)
}

#[test]
fn b93_thinking_deltas_are_in_a_thinking_block() {
    let raw = thinking_then_call().replace("\n\n<tool_call>", "\n\nLet me look.\n<tool_call>");
    for split in [Split::Whole, Split::Every(1), Split::Random(3)] {
        let sent = play(Surface::Messages, &raw, split);
        let starts: Vec<Value> = sent
            .iter()
            .filter(|event| event.name.as_deref() == Some("content_block_start"))
            .map(|event| event.json()["content_block"].clone())
            .collect();
        assert_eq!(
            starts,
            [
                json!({"type": "thinking", "thinking": "", "signature": ""}),
                json!({"type": "text", "text": ""}),
                json!({"type": "tool_use", "id": "toolu_replay_0", "name": "weather", "input": {}}),
            ]
        );
        let signatures = sent
            .iter()
            .filter(|event| event.data.contains("signature_delta"));
        assert_eq!(signatures.count(), 1);
        let end = sent[sent.len() - 2].json();
        assert_eq!(
            end["delta"],
            json!({"stop_reason": "tool_use", "stop_sequence": null})
        );
    }
}

#[test]
fn b98_a_tool_call_in_a_responses_stream() {
    for split in [Split::Whole, Split::Every(1), Split::Random(3)] {
        let sent = play(Surface::Responses, &thinking_then_call(), split);
        let mut kinds: Vec<String> = sent.iter().filter_map(|event| event.name.clone()).collect();
        kinds.dedup();
        assert_eq!(
            kinds,
            [
                "response.created",
                "response.in_progress",
                "response.output_item.added",
                "response.reasoning_text.delta",
                "response.reasoning_text.done",
                "response.output_item.done",
                "response.output_item.added",
                "response.function_call_arguments.delta",
                "response.function_call_arguments.done",
                "response.output_item.done",
                "response.completed",
            ]
        );
        let all: String = sent.iter().map(|event| event.data.clone()).collect();
        assert!(!all.contains("<tool_call>") && !all.contains("\"message\",\"role\""));
    }
}

#[test]
fn b96_custom_tools_and_namespaces_come_back_as_declared() {
    let patch = "*** Begin\n-\"a\"\n+b";
    let raw = format!(
        "{}\n{}",
        call("apply_patch", &[("input", patch)]),
        call("spawn", &[])
    );
    let request = json!({"input": "q", "tools": [
        {"type": "custom", "name": "apply_patch"},
        {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "spawn"}]},
    ]});
    let file = file(request, false, &[&raw], EngineEnd::Stop);
    for split in [Split::Whole, Split::Every(1)] {
        let whole = replay(&file, Surface::Responses, false, split).body;
        let whole: Value = serde_json::from_slice(&whole).unwrap();
        let sent = events(&replay(&file, Surface::Responses, true, split).body);
        let last = sent.last().unwrap().json();
        assert_eq!(last["response"], whole);
        let output = &whole["output"];
        assert_eq!(output[0]["type"], "custom_tool_call");
        assert_eq!(output[0]["input"], patch);
        assert_eq!(output[1]["type"], "function_call");
        assert_eq!(output[1]["namespace"], "agents");
    }
}

#[test]
fn a_stop_sequence_is_told_on_messages() {
    let body = request(Surface::Messages, &json!({}), &json!({"stop": ["END"]}));
    let file = file(body, false, &["one END two"], EngineEnd::Stop);
    let body = replay(&file, Surface::Messages, false, Split::Whole).body;
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["stop_reason"], "stop_sequence");
    assert_eq!(body["stop_sequence"], "END");
}
