//! Cases from public bug reports, reworded, and from the conformance table of the markup.

use serde_json::{Value, json};
use volley_protocol::parser::End;

use crate::harness::Case;

pub(crate) fn s() -> Value {
    json!({"type": "string"})
}

/// A wrapped call.
pub(crate) fn call(name: &str, parameters: &[(&str, &str)]) -> String {
    let parameters: String = parameters
        .iter()
        .map(|(name, value)| format!("<parameter={name}>\n{value}\n</parameter>\n"))
        .collect();
    format!("<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>")
}

pub(crate) fn check(cases: Vec<Case>) {
    for case in cases {
        case.check_text();
        case.check_ids();
    }
}

#[test]
fn thoughts_and_answer() {
    check(vec![
        Case::new("split", "Let me think.\n</think>\n\nHello")
            .open()
            .gives("Let me think.", "Hello"),
        Case::new("no end of thoughts", "Still thinking.\n")
            .open()
            .gives("Still thinking.", ""),
        Case::new("cut-off thoughts", "Still thinking, \n")
            .open()
            .cut_off()
            .gives("Still thinking, \n", ""),
        Case::new("empty thoughts", "\n</think>\n\nHi")
            .open()
            .gives("", "Hi"),
        Case::new("nothing at all", "").open(),
        Case::new("second end of thoughts", "A</think>\n\nB</think>C")
            .open()
            .gives("A", "BC"),
        Case::new("repeated opening", "<think>\nA\n</think>\n\nB")
            .open()
            .gives("A", "B"),
        Case::new(
            "tags in the answer",
            "Plan.\n</think>\n\nUse the <think> and </think> tags in pairs.",
        )
        .open()
        .gives("Plan.", "Use the <think> and </think> tags in pairs."),
        Case::new(
            "an opening in the thoughts",
            "The tag <think> opens.</think>Yes",
        )
        .open()
        .gives("The tag <think> opens.", "Yes"),
        Case::new("thinking off", "Hello there."),
        Case::new("thinking off, a tag", "Hi <think>"),
        Case::new("thinking off, a close tag", "Hi </think> there"),
        Case::new(
            "tool tags without tools",
            "</think>Use <tool_call> so.</tool_call>",
        )
        .open()
        .gives("", "Use <tool_call> so.</tool_call>"),
        Case::new("white space inside stays", "a\n\n</think>\n\n b \n\n c \n")
            .open()
            .gives("a", "b \n\n c"),
        Case::new("cut-off answer keeps its end", "one \n")
            .cut_off()
            .gives("", "one \n"),
        Case::new("unfinished tag", "a </thin")
            .open()
            .gives("a </thin", ""),
    ]);
}

#[test]
fn stop_strings() {
    let raw = "They ask about the four masters.\n</think>\n\nThe four masters are A, B, C, D.";
    let echo = json!({"echo": {"text": s()}});
    check(vec![
        Case::new("split stop", "The quick brown fox jumps")
            .stop(&["own fox"])
            .gives("", "The quick br"),
        Case::new("not in thoughts", raw)
            .open()
            .stop(&["four"])
            .gives("They ask about the four masters.", "The "),
        Case::new("not in the gap", "x</think>\n\nHello\n\nWorld")
            .open()
            .stop(&["\n\n"])
            .gives("x", "Hello"),
        Case::new("earliest wins", "one two three")
            .stop(&["three", "two"])
            .gives("", "one "),
        Case::new("overlapping", "abcabd")
            .stop(&["abd", "ca"])
            .gives("", "ab"),
        Case::new(
            "not in calls",
            format!("Go {}", call("echo", &[("text", "STOP now")])),
        )
        .tools(echo.clone())
        .stop(&["STOP"])
        .gives("", "Go")
        .call("echo", json!({"text": "STOP now"})),
        Case::new(
            "not over calls",
            format!("ST{}OP", call("echo", &[("text", "x")])),
        )
        .tools(echo.clone())
        .stop(&["STOP"])
        .gives("", "STOP")
        .call("echo", json!({"text": "x"})),
        Case::new(
            "after a call",
            format!("{}\nDone. STOP", call("echo", &[("text", "x")])),
        )
        .tools(echo)
        .stop(&["STOP"])
        .gives("", "Done. ")
        .call("echo", json!({"text": "x"})),
        Case {
            end: End::Length,
            ..Case::new("at the limit", "a STOP")
                .stop(&["STOP"])
                .gives("", "a ")
        },
    ]);
}

