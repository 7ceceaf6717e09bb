//! Properties: cutting does not matter, and the parser undoes the template.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use serde_json::{Map, Value, json};
use volley_protocol::messages::{Message, Role, ToolCall};
use volley_protocol::openai::Usage;
use volley_protocol::parser::{Aggregate, End, OutputParser};
use volley_protocol::stream::{ChunkBuilder, ReasoningField, ResponseMeta, response};
use volley_protocol::template::{ChatTemplate, RenderOptions};

use crate::harness::{Case, IDS, as_tokens, deltas, play};

/// Output made of the markup's own pieces, in any order.
fn markup() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("<think>"),
        Just("</think>"),
        Just("<tool_call>"),
        Just("</tool_call>"),
        Just("<function=f>"),
        Just("<function=g>"),
        Just("<function="),
        Just("</function>"),
        Just("<parameter=s>"),
        Just("<parameter=n>"),
        Just("<parameter="),
        Just("</parameter>"),
        Just("\n"),
        Just(" "),
        Just("<"),
        Just(">"),
        Just("text"),
        Just("é😀"),
        Just("null"),
        Just("12"),
        Just("{\"a\": [1]}"),
        Just("STOP"),
        Just("ST"),
        Just("\"\\"),
        Just("<tool_call>\n<function=f>\n<parameter=s>\n"),
        Just("\n</parameter>\n</function>\n</tool_call>"),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

fn cut(raw: &[u8], at: &[prop::sample::Index]) -> Vec<(Vec<u8>, Option<u32>)> {
    let mut cuts: Vec<usize> = at.iter().map(|index| index.index(raw.len() + 1)).collect();
    cuts.extend([0, raw.len()]);
    cuts.sort_unstable();
    let pieces = cuts.windows(2).map(|pair| raw[pair[0]..pair[1]].to_vec());
    pieces.map(|piece| (piece, None)).collect()
}

fn messy(open: bool, stop: bool, parallel: bool) -> Case {
    let mut case = Case::new("messy", "").tools(json!({
        "f": {"s": {"type": "string"}, "n": {"type": ["integer", "null"]}},
        "g": {"s": {}},
    }));
    case.open = open;
    case.parallel = parallel;
    if stop {
        case.stop = vec!["STOP", "text\n"];
    }
    case
}

