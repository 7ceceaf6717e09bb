//! The JSON that goes over the wire.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use serde_json::{Value, json};
use volley_protocol::openai::{ModelInfo, ModelList, Usage};
use volley_protocol::parser::{Aggregate, Delta, FinishReason};
use volley_protocol::stream::{ChunkBuilder, ReasoningField, ResponseMeta, response};

fn meta(reasoning_field: ReasoningField) -> ResponseMeta {
    ResponseMeta {
        id: "chatcmpl-1".to_owned(),
        created: 1_700_000_000,
        model: "demo".to_owned(),
        system_fingerprint: "fp".to_owned(),
        reasoning_field,
    }
}

fn deltas() -> Vec<Delta> {
    let call = |index: usize, name: &str| Delta::ToolCallStart {
        index,
        id: format!("call_{index}"),
        name: name.to_owned(),
    };
    let arguments = |index: usize, fragment: &str| Delta::ToolCallArguments {
        index,
        fragment: fragment.to_owned(),
    };
    vec![
        Delta::Reasoning("Think.".to_owned()),
        Delta::Content("Let me look.".to_owned()),
        call(0, "weather"),
        arguments(0, "{\"town\": \""),
        arguments(0, "Oslo\"}"),
        Delta::ToolCallEnd { index: 0 },
        call(1, "now"),
        arguments(1, "{}"),
        Delta::ToolCallEnd { index: 1 },
        Delta::Finish(FinishReason::ToolCalls),
    ]
}

#[test]
fn chunks_come_in_order_and_name_a_call_once() {
    let builder = ChunkBuilder::new(meta(ReasoningField::ReasoningContent));
    let usage = Usage::new(214, 41)
        .with_cached(192)
        .with_reasoning(8)
        .with_predictions(30, 12);
    let mut chunks = vec![builder.start()];
    chunks.extend(
        deltas()
            .into_iter()
            .filter_map(|delta| builder.delta(delta)),
    );
    chunks.push(builder.usage(usage));
    let mut chunks: Vec<Value> = chunks
        .iter()
        .map(|c| serde_json::to_value(c).unwrap())
        .collect();
    for chunk in &chunks {
        assert_eq!(chunk["id"], "chatcmpl-1");
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert_eq!(chunk["created"], 1_700_000_000);
        assert_eq!(chunk["model"], "demo");
    }
    let last = chunks.pop().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(
        last["usage"],
        json!({"prompt_tokens": 214, "completion_tokens": 41, "total_tokens": 255,
            "prompt_tokens_details": {"cached_tokens": 192},
            "completion_tokens_details": {"reasoning_tokens": 8,
                "accepted_prediction_tokens": 30, "rejected_prediction_tokens": 12}})
    );
    let choices: Vec<(Value, Value)> = chunks
        .iter()
        .map(|chunk| {
            assert!(chunk.get("usage").is_none());
            let choice = &chunk["choices"][0];
            assert_eq!(choice["index"], 0);
            (choice["delta"].clone(), choice["finish_reason"].clone())
        })
        .collect();
    let call = |call: Value| json!({"tool_calls": [call]});
    let expected = [
        json!({"role": "assistant", "content": ""}),
        json!({"reasoning_content": "Think."}),
        json!({"content": "Let me look."}),
        call(
            json!({"index": 0, "id": "call_0", "type": "function", "function": {"name": "weather", "arguments": ""}}),
        ),
        call(json!({"index": 0, "function": {"arguments": "{\"town\": \""}})),
        call(json!({"index": 0, "function": {"arguments": "Oslo\"}"}})),
        call(
            json!({"index": 1, "id": "call_1", "type": "function", "function": {"name": "now", "arguments": ""}}),
        ),
        call(json!({"index": 1, "function": {"arguments": "{}"}})),
        json!({}),
    ];
    assert_eq!(choices.len(), expected.len());
    for (i, ((delta, finish), expected)) in choices.iter().zip(&expected).enumerate() {
        assert_eq!(delta, expected);
        let reason = if i + 1 == choices.len() {
            json!("tool_calls")
        } else {
            Value::Null
        };
        assert_eq!(*finish, reason);
    }
}