#[test]
fn calls() {
    let glob = json!({"glob": {"pattern": s()}});
    let edit = json!({"edit": {"old": s(), "new": s()}});
    let ping = json!({"ping": {"host": s()}});
    let both = json!({"add": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "sky": {"town": s()}});
    let add = call("add", &[("a", "1"), ("b", "2")]);
    let sky = call("sky", &[("town", "Rome")]);
    let two = |between: &str| format!("{add}{between}{sky}");
    let sum = json!({"a": 1, "b": 2});
    let rome = json!({"town": "Rome"});
    check(vec![
        Case::new("one call", call("ping", &[("host", "a.b")]))
            .tools(ping.clone())
            .call("ping", json!({"host": "a.b"})),
        Case::new("indented code", call("edit", &[
            ("old", "    if ready:\n        go()\n"),
            ("new", "    if ready:\n        stop()\n"),
        ]))
        .tools(edit.clone())
        .call("edit", json!({"old": "    if ready:\n        go()\n",
            "new": "    if ready:\n        stop()\n"})),
        Case::new("white space values", call("edit", &[("old", "   "), ("new", "\u{a0}")]))
            .tools(edit.clone())
            .call("edit", json!({"old": "   ", "new": "\u{a0}"})),
        Case::new("a line end as value", call("edit", &[("old", "\n"), ("new", "\nx\n\n")]))
            .tools(edit.clone())
            .call("edit", json!({"old": "\n", "new": "\nx\n\n"})),
        Case::new("empty value", call("edit", &[("old", ""), ("new", "x")]))
            .tools(edit.clone())
            .call("edit", json!({"old": "", "new": "x"})),
        Case::new("no line ends", "<tool_call><function=edit><parameter=old>abc</parameter><parameter=new></parameter></function></tool_call>")
            .tools(edit.clone())
            .call("edit", json!({"old": "abc", "new": ""})),
        Case::new("no parameters", "<tool_call>\n<function=now>\n</function>\n</tool_call>")
            .tools(json!({"now": {}}))
            .call("now", json!({})),
        Case::new("no parameters, no line end", "<tool_call>\n<function=now></function>\n</tool_call>")
            .tools(json!({"now": {}}))
            .call("now", json!({})),
        Case::new("two calls", two("\n"))
            .tools(both.clone())
            .call("add", sum.clone())
            .call("sky", rome.clone()),
        Case::new("two calls, one allowed", two("\nand more "))
            .tools(both.clone())
            .one_call_only()
            .call("add", sum.clone()),
        Case::new("two functions in one wrapper", two("").replace("</tool_call><tool_call>", ""))
            .tools(both.clone())
            .call("add", sum.clone())
            .call("sky", rome.clone()),
        Case::new("text around calls", format!("x</think>\n\nBefore.\n\n{}\n\nAfter.\n", two("\n")))
            .open()
            .tools(both.clone())
            .gives("x", "Before.\n\n\n\n\nAfter.")
            .call("add", sum.clone())
            .call("sky", rome.clone()),
        Case::new("undeclared function", call("other", &[("x", "1"), ("y", "[1]")]))
            .tools(glob.clone())
            .call("other", json!({"x": "1", "y": [1]})),
        Case::new("quotes, backslashes, markup", call("ping", &[("host", "\"a\\b\" <p class='x'>&amp;</p>\t\u{1}\u{2028}")]))
            .tools(ping.clone())
            .call("ping", json!({"host": "\"a\\b\" <p class='x'>&amp;</p>\t\u{1}\u{2028}"})),
        Case::new("unicode", call("ping", &[("host", "ok 😀 ďábel 삼겹살")]))
            .tools(ping.clone())
            .call("ping", json!({"host": "ok 😀 ďábel 삼겹살"})),
        Case::new("tags in a value", call("ping", &[("host", "<tool_call>x</tool_call> <think></think>")]))
            .tools(ping.clone())
            .call("ping", json!({"host": "<tool_call>x</tool_call> <think></think>"})),
        Case::new("closing tags in a value", call("edit", &[
            ("old", "</parameter> and </function> and </tool_call>"),
            ("new", "a\n</parameter>\nb\n</function>\nc\n<parameter=\nd\n<parameter=zzz>\ne"),
        ]))
        .tools(edit.clone())
        .call("edit", json!({"old": "</parameter> and </function> and </tool_call>",
            "new": "a\n</parameter>\nb\n</function>\nc\n<parameter=\nd\n<parameter=zzz>\ne"})),
        Case::new("duplicate key", call("ping", &[("host", "a"), ("host", "b")]))
            .tools(ping.clone())
            .call("ping", json!({"host": "b"})),
        Case::new("dotted name", call("a.b/c-d", &[("x", "y")]))
            .tools(json!({"a.b/c-d": {"x": s()}}))
            .call("a.b/c-d", json!({"x": "y"})),
        Case::new("name with a space", call("f", &[("full name", "y")]))
            .tools(json!({"f": {"full name": s()}}))
            .call("f", json!({"full name": "y"})),
    ]);
}

