//! Streamed or not, and however the output is cut: every surface says the same.

use proptest::prelude::*;
use serde_json::{Value, json};
use volley_protocol::Surface;
use volley_protocol::replay::{EngineEnd, Split};

use crate::heard::{CHATTY, Heard, file, hear, request};

/// Output made of the markup's own pieces, in any order.
fn markup() -> impl Strategy<Value = Vec<&'static str>> {
    let piece = prop::sample::select(vec![
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "<function=f>",
        "</function>",
        "<parameter=s>",
        "</parameter>",
        "\n",
        " ",
        "<",
        "text",
        "é😀",
        "STOP",
        "ST",
        "\"\\",
        "</think>\n\nSo: ",
        "<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=g>\n</function>\n</tool_call>",
    ]);
    prop::collection::vec(piece, 0..16)
}

fn tools() -> Value {
    json!({"f": {"type": "object", "properties": {"s": {"type": "string"}}}, "g": null})
}

/// Names and arguments; ids differ by surface.
fn calls(heard: &Heard) -> Vec<(String, Value)> {
    let calls = heard.calls.iter();
    calls
        .map(|(_, name, arguments)| (name.clone(), arguments.clone()))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn surfaces_with_thoughts(
        pieces in markup(), seed: u64, open: bool, limit: bool, stop: bool, parallel: bool,
    ) {
        let mut fields = json!({"parallel_tool_calls": parallel});
        if stop {
            fields["stop"] = json!(["STOP"]);
        }
        let end = if limit { EngineEnd::Length } else { EngineEnd::Stop };
        let mut answers = Vec::new();
        for surface in CHATTY {
            let file = file(request(surface, &tools(), &fields), open, &pieces, end);
            let whole = hear(surface, &file, false, Split::Recorded);
            for split in [Split::Whole, Split::Every(1), Split::Random(seed)] {
                prop_assert_eq!(&hear(surface, &file, false, split), &whole);
                prop_assert_eq!(&hear(surface, &file, true, split), &whole);
            }
            prop_assert_eq!(&hear(surface, &file, true, Split::Recorded), &whole);
            answers.push(whole);
        }
        for other in &answers[1..] {
            let said = |heard: &Heard| (heard.reasoning.clone(), heard.content.clone(),
                heard.finish.clone(), calls(heard));
            prop_assert_eq!(said(other), said(&answers[0]));
        }
    }

    #[test]
    fn completions(pieces in markup(), seed: u64, limit: bool, stop: bool) {
        let mut fields = json!({"stream_options": {"include_usage": true}});
        if stop {
            fields["stop"] = json!(["STOP"]);
        }
        let end = if limit { EngineEnd::Length } else { EngineEnd::Stop };
        let file = file(request(Surface::Completions, &json!({}), &fields), true, &pieces, end);
        let whole = hear(Surface::Completions, &file, false, Split::Recorded);
        let raw = pieces.concat();
        let expected = if stop { raw.split("STOP").next().unwrap() } else { &raw };
        prop_assert_eq!(&whole.content, expected);
        for split in [Split::Recorded, Split::Whole, Split::Every(1), Split::Random(seed)] {
            prop_assert_eq!(&hear(Surface::Completions, &file, true, split), &whole);
            prop_assert_eq!(&hear(Surface::Completions, &file, false, split), &whole);
        }
    }
}