#[test]
fn thoughts_go_out_under_the_configured_names() {
    let both = ["reasoning_content", "reasoning"];
    let cases = [
        (ReasoningField::Both, &both[..]),
        (ReasoningField::ReasoningContent, &both[..1]),
        (ReasoningField::Reasoning, &both[1..]),
    ];
    for (field, names) in cases {
        let delta = Delta::Reasoning("Hm".to_owned());
        let mut answer = Aggregate::default();
        answer.add(&delta);
        let chunk = serde_json::to_value(ChunkBuilder::new(meta(field)).delta(delta)).unwrap();
        let whole = serde_json::to_value(response(meta(field), answer, Usage::default())).unwrap();
        for name in both {
            let expected = names.contains(&name).then_some("Hm");
            assert_eq!(chunk["choices"][0]["delta"][name].as_str(), expected);
            assert_eq!(whole["choices"][0]["message"][name].as_str(), expected);
        }
    }
}

fn whole(deltas: &[Delta]) -> Value {
    let mut answer = Aggregate::default();
    answer.extend(deltas);
    let body = response(
        meta(ReasoningField::ReasoningContent),
        answer,
        Usage::new(1, 2),
    );
    serde_json::to_value(body).unwrap()
}

#[test]
fn the_whole_response_says_what_the_stream_says() {
    let body = whole(&deltas());
    assert_eq!(body["object"], "chat.completion");
    assert_eq!(body["usage"]["total_tokens"], 3);
    let choice = &body["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(
        choice["message"],
        json!({"role": "assistant", "content": "Let me look.", "reasoning_content": "Think.",
            "refusal": null, "annotations": [], "tool_calls": [
            {"id": "call_0", "type": "function", "function": {"name": "weather", "arguments": "{\"town\": \"Oslo\"}"}},
            {"id": "call_1", "type": "function", "function": {"name": "now", "arguments": "{}"}}]})
    );
}

#[test]
fn content_is_null_only_beside_something_else() {
    let message = |deltas: &[Delta]| whole(deltas)["choices"][0]["message"].clone();
    let finish = Delta::Finish(FinishReason::Stop);
    let empty = message(std::slice::from_ref(&finish));
    assert_eq!(empty["content"], "");
    assert!(empty.get("tool_calls").is_none() && empty.get("reasoning_content").is_none());
    let thought = message(&[Delta::Reasoning("Hm".to_owned()), finish]);
    assert_eq!(thought["content"], Value::Null);
    assert_eq!(message(&deltas()[2..])["content"], Value::Null);
}

#[test]
fn a_call_that_was_cut_off_is_left_out() {
    let mut cut = deltas()[2..5].to_vec();
    cut.push(Delta::Finish(FinishReason::Length));
    let body = whole(&cut);
    assert!(body["choices"][0]["message"].get("tool_calls").is_none());
    assert_eq!(body["choices"][0]["finish_reason"], "length");
}

#[test]
fn reasoning_tokens_are_part_of_the_completion() {
    let usage = Usage::new(1, 5).with_reasoning(9);
    assert_eq!(usage.completion_tokens_details.reasoning_tokens, 5);
}

#[test]
fn the_model_list_serves_gateways() {
    let list = ModelList::new(vec![ModelInfo::new("org/demo", 5, 4096)]);
    assert_eq!(
        serde_json::to_value(list).unwrap(),
        json!({"object": "list", "has_more": false, "first_id": "org/demo", "last_id": "org/demo",
            "data": [{"id": "org/demo", "object": "model", "created": 5, "owned_by": "volley",
                "type": "model", "display_name": "org/demo", "created_at": "1970-01-01T00:00:05Z",
                "max_model_len": 4096, "max_input_tokens": 4096, "max_tokens": 4096,
            "lifecycle": "active", "root": "org/demo", "parent": null, "permission": []}]})
    );
}