#[test]
fn damaged_calls() {
    let glob = json!({"glob": {"pattern": s()}});
    let f = json!({"f": {"s": s(), "i": {"type": "integer"}}});
    let done = json!({"done": {"answer": s()}});
    let raw_done = call("done", &[("answer", "204")]);
    check(vec![
        Case::new("wrapper's opening is missing", "I will list the files.\n\n<function=glob>\n<parameter=pattern>\n*.md\n</parameter>\n</function>\n</tool_call>")
            .tools(glob.clone())
            .gives("", "I will list the files.")
            .call("glob", json!({"pattern": "*.md"})),
        Case::new("no wrapper at all", "<function=glob>\n<parameter=pattern>\n*.md\n</parameter>\n</function>")
            .tools(glob.clone())
            .call("glob", json!({"pattern": "*.md"})),
        Case::new("undeclared without wrapper", "<function=rm>\n<parameter=x>\n1\n</parameter>\n</function>")
            .tools(glob.clone()),
        Case::new("prose about the wrapper", "The wire format starts with <tool_call> and then a function line. That is all.")
            .tools(glob.clone()),
        Case::new("prose that ends with it", "The wire format starts with <tool_call>").tools(glob.clone()),
        Case::new("prose about a function", "Write <function=glob> and go, or <function= or <tool_call> <function=glob> so.")
            .tools(glob.clone()),
        Case::new("less-than signs", "a < b <c> <func <function <fun").tools(glob.clone()),
        Case::new("call without tools", call("glob", &[("pattern", "x")])),
        Case::new("empty wrapper", "Hm.\n<tool_call>\n</tool_call>").tools(glob.clone()).gives("", "Hm."),
        Case::new("value's end is missing", "<tool_call>\n<function=f>\n<parameter=s>\nabc\n</function>\n</tool_call>")
            .tools(f.clone())
            .call("f", json!({"s": "abc"})),
        Case::new("value's end is missing before the next", "<tool_call>\n<function=f>\n<parameter=s>\nabc\n<parameter=i>\n12\n</parameter>\n</function>\n</tool_call>")
            .tools(f.clone())
            .call("f", json!({"s": "abc", "i": 12})),
        Case::new("the same inline", "<tool_call>\n<function=f>\n<parameter=s>abc<parameter=i>12</parameter></function></tool_call>")
            .tools(f.clone())
            .call("f", json!({"s": "abc", "i": 12})),
        Case::new("function's end is missing", "<tool_call>\n<function=f>\n<parameter=s>\nabc\n</parameter>\n</tool_call>\nAfter.")
            .tools(f.clone())
            .gives("", "After.")
            .call("f", json!({"s": "abc"})),
        Case::new("wrapper's end is missing", "<tool_call>\n<function=f>\n<parameter=s>\nabc\n</parameter>\n</function>")
            .tools(f.clone())
            .call("f", json!({"s": "abc"})),
        Case::new("both ends are missing", "<tool_call>\n<function=f>\n<parameter=s>\nabc\n</tool_call>\n")
            .tools(f.clone())
            .call("f", json!({"s": "abc"})),
        Case::new("ends in a value", "<tool_call>\n<function=f>\n<parameter=s>\nabc")
            .tools(f.clone())
            .call("f", json!({"s": "abc"})),
        Case::new("parameter without a name", "<tool_call>\n<function=f>\n<parameter=\nx\n</parameter>\n<parameter=i>\n1\n</parameter>\n</function>\n</tool_call>")
            .tools(f.clone())
            .call("f", json!({"i": 1})),
        Case::new("name with a tag in it", "<tool_call>\n<function=f>\n<parameter=s</parameter>\n<parameter=i>\n1\n</parameter>\n</function>\n</tool_call>")
            .tools(f.clone())
            .call("f", json!({"i": 1})),
        Case::new("function's name does not end", "<tool_call>\n<function=f\n<parameter=s>\nx\n</parameter>\n</function>\n</tool_call>")
            .tools(f.clone()),
        Case::new("stray text between parameters", "<tool_call>\n<function=f>\nso: <b>\n<parameter=i>\n1\n</parameter>\n</function>\n</tool_call>")
            .tools(f.clone())
            .call("f", json!({"i": 1})),
        Case::new("cut off in a value", "Ok.\n<tool_call>\n<function=f>\n<parameter=s>\nline one\nline tw")
            .tools(f.clone())
            .gives("", "Ok.")
            .cut_off(),
        Case::new("cut off in a closing tag", "<tool_call>\n<function=f>\n<parameter=s>\nabc\n</parameter>\n</func")
            .tools(f.clone())
            .gives("", "")
            .cut_off(),
        Case::new("cut off in a header", "<tool_call>\n<function=f").tools(f.clone()).gives("", "").cut_off(),
        Case::new("cut off after a call", format!("{}\nand", call("f", &[("i", "1")])))
            .tools(f)
            .cut_off()
            .gives("", "and")
            .call("f", json!({"i": 1})),
        Case::new("call in open thoughts", format!("The result is clear.\n{raw_done}"))
            .open()
            .tools(done.clone())
            .gives("The result is clear.", "")
            .call("done", json!({"answer": "204"})),
        Case::new("call in open thoughts that end later", format!("The result is clear.\n{raw_done}\n</think>\n\n"))
            .open()
            .tools(done.clone())
            .gives("The result is clear.", "")
            .call("done", json!({"answer": "204"})),
        Case::new("thoughts about a call", "I may <tool_call> done, or <tool_call>\n<function=done>\n<parameter=answer>\n.</think>\n\nNo.")
            .open()
            .tools(done.clone())
            .gives("I may <tool_call> done, or <tool_call>\n<function=done>\n<parameter=answer>\n.", "No."),
        Case::new("bare call in thoughts", "I may <function=done>\n</function> it.</think>No.")
            .open()
            .tools(done.clone())
            .gives("I may <function=done>\n</function> it.", "No."),
        Case::new("undeclared call in thoughts", format!("{}</think>No.", call("other", &[])))
            .open()
            .tools(done.clone())
            .gives("<tool_call>\n<function=other>\n</function>\n</tool_call>", "No."),
        Case::new("thoughts, end and call together", format!("Write.</think>{raw_done}"))
            .open()
            .tools(done)
            .gives("Write.", "")
            .call("done", json!({"answer": "204"})),
    ]);
}