fn assert_sound(answer: &Aggregate) {
    for call in &answer.tool_calls {
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
        assert!(arguments.is_object());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn cutting_does_not_matter(
        raw in markup(),
        at in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
        open: bool, stop: bool, parallel: bool, limit: bool,
    ) {
        let case = messy(open, stop, parallel);
        let end = if limit { End::Length } else { End::Stop };
        let whole = play(case.config(None), &[(raw.clone().into_bytes(), None)], end);
        assert_sound(&whole);
        prop_assert_eq!(&play(case.config(None), &cut(raw.as_bytes(), &at), end), &whole);
    }

    #[test]
    fn cutting_does_not_matter_with_tokens(
        raw in markup(), size in 1_usize..9, open: bool, stop: bool, parallel: bool, limit: bool,
    ) {
        let case = messy(open, stop, parallel);
        let end = if limit { End::Length } else { End::Stop };
        let whole = play(case.config(Some(IDS)), &as_tokens(&raw, usize::MAX), end);
        assert_sound(&whole);
        prop_assert_eq!(&play(case.config(Some(IDS)), &as_tokens(&raw, size), end), &whole);
    }

    #[test]
    fn content_pushes_are_the_tokens_of_the_content(
        raw in markup(), open: bool, stop: bool, parallel: bool, limit: bool,
    ) {
        let case = messy(open, stop, parallel);
        let end = if limit { End::Length } else { End::Stop };
        let tokens = as_tokens(&raw, 1);
        let mut parser = OutputParser::new(case.config(Some(IDS)));
        let mut answer = Aggregate::default();
        let mut told = Vec::new();
        for (bytes, id) in &tokens {
            answer.extend(&parser.push(bytes, *id));
            told.extend(parser.take_content_pushes());
            if parser.stopped() {
                break;
            }
        }
        let ended = parser.end(end);
        answer.extend(&ended.deltas);
        told.extend(ended.content_pushes);
        let bytes: Vec<u8> = told.iter().flat_map(|push| tokens[*push].0.clone()).collect();
        prop_assert_eq!(String::from_utf8(bytes).unwrap(), answer.content);
    }

    #[test]
    fn chunks_add_up_to_the_whole_response(
        raw in markup(),
        at in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
        open: bool, stop: bool, limit: bool,
    ) {
        let case = messy(open, stop, true);
        let end = if limit { End::Length } else { End::Stop };
        let deltas = deltas(case.config(None), &cut(raw.as_bytes(), &at), end);
        let mut answer = Aggregate::default();
        answer.extend(&deltas);
        let builder = ChunkBuilder::new(meta());
        let chunks = deltas.into_iter().filter_map(|delta| builder.delta(delta));
        let chunks: Vec<Value> = chunks.map(|chunk| serde_json::to_value(chunk).unwrap()).collect();
        let whole = serde_json::to_value(response(meta(), answer, Usage::default())).unwrap();
        let message = &whole["choices"][0]["message"];
        let text = |field: &str| message[field].as_str().unwrap_or_default().to_owned();
        prop_assert_eq!(joined(&chunks, "/content"), text("content"));
        prop_assert_eq!(joined(&chunks, "/reasoning_content"), text("reasoning_content"));
        let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
        for (i, call) in calls.iter().enumerate() {
            let own: Vec<Value> = chunks
                .iter()
                .filter(|chunk| chunk["choices"][0]["delta"]["tool_calls"][0]["index"] == i)
                .cloned()
                .collect();
            for field in ["/id", "/type", "/function/name", "/function/arguments"] {
                let streamed = joined(&own, &format!("/tool_calls/0{field}"));
                prop_assert_eq!(Some(streamed.as_str()), call.pointer(field).unwrap().as_str());
            }
        }
        let finishes = chunks.iter().filter_map(|c| c["choices"][0]["finish_reason"].as_str());
        let expected = whole["choices"][0]["finish_reason"].as_str().unwrap();
        prop_assert_eq!(finishes.collect::<Vec<_>>(), [expected]);
    }

    #[test]
    fn bytes_of_any_kind_are_taken(
        raw in prop::collection::vec(any::<u8>(), 0..64),
        at in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let case = messy(false, false, true);
        let whole = play(case.config(None), &[(raw.clone(), None)], End::Stop);
        prop_assert_eq!(&play(case.config(None), &cut(&raw, &at), End::Stop), &whole);
    }

    #[test]
    fn plain_text_comes_through(raw in "[^<]{0,80}") {
        let answer = play(messy(false, false, true).config(None), &[(raw.clone().into_bytes(), None)], End::Stop);
        prop_assert_eq!(answer.content, raw.trim());
    }

    #[test]
    fn parsing_undoes_rendering(calls in prop::collection::vec(call(), 1..4), at in prop::collection::vec(any::<prop::sample::Index>(), 0..40)) {
        let template = ChatTemplate::new(include_str!("../data/qwen3_6.jinja")).unwrap();
        let message = Message { tool_calls: calls.clone(), ..Message::text(Role::Assistant, "") };
        let options = RenderOptions { add_generation_prompt: false, ..RenderOptions::default() };
        let prompt = template.render(&[Message::text(Role::User, "q"), message], &[], options).unwrap();
        let start = prompt.find("<think>\n").unwrap() + "<think>\n".len();
        let raw = prompt[start..].strip_suffix("<|im_end|>\n").unwrap();
        let mut case = typed();
        case.open = true;
        let answer = play(case.config(None), &cut(raw.as_bytes(), &at), End::Stop);
        let parsed: Vec<ToolCall> = answer.tool_calls.iter().map(|call| ToolCall {
            name: call.name.clone(),
            arguments: serde_json::from_str(&call.arguments).unwrap(),
        }).collect();
        prop_assert_eq!(parsed, calls);
        prop_assert_eq!((answer.reasoning.as_str(), answer.content.as_str()), ("", ""));
    }
}

fn meta() -> ResponseMeta {
    ResponseMeta {
        id: "chatcmpl-1".to_owned(),
        created: 1,
        model: "demo".to_owned(),
        system_fingerprint: "fp".to_owned(),
        reasoning_field: ReasoningField::ReasoningContent,
    }
}

/// A text field of all deltas, joined as clients do.
fn joined(chunks: &[Value], field: &str) -> String {
    let deltas = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]);
    deltas
        .filter_map(|delta| delta.pointer(field)?.as_str())
        .collect()
}

