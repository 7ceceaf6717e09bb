//! The OpenAPI document agrees with what the readers do.

use serde_json::{Value, json};
use volley_protocol::openapi::document;
use volley_protocol::{Features, Surface};

use super::heard::request;

const REQUESTS: [(Surface, &str); 4] = [
    (Surface::Chat, "ChatRequest"),
    (Surface::Completions, "CompletionRequest"),
    (Surface::Responses, "ResponsesRequest"),
    (Surface::Messages, "MessagesRequest"),
];

fn schema(document: &Value, name: &str) -> Value {
    document["components"]["schemas"][name].clone()
}

/// Every number at and beyond its limits, and every plain field with a value of another type.
#[test]
fn limits_and_types_are_those_of_the_readers() {
    let document = document(&Features::all(), "0.1.0");
    for (surface, name) in REQUESTS {
        let schema = schema(&document, name);
        let properties = schema["properties"].as_object().unwrap();
        let read = |field: &str, value: Value| {
            let body = request(surface, &json!({}), &json!({field: value})).to_string();
            surface.read(body.as_bytes(), &Features::all())
        };
        let mut checked = 0;
        for (field, schema) in properties {
            let Some(kind) = schema["type"][0]
                .as_str()
                .filter(|_| schema["type"].as_array().is_some_and(|t| t.len() == 2))
            else {
                continue;
            };
            let wrong = match kind {
                "string" => json!(5),
                _ => json!("x"),
            };
            let error = read(field, wrong).expect_err(field);
            assert_eq!(
                error.param.as_deref(),
                Some(field.as_str()),
                "{surface:?} {error}"
            );
            checked += 1;
            for (limit, step) in [("minimum", -1.0), ("maximum", 1.0)] {
                let Some(edge) = schema[limit].as_f64().filter(|edge| edge.abs() < 1e15) else {
                    continue;
                };
                let beyond = read(field, json!(edge + step)).expect_err(field);
                assert_eq!(beyond.param.as_deref(), Some(field.as_str()));
            }
        }
        assert!(checked > 20, "{surface:?}: {checked}");
    }
}

#[test]
fn nested_fields_and_answers_are_described() {
    let document = document(&Features::all(), "0.1.0");
    assert_eq!(document["openapi"], "3.1.0");
    let chat = schema(&document, "ChatRequest");
    let message = &chat["properties"]["messages"]["items"]["properties"];
    let roles = message["role"]["enum"].as_array().unwrap();
    assert!(
        roles.contains(&json!("tool")) && roles.len() == 7,
        "{roles:?}"
    );
    assert_eq!(chat["properties"]["messages"]["type"], json!(["array"]));
    assert_eq!(chat["required"], json!(["messages"]));
    let most = Features::all().max_choices;
    assert_eq!(chat["properties"]["n"]["maximum"], json!(most));
    let call = &message["tool_calls"]["items"]["properties"]["function"]["properties"];
    assert!(call["arguments"].is_object(), "{chat}");
    let block = schema(&document, "MessagesRequest")["properties"]["messages"]["items"]["properties"]["content"]["items"].clone();
    assert!(block["properties"]["tool_use_id"].is_object());
    for path in [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/tokenize",
        "/detokenize",
    ] {
        let post = &document["paths"][path]["post"];
        assert!(
            post["requestBody"].is_object() && post["responses"]["200"].is_object(),
            "{path}"
        );
        assert!(post["responses"]["400"].is_object());
    }
    for path in ["/health", "/ready", "/metrics", "/version"] {
        assert!(
            document["paths"][path]["get"]["responses"]["200"].is_object(),
            "{path}"
        );
    }
    assert!(document["paths"]["/ready"]["get"]["responses"]["503"].is_object());
    let ignored = document["x-ignored-fields"].as_array().unwrap();
    assert!(ignored.contains(&json!("user")));
}

/// Every reference leads somewhere.
#[test]
fn references_resolve() {
    fn walk<'a>(value: &'a Value, references: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => {
                references.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|value| walk(value, references));
            }
            Value::Array(values) => values.iter().for_each(|value| walk(value, references)),
            _ => {}
        }
    }
    let document = document(&Features::default(), "0.1.0");
    let mut references = Vec::new();
    walk(&document, &mut references);
    assert!(references.len() > 10);
    for reference in references {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}
