//! Rules that take long to compile, and schemas without end.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::base;
use crate::common::canary::{CHAT, Canary};

/// N40: while a rule takes its time to compile, others get their answers.
#[test]
fn a_slow_rule_holds_up_nobody() {
    let canary = Canary::new(&[]);
    let mut slow = base(CHAT);
    let bomb = "((a|b|cd?){1,60}(x|yz){1,60}){1,60}";
    slow["guided_regex"] = bomb.into();
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| {
            let begin = Instant::now();
            let status = canary.server.chat(slow).status;
            (status, begin.elapsed())
        });
        let begin = Instant::now();
        canary.server.chat_ok(canary.body.clone());
        let song = begin.elapsed();
        let (status, took) = slow.join().unwrap();
        assert!([200, 400].contains(&status), "{status}");
        assert!(took < Duration::from_secs(20), "{took:?}");
        assert!(
            took < Duration::from_secs(1) || song < took,
            "{song:?} of {took:?}"
        );
    });
    canary.sings("a slow rule");
}

/// A rule that compiles and then grows beyond its limits fails its own request, by the client's fault.
/// These compile in a tenth of their time, so that a busy machine does not refuse them for that.
#[test]
fn rules_that_grow_too_complex_on_the_way() {
    let canary = Canary::new(&[]);
    let fields: Map<String, Value> = (0..1_000)
        .map(|i| (format!("p{i}"), json!({"type": "string"})))
        .collect();
    for (field, rule) in [
        ("guided_regex", json!("(a?){1000}a{1000}")),
        (
            "guided_json",
            json!({"type": "object", "properties": fields}),
        ),
    ] {
        let mut body = base(CHAT);
        body[field] = rule;
        body["enable_thinking"] = false.into();
        body["max_tokens"] = 40.into();
        let whole = canary.server.chat(body.clone());
        assert_eq!(whole.status, 400, "{field}: {}", whole.body);
        assert_eq!(whole.json()["error"]["code"], "format_too_complex");
        canary.sings(field);
        body["stream"] = true.into();
        let streamed = canary.server.chat(body);
        assert!(streamed.body.contains("\"format_too_complex\""), "{field}");
        assert!(!streamed.body.contains("[DONE]"), "{field}");
        canary.sings(field);
    }
}

#[test]
fn schemas_of_any_depth() {
    let canary = Canary::new(&[]);
    for depth in [10, 60, 100] {
        let schema = (0..depth).fold(
            json!({}),
            |inner, _| json!({"type": "array", "items": inner}),
        );
        let mut format = base(CHAT);
        format["guided_json"] = schema.clone();
        let mut tool = base(CHAT);
        let function =
            json!({"name": "f", "strict": true, "parameters": {"properties": {"a": schema}}});
        tool["tools"] = json!([{"type": "function", "function": function}]);
        for body in [format, tool] {
            canary.gets(CHAT, body, if depth < 50 { &[200] } else { &[200, 400] });
        }
    }
}
