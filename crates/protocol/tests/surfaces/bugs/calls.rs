//! Tool calls: B01 to B30.

use serde_json::{Value, json};
use volley_protocol::Surface;
use volley_protocol::replay::{EngineEnd, Split, replay};

use super::{Raw, call, string};
use crate::heard::{events, file, request};

#[test]
fn b01_an_object_behind_any_of_is_an_object() {
    let town = json!({"type": "object", "properties": {"town": {"type": "string"}}});
    let point = json!({"type": "object", "properties": {"lat": {"type": "number"}}});
    let schemas = [
        json!({"anyOf": [town, point]}),
        json!({"oneOf": [town, point]}),
        json!({"allOf": [town]}),
        json!({"$ref": "#/properties/spare"}),
        json!({"type": ["object", "null"]}),
    ];
    for schema in schemas {
        Raw::new(&call("pin", &[("place", "{\"town\": \"Oslo\"}")]))
            .tool("pin", json!({"place": schema, "spare": town}))
            .call("pin", json!({"place": {"town": "Oslo"}}))
            .check();
    }
}

#[test]
fn b03_booleans_behind_a_type_list() {
    let cases = [
        ("false", json!(false)),
        ("False", json!(false)),
        ("TRUE", json!(true)),
        ("null", Value::Null),
        ("None", Value::Null),
        ("maybe", json!("maybe")),
    ];
    for (text, value) in cases {
        Raw::new(&call(
            "flag",
            &[("on", text), ("all", "True"), ("note", "None")],
        ))
        .tool(
            "flag",
            json!({"on": {"type": ["boolean", "null"]}, "all": {"type": "boolean"},
                "note": {"type": ["string", "null"]}}),
        )
        .call("flag", json!({"on": value, "all": true, "note": null}))
        .check();
    }
}

#[test]
fn b04_strings_that_look_like_numbers_stay_strings() {
    let values = [
        ("name", "Kim Berg"),
        ("age", "32"),
        ("zip", "03106"),
        ("ver", "1.10"),
        ("ratio", "1e3"),
        ("big", "9007199254740993"),
    ];
    let integer = json!({"type": "integer"});
    Raw::new(&call("reg", &values))
        .tool(
            "reg",
            json!({"name": string(), "age": integer, "zip": string(), "ver": string(),
            "ratio": {"type": "number"}, "big": integer}),
        )
        .call(
            "reg",
            json!({"name": "Kim Berg", "age": 32, "zip": "03106", "ver": "1.10",
            "ratio": 1000, "big": 9_007_199_254_740_993_i64}),
        )
        .check();
}

#[test]
fn b05_white_space_in_strings_is_data() {
    let (old, new) = (
        "    if ready:\n        go()\n",
        "    if ready:\n        stop()\n",
    );
    for (old, new) in [(old, new), ("   ", "\n"), ("\u{a0}x\u{a0}", "")] {
        Raw::new(&call("edit", &[("old", old), ("new", new)]))
            .tool("edit", json!({"old": string(), "new": string()}))
            .call("edit", json!({"old": old, "new": new}))
            .check();
    }
}

#[test]
fn b07_the_opening_tag_is_missing() {
    Raw::new("I will list the files.\n\n<function=glob>\n<parameter=pattern>\n*.md\n</parameter>\n</function>\n</tool_call>")
        .tool("glob", json!({"pattern": string()}))
        .gives("", "I will list the files.")
        .call("glob", json!({"pattern": "*.md"}))
        .check();
}

#[test]
fn b09_prose_about_the_tag_is_content_and_flows() {
    let text = "The wire format starts with <tool_call> and then a function line. That is all.";
    let raw = Raw::new(text).tool("glob", json!({"pattern": string()}));
    let body = request(Surface::Chat, &raw.tools, &json!({}));
    raw.check();
    let file = file(body, false, &[text], EngineEnd::Stop);
    let bytes = replay(&file, Surface::Chat, true, Split::Every(5)).body;
    let longest = events(&bytes)
        .iter()
        .filter_map(|event| serde_json::from_str::<Value>(&event.data).ok())
        .filter_map(|chunk| {
            chunk["choices"][0]["delta"]["content"]
                .as_str()
                .map(str::len)
        })
        .max();
    assert!(
        longest.unwrap() <= 64,
        "text waits for a bounded window only"
    );
}

#[test]
fn b10_a_tag_split_across_pieces() {
    Raw::pieces(&[
        "<tool_",
        "call>\n<func",
        "tion=pi",
        "ng>\n<para",
        "meter=host>\na.b",
        "\n</para",
        "meter>\n</function>\n</tool_",
        "call>",
    ])
    .tool("ping", json!({"host": string()}))
    .call("ping", json!({"host": "a.b"}))
    .check();
}

fn write() -> (String, Value, Value) {
    let raw = call("write", &[("path", "/tmp/a"), ("body", "x")]);
    let properties = json!({"path": string(), "body": string()});
    (raw, properties, json!({"path": "/tmp/a", "body": "x"}))
}

#[test]
fn b11_b12_a_call_in_one_piece_and_its_closing_brace() {
    let (raw, properties, arguments) = write();
    let header = raw.find("<parameter").unwrap();
    let second = raw.rfind("<parameter").unwrap();
    let last = raw.rfind("</parameter").unwrap();
    for at in [0, header, second, last, raw.len() - 1] {
        let (first, rest) = raw.split_at(at);
        Raw::pieces(&[first, rest])
            .tool("write", properties.clone())
            .call("write", arguments.clone())
            .check();
    }
}

