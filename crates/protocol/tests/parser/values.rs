//! Values of parameters under the schemas of their functions.

use serde_json::{Value, json};
use volley_protocol::parser::End;

use crate::cases::{call, check, s};
use crate::harness::Case;

/// Values and what they become under a schema.
fn check_values(schema: Value, values: &[(&str, Value)]) {
    for (text, value) in values {
        let case = Case::new("value", call("f", &[("v", text)]))
            .tools(json!({"f": {"v": schema.clone()}}))
            .call("f", json!({"v": value}));
        case.check_text();
        case.check_ids();
    }
}

#[test]
fn values_follow_the_schema() {
    let town = json!({"town": "Oslo"});
    let object = |text: &'static str, value: &Value| [(text, value.clone())];
    let place = json!({"type": "object", "properties": {"town": s()}});
    for schema in [
        json!({"anyOf": [place, {"type": "object", "properties": {"lat": {"type": "number"}}}]}),
        json!({"oneOf": [{"type": "null"}, place]}),
        json!({"allOf": [place]}),
        json!({"type": ["object", "null"]}),
        json!({"properties": {"town": s()}}),
        json!({"type": "dict"}),
        json!({}),
        json!(true),
        json!({"type": 5}),
    ] {
        check_values(schema, &object("{\"town\": \"Oslo\"}", &town));
    }
    let null = Value::Null;
    check_values(
        json!({"type": ["boolean", "null"]}),
        &[
            ("false", json!(false)),
            ("False", json!(false)),
            ("TRUE", json!(true)),
            ("null", null.clone()),
            ("None", null.clone()),
            ("maybe", json!("maybe")),
        ],
    );
    check_values(
        s(),
        &[
            ("03106", json!("03106")),
            ("1.10", json!("1.10")),
            ("null", json!("null")),
            ("{\"a\": 1}", json!("{\"a\": 1}")),
            ("true", json!("true")),
        ],
    );
    check_values(
        json!({"type": "integer"}),
        &[
            ("32", json!(32)),
            (" 32 ", json!(32)),
            ("-5", json!(-5)),
            ("1.0", json!(1)),
            ("abc", json!("abc")),
            ("12 monkeys", json!("12 monkeys")),
            ("007", json!("007")),
            ("1.5", json!("1.5")),
            ("null", json!("null")),
        ],
    );
    check_values(
        json!({"type": "number"}),
        &[
            ("1e3", json!(1000)),
            ("1.0", json!(1)),
            ("0.5", json!(0.5)),
            ("x", json!("x")),
            ("1e999", json!("1e999")),
            ("NaN", json!("NaN")),
        ],
    );
    check_values(
        json!({"type": "boolean"}),
        &[("yes", json!("yes")), ("True", json!(true))],
    );
    check_values(
        json!({"type": "object"}),
        &[("{bad", json!("{bad")), ("5", json!("5"))],
    );
    check_values(
        json!({"type": "array"}),
        &[
            ("[1, {\"a\": [true]}]", json!([1, {"a": [true]}])),
            ("[1, 2", json!("[1, 2")),
        ],
    );
    check_values(
        json!({"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        &[("null", null.clone())],
    );
    check_values(json!({"enum": ["x", "1"]}), &[("1", json!("1"))]);
    check_values(
        json!({"enum": [1, "a"]}),
        &[("1", json!(1)), ("a", json!("a"))],
    );
    check_values(json!({"const": 3}), &[("3", json!(3))]);
    check_values(
        json!({"type": ["string", "null"]}),
        &[
            ("null", null.clone()),
            ("nullify", json!("nullify")),
            ("nul", json!("nul")),
            (" null", json!(" null")),
            ("", json!("")),
        ],
    );
    check_values(
        json!({"anyOf": [s(), {"type": "integer"}]}),
        &[("12", json!("12"))],
    );
    check_values(
        json!({"anyOf": [{"type": "integer"}, s()]}),
        &[("12", json!(12)), ("12b", json!("12b"))],
    );
    check_values(
        json!({}),
        &[
            (
                "__import__(\"os\").getcwd()",
                json!("__import__(\"os\").getcwd()"),
            ),
            ("1+1", json!("1+1")),
            ("[1, 2", json!("[1, 2")),
            ("{\"a\": 1}", json!({"a": 1})),
            ("12", json!("12")),
        ],
    );
}

#[test]
fn references_are_followed_and_recursive_ones_end() {
    let schema = json!({
        "properties": {"place": {"$ref": "#/$defs/place"}, "self": {"$ref": "#/properties/self"},
            "loop": {"anyOf": [{"$ref": "#/properties/loop"}, {"type": "integer"}]}},
        "$defs": {"place": {"anyOf": [{"type": "object"}, {"type": "null"}]}},
        "allOf": [{"$ref": "#/$defs/more"}, {"$ref": "#"}],
    });
    let mut schema = schema;
    schema["$defs"]["more"] = json!({"properties": {"count": {"type": "integer"}}});
    let raw = call(
        "f",
        &[
            ("place", "{\"a\": 1}"),
            ("self", "{}"),
            ("loop", "7"),
            ("count", "3"),
            ("x", "5"),
        ],
    );
    check(vec![
        Case::new("references", raw)
            .tools(json!({"f": schema}))
            .call(
                "f",
                json!({"place": {"a": 1}, "self": {}, "loop": 7, "count": 3, "x": "5"}),
            ),
    ]);
}

#[test]
fn digits_of_large_numbers_survive() {
    let big = "9007199254740993";
    let huge = "123456789012345678901234567890";
    let tools =
        json!({"f": {"a": {"type": "integer"}, "b": {"type": "number"}, "c": {"type": "object"}}});
    let nested = format!("{{\"n\": {huge}}}");
    let case = Case::new(
        "digits",
        call("f", &[("a", big), ("b", huge), ("c", &nested)]),
    )
    .tools(tools);
    let pieces = [(case.raw.clone().into_bytes(), None)];
    let answer = crate::harness::play(case.config(None), &pieces, End::Stop);
    let expected = format!("{{\"a\": {big}, \"b\": {huge}, \"c\": {{\"n\": {huge}}}}}");
    assert_eq!(answer.tool_calls[0].arguments, expected);
}
