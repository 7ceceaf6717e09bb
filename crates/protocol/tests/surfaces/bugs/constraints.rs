//! Formats and forced calls: B62, B63.

use serde_json::{Value, json};
use volley_protocol::openai::{ChatRequest, ToolChoice};
use volley_protocol::request::Constraint;

use super::{chat, messages, refused, responses};

#[test]
fn b62_bad_schemas_and_grammars_fail_their_request_only() {
    let bad = [
        json!({"type": "hiccup"}),
        json!({"type": 123}),
        json!(123),
        json!(""),
        json!({"$ref": "#/nowhere"}),
        json!({"$ref": "http://elsewhere/schema"}),
        json!({"type": "array", "items": [{"type": "string"}]}),
        json!({"properties": {"a": {"pattern": 5}}}),
        json!({"properties": []}),
        json!({"anyOf": []}),
        json!({"enum": []}),
    ];
    for schema in bad {
        let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
        refused(
            chat(json!({"response_format": format})),
            "response_format.json_schema.schema",
        );
        refused(chat(json!({"guided_json": schema})), "guided_json");
        let text = json!({"format": {"type": "json_schema", "name": "x", "schema": schema}});
        refused(
            responses(&json!({"input": "Hi", "text": text})),
            "text.format.schema",
        );
    }
    let mut deep = json!({"type": "string"});
    for _ in 0..50 {
        deep = json!({"type": "array", "items": deep});
    }
    chat(json!({"guided_json": deep})).unwrap();
    let wide: serde_json::Map<String, Value> = (0..20_000)
        .map(|i| (format!("p{i}"), json!({"type": "string"})))
        .collect();
    refused(
        chat(json!({"guided_json": {"properties": wide}})),
        "guided_json",
    );
    let strict = json!([{"type": "function",
        "function": {"name": "f", "strict": true, "parameters": {"type": "hiccup"}}}]);
    refused(
        chat(json!({"tools": strict})),
        "tools[0].function.parameters",
    );
}

#[test]
fn b63_degenerate_switches() {
    for format in [json!(null), json!({"type": "text"})] {
        assert_eq!(
            chat(json!({"response_format": format})).unwrap().constraint,
            None
        );
    }
    let path = "response_format.json_schema.schema";
    refused(
        chat(json!({"response_format": {"type": "json_schema", "json_schema": {}}})),
        path,
    );
    refused(
        chat(json!({"response_format": {"type": "json_schema"}})),
        "response_format.json_schema",
    );
    let cases = [
        (
            json!({"json_object": false}),
            "structured_outputs.json_object",
        ),
        (json!({"json": ""}), "structured_outputs.json"),
        (json!({"choice": []}), "structured_outputs.choice"),
        (json!({"choice": [""]}), "structured_outputs.choice"),
        (json!({"regex": ""}), "structured_outputs.regex"),
        (json!({"grammar": " "}), "structured_outputs.grammar"),
        (
            json!({"regex": "a", "choice": ["b"]}),
            "structured_outputs.choice",
        ),
        (
            json!({"structural_tag": {}}),
            "structured_outputs.structural_tag",
        ),
    ];
    for (outputs, param) in cases {
        refused(chat(json!({"structured_outputs": outputs})), param);
    }
    let two = json!({"response_format": {"type": "json_object"}, "guided_regex": "a"});
    refused(chat(two), "guided_regex");
}

/// Frontends with a field for a rule send it empty, too.
#[test]
fn an_empty_rule_is_none() {
    for name in ["guided_regex", "guided_grammar", "regex", "ebnf", "grammar"] {
        let body = json!({"messages": [{"role": "user", "content": "Hi"}], name: ""});
        let request = chat(body).unwrap();
        assert_eq!(
            (request.constraint, request.notices),
            (None, vec![]),
            "{name}"
        );
    }
    let typed = json!({"messages": [{"role": "user", "content": "Hi"}],
        "response_format": {"type": "regex", "pattern": ""}});
    refused(chat(typed), "response_format.pattern");
}

