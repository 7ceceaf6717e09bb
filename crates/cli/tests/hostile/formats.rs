//! Rules that take long to compile, and schemas without end.

use std::time::{Duration, Instant};

use serde_json::json;

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