/// A function with an argument of every type.
fn typed() -> Case {
    let string = json!({"type": "string"});
    let integer = json!({"type": "integer"});
    Case::new("typed", "").tools(json!({"typed": {
        "s": string, "i": integer, "b": {"type": "boolean"}, "x": {"type": "number"},
        "o": {"type": "object"}, "a": {"type": "array"},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    }}))
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any_text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            object(inner).prop_map(Value::Object),
        ]
    })
}

fn object(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::vec((any_text(), value), 0..4).prop_map(|pairs| pairs.into_iter().collect())
}

/// Any text; also bits of markup that do not make up a whole ending.
fn any_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        3 => ".{0,6}",
        1 => Just("\n".to_owned()),
        1 => Just("    x = 1\n".to_owned()),
        1 => Just("</parameter>.".to_owned()),
        1 => Just("<tool_call>".to_owned()),
        1 => Just("<think>".to_owned()),
        1 => Just("<parameter=zzz>".to_owned()),
    ];
    prop::collection::vec(piece, 0..5).prop_map(|pieces| pieces.concat())
}

fn call() -> impl Strategy<Value = ToolCall> {
    let argument = prop_oneof![
        any_text().prop_map(|text| ("s", Value::from(text))),
        any::<i64>().prop_map(|n| ("i", Value::from(n))),
        any::<bool>().prop_map(|b| ("b", Value::from(b))),
        object(json_value()).prop_map(|o| ("o", Value::Object(o))),
        prop::collection::vec(json_value(), 0..4).prop_map(|a| ("a", Value::from(a))),
        prop::option::of(any::<i32>()).prop_map(|n| ("maybe", n.map_or(Value::Null, Value::from))),
        (-1000_i32..1000).prop_map(|n| ("x", Value::from(f64::from(n) + 0.25))),
    ];
    prop::collection::vec(argument, 0..7).prop_map(|pairs| ToolCall {
        name: "typed".to_owned(),
        arguments: pairs
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    })
}

/// Takes minutes: `cargo test -p volley-protocol --test parser -- --ignored`.
#[test]
#[ignore = "ten million cuts take minutes"]
fn ten_million_cuts_do_not_matter() {
    const OUTPUTS: usize = 100_000;
    const CUTS: usize = 100;
    let mut random = proptest::test_runner::TestRunner::deterministic();
    for round in 0..OUTPUTS {
        let raw = markup().new_tree(&mut random).unwrap().current();
        let (open, stop) = (round % 2 == 0, round % 3 == 0);
        let case = messy(open, stop, round % 5 != 0);
        let end = if round % 7 == 0 {
            End::Length
        } else {
            End::Stop
        };
        let whole = play(case.config(None), &[(raw.clone().into_bytes(), None)], end);
        assert_sound(&whole);
        for _ in 0..CUTS {
            let pieces = random_pieces(raw.as_bytes(), &mut random);
            assert_eq!(play(case.config(None), &pieces, end), whole, "{raw:?}");
        }
    }
}

fn random_pieces(
    mut rest: &[u8],
    random: &mut proptest::test_runner::TestRunner,
) -> Vec<(Vec<u8>, Option<u32>)> {
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let most = 1 + random.rng().next_u32() as usize % 16;
        let length = 1 + random.rng().next_u32() as usize % most;
        let (piece, after) = rest.split_at(length.min(rest.len()));
        pieces.push((piece.to_vec(), None));
        rest = after;
    }
    pieces
}