/// Each surface has spellings of its own, and no two formats at once.
#[test]
fn formats_beside_those_of_chats() {
    let format = json!({"type": "json_schema", "name": "n", "schema": {"type": "object"}});
    let with = |mut body: Value, fields: &Value| {
        let fields = fields.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(fields);
        body
    };
    let message = json!({"max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]});
    let read = |fields: &Value| messages(&with(message.clone(), fields));
    let expected = Some(Constraint::JsonSchema {
        schema: format["schema"].clone(),
        strict: false,
    });
    for fields in [
        json!({"output_config": {"effort": "low", "format": format}}),
        json!({"output_format": format}),
        json!({"response_format": format}),
    ] {
        assert_eq!(read(&fields).unwrap().constraint, expected, "{fields}");
        let two = with(fields, &json!({"guided_regex": "a"}));
        refused(read(&two), "guided_regex");
    }
    let config = json!({"output_config": {"format": {"type": "json_schema"}}});
    refused(read(&config), "output_config.format.schema");
    let fields = json!({"input": "Hi", "text": {"format": format}});
    assert_eq!(responses(&fields).unwrap().constraint, expected);
    let two = with(fields, &json!({"guided_regex": "a"}));
    refused(responses(&two), "guided_regex");
}

#[test]
fn constraints_in_every_spelling() {
    let schema = json!({"type": "object"});
    let of = |strict| Constraint::JsonSchema {
        schema: schema.clone(),
        strict,
    };
    let regex = || Constraint::Regex("a+".to_owned());
    let grammar = || Constraint::Grammar("root ::= \"a\"".to_owned());
    let choice = || Constraint::Choice(vec!["a".to_owned(), "b".to_owned()]);
    let format = |format: Value| json!({"response_format": format});
    let cases = [
        (
            format(json!({"type": "json_object"})),
            Constraint::JsonObject,
        ),
        (
            format(json!({"type": "json_object", "schema": schema})),
            of(false),
        ),
        (
            format(
                json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": true}}),
            ),
            of(true),
        ),
        // As LM Studio's examples have it.
        (
            format(
                json!({"type": "json_schema", "json_schema": {"schema": schema, "strict": "true"}}),
            ),
            of(true),
        ),
        (format(json!({"type": "regex", "pattern": "a+"})), regex()),
        (
            format(json!({"type": "grammar", "grammar": "root ::= \"a\""})),
            grammar(),
        ),
        (json!({"guided_json": schema.to_string()}), of(false)),
        (json!({"guided_regex": "a+"}), regex()),
        (json!({"guided_grammar": "root ::= \"a\""}), grammar()),
        (json!({"guided_choice": ["a", "b"]}), choice()),
        (json!({"structured_outputs": {"json": schema}}), of(false)),
        (json!({"structured_outputs": {"regex": "a+"}}), regex()),
        (
            json!({"structured_outputs": {"choice": ["a", "b"]}}),
            choice(),
        ),
        (
            json!({"structured_outputs": {"grammar": "root ::= \"a\""}}),
            grammar(),
        ),
        (
            json!({"structured_outputs": {"json_object": true}}),
            Constraint::JsonObject,
        ),
        (json!({"grammar": "root ::= \"a\""}), grammar()),
        (json!({"json_schema": schema}), of(false)),
        (json!({"regex": "a+"}), regex()),
        (json!({"ebnf": "root ::= \"a\""}), grammar()),
    ];
    for (fields, constraint) in cases {
        assert_eq!(
            chat(fields.clone()).unwrap().constraint,
            Some(constraint),
            "{fields}"
        );
        let mut body = json!({"messages": [{"role": "user", "content": "Hi"}]});
        body.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        let error = ChatRequest::from_json(body.to_string().as_bytes()).unwrap_err();
        assert_eq!(
            (error.status, error.code),
            (400, Some("unsupported_parameter")),
            "{fields}"
        );
    }
    let tools = json!([{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "g"}}]);
    let calls = |names: &[&str], required| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Some(Constraint::ToolCall { names, required })
    };
    let allowed = |mode: &str| json!({"type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": "g"}]});
    for (choice, constraint, parsed) in [
        (
            json!("required"),
            calls(&["f", "g"], true),
            ToolChoice::Required,
        ),
        (json!("any"), calls(&["f", "g"], true), ToolChoice::Required),
        (
            json!({"type": "function", "function": {"name": "g"}}),
            calls(&["g"], true),
            ToolChoice::Required,
        ),
        (
            json!({"type": "tool", "name": "g"}),
            calls(&["g"], true),
            ToolChoice::Required,
        ),
        (
            allowed("required"),
            calls(&["g"], true),
            ToolChoice::Required,
        ),
        (allowed("auto"), calls(&["g"], false), ToolChoice::Auto),
        (json!({"type": "auto"}), None, ToolChoice::Auto),
    ] {
        let request = chat(json!({"tools": tools, "tool_choice": choice})).unwrap();
        assert_eq!(
            (request.constraint, request.tool_choice),
            (constraint, parsed),
            "{choice}"
        );
    }
}