#[test]
fn b14_a_function_without_parameters() {
    for raw in [
        "<tool_call>\n<function=now>\n</function>\n</tool_call>",
        "<tool_call>\n<function=now></function>\n</tool_call>",
    ] {
        let raw = Raw::new(raw).tool("now", json!({})).call("now", json!({}));
        let body = request(Surface::Chat, &raw.tools, &json!({}));
        let file = file(body, false, &[&raw.pieces[0]], EngineEnd::Stop);
        let bytes = replay(&file, Surface::Chat, false, Split::Recorded).body;
        let body: Value = serde_json::from_slice(&bytes).unwrap();
        let call = &body["choices"][0]["message"]["tool_calls"][0];
        assert_eq!(call["function"]["arguments"], "{}");
        raw.check();
    }
}

#[test]
fn b15_the_token_limit_inside_a_call() {
    let (_, properties, _) = write();
    Raw::new("<tool_call>\n<function=write>\n<parameter=path>\n/tmp/a\n</parameter>\n<parameter=body>\nline one\nline tw")
        .tool("write", properties)
        .gives("", "")
        .cut_off()
        .check();
}

#[test]
fn b18_a_call_inside_thoughts_that_never_close() {
    let raw = format!(
        "The result is clear.\n{}",
        call("done", &[("answer", "204")])
    );
    for end in ["", "\n</think>"] {
        Raw::new(&format!("{raw}{end}"))
            .open()
            .tool("done", json!({"answer": string()}))
            .gives("The result is clear.", "")
            .call("done", json!({"answer": "204"}))
            .check();
    }
    Raw::new("I could use <tool_call> with done.\n</think>\n\nNo.")
        .open()
        .tool("done", json!({"answer": string()}))
        .gives("I could use <tool_call> with done.", "No.")
        .check();
}

#[test]
fn b21_a_long_argument_streams_while_it_is_generated() {
    let line = "say \"hi\" \\ \u{2028}\ttab\n";
    let raw = call("write", &[("path", "/a"), ("body", &line.repeat(400))]);
    let (_, properties, _) = write();
    let schema = json!({"write": {"type": "object", "properties": properties}});
    for surface in crate::heard::CHATTY {
        let body = request(surface, &schema, &json!({}));
        let file = file(body, false, &[&raw], EngineEnd::Stop);
        let pieces = Split::Every(20).cut(&file.pieces).len();
        let bytes = replay(&file, surface, true, Split::Every(20)).body;
        let sent = events(&bytes).len();
        assert!(
            sent > pieces / 8,
            "{surface:?}: {sent} events for {pieces} pieces"
        );
    }
    Raw::new(&raw)
        .tool("write", json!({"path": string(), "body": string()}))
        .call("write", json!({"path": "/a", "body": line.repeat(400)}))
        .check();
}

#[test]
fn b22_tool_choice_none_returns_no_call() {
    Raw::new(&call("ls", &[("path", ".")]))
        .tool("ls", json!({"path": string()}))
        .field("tool_choice", json!("none"))
        .check();
}

#[test]
fn b24_a_named_choice_whose_thoughts_eat_everything() {
    for choice in [
        json!({"type": "function", "function": {"name": "pick"}}),
        json!({"type": "tool", "name": "pick"}),
        json!("required"),
    ] {
        Raw::new("Twenty tokens of thought")
            .open()
            .tool("pick", json!({"id": {"type": "integer"}}))
            .field("tool_choice", choice)
            .gives("Twenty tokens of thought", "")
            .cut_off()
            .check();
    }
}

#[test]
fn b25_an_untyped_parameter_is_never_evaluated() {
    let cases = [
        (
            "__import__(\"os\").getcwd()",
            json!("__import__(\"os\").getcwd()"),
        ),
        ("1+1", json!("1+1")),
        ("[1, 2", json!("[1, 2")),
        ("{\"a\": 1}", json!({"a": 1})),
    ];
    for (text, value) in cases {
        Raw::new(&call("calc", &[("expr", text), ("extra", text)]))
            .tool("calc", json!({"expr": {}}))
            .call("calc", json!({"expr": value, "extra": value}))
            .check();
    }
}

#[test]
fn b27_name_and_id_come_once() {
    let (raw, properties, _) = write();
    let body = request(
        Surface::Chat,
        &json!({"write": {"properties": properties}}),
        &json!({}),
    );
    let file = file(body, false, &[&raw], EngineEnd::Stop);
    let bytes = replay(&file, Surface::Chat, true, Split::Every(1)).body;
    let calls: Vec<Value> = events(&bytes)
        .iter()
        .filter_map(|event| serde_json::from_str::<Value>(&event.data).ok())
        .map(|chunk| chunk["choices"][0]["delta"]["tool_calls"][0].clone())
        .filter(|call| !call.is_null())
        .collect();
    assert_eq!(
        calls[0],
        json!({"index": 0, "id": "call_replay_0", "type": "function",
            "function": {"name": "write", "arguments": ""}})
    );
    for call in &calls[1..] {
        let names: Vec<&String> = call.as_object().unwrap().keys().collect();
        assert_eq!(names, ["index", "function"]);
        assert_eq!(call["function"].as_object().unwrap().len(), 1);
    }
}

#[test]
fn b30_parallel_calls_have_their_own_index() {
    let integer = json!({"type": "integer"});
    let raw = format!(
        "{}\n{}",
        call("add", &[("a", "1"), ("b", "2")]),
        call("sky", &[("town", "Rome")])
    );
    let both = || {
        Raw::new(&raw)
            .tool("add", json!({"a": integer, "b": integer}))
            .tool("sky", json!({"town": string()}))
            .call("add", json!({"a": 1, "b": 2}))
    };
    both().call("sky", json!({"town": "Rome"})).check();
    both().field("parallel_tool_calls", json!(false)).check();
}
