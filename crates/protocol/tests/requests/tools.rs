//! Tools, and the choice among them.

use serde_json::{Value, json};
use volley_protocol::openai::ToolChoice;

use crate::{read, refused, with};

#[test]
fn tools_of_a_wrong_shape() {
    let function = |function: Value| json!([{"type": "function", "function": function}]);
    let f = || json!({"type": "function", "function": {"name": "f"}});
    let cases = [
        (json!({}), "tools", "invalid_type"),
        (json!([1]), "tools[0]", "invalid_type"),
        (
            json!([{"type": "web_search"}]),
            "tools[0].type",
            "invalid_value",
        ),
        (
            json!([{"type": "function"}]),
            "tools[0].function",
            "missing_required_parameter",
        ),
        (
            function(json!({})),
            "tools[0].function.name",
            "missing_required_parameter",
        ),
        (
            function(json!({"name": ""})),
            "tools[0].function.name",
            "invalid_value",
        ),
        (
            function(json!({"name": "a\n<b>"})),
            "tools[0].function.name",
            "invalid_value",
        ),
        (
            function(json!({"name": "x".repeat(10_000)})),
            "tools[0].function.name",
            "invalid_value",
        ),
        (
            function(json!({"name": "f", "parameters": "x"})),
            "tools[0].function.parameters",
            "invalid_type",
        ),
        (json!([f(), f()]), "tools[1].function.name", "invalid_value"),
    ];
    for (tools, param, code) in cases {
        refused(&with("tools", tools), param, code);
    }
}

#[test]
fn tool_choices() {
    let f = json!([{"type": "function", "function": {"name": "f"}}]);
    let named = |name: &str| json!({"type": "function", "function": {"name": name}});
    let choose = |tools: &Value, choice: Value| {
        let mut body = with("tools", tools.clone());
        body["tool_choice"] = choice;
        body
    };
    for tools in [json!(null), json!([])] {
        for choice in [json!(null), json!("none"), json!("auto")] {
            assert!(
                read(&choose(&tools, choice))
                    .unwrap()
                    .active_tools()
                    .is_empty()
            );
        }
        for choice in [json!("required"), named("f")] {
            refused(&choose(&tools, choice), "tool_choice", "invalid_value");
        }
    }
    let request = read(&choose(&f, json!("none"))).unwrap();
    assert_eq!(
        (request.tool_choice, request.active_tools().len()),
        (ToolChoice::None, 0)
    );
    let request = read(&choose(&f, json!(null))).unwrap();
    assert_eq!(
        (request.tool_choice, request.active_tools().len()),
        (ToolChoice::Auto, 1)
    );
    for choice in [
        json!("required"),
        json!("any"),
        named("f"),
        json!({"type": "tool", "name": "f"}),
    ] {
        refused(&choose(&f, choice), "tool_choice", "unsupported_parameter");
    }
    for choice in [named("g"), json!("sometimes")] {
        refused(&choose(&f, choice), "tool_choice", "invalid_value");
    }
    refused(&choose(&f, json!(5)), "tool_choice", "invalid_type");
}
