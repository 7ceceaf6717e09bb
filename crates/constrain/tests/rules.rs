//! Each kind of rule: what it takes, what it does not, what it refuses to be.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::time::{Duration, Instant};

use common::{Demo, ids};
use serde_json::{Value, json};
use volley_constrain::{Calls, CompileLimits, Compiler, Error, Function, Rule};

struct Bench {
    demo: Demo,
    compiler: Compiler,
}

impl Bench {
    fn new() -> Self {
        let demo = Demo::new();
        let compiler = Compiler::new(demo.vocabulary(), CompileLimits::default());
        Self { demo, compiler }
    }

    /// Whether a rule takes the whole text, in the tokenizer's spelling.
    fn takes(&self, rule: &Rule, text: &str) -> bool {
        let constraint = self.compiler.compile(rule);
        let mut matcher = constraint
            .unwrap_or_else(|e| panic!("{e}: {rule:?}"))
            .matcher();
        let mut tokens = self.demo.encode(text);
        tokens.extend(&self.demo.end_ids);
        for token in tokens {
            if !ids(&matcher.mask().unwrap()).contains(&token) {
                return false;
            }
            matcher.take(token).unwrap();
        }
        matcher.ended()
    }

    fn refusal(&self, rule: &Rule) -> Error {
        match self.compiler.compile(rule) {
            Err(error) => error,
            Ok(_) => panic!("{rule:?} compiles"),
        }
    }
}

fn schema(schema: Value, strict: bool) -> Rule {
    Rule::JsonSchema { schema, strict }
}

#[test]
fn rules_take_what_they_say() {
    let bench = Bench::new();
    let numbers = "root ::= num (\",\" num)*\nnum ::= [0-9]+ # digits";
    let cases: &[(Rule, &[&str], &[&str])] = &[
        (
            Rule::JsonObject,
            &["{}", "{\"a\": [1, {\"b\": null}]}", "{\n  \"a\": 1\n}"],
            &["[]", "1", "{\"a\"}", " {}", "{} x"],
        ),
        (
            schema(json!(true), true),
            &["[1]", "\"a\"", "null"],
            &["nul", "[1"],
        ),
        (
            Rule::Regex("[a-c]+/[0-9]{2}".to_owned()),
            &["abc/12"],
            &["abc/1", "d/12", "abc/123"],
        ),
        (
            Rule::Choice(vec!["yes".into(), "no \"way\"\n".into()]),
            &["yes", "no \"way\"\n"],
            &["y", "yesno", "maybe"],
        ),
        (
            Rule::Grammar("start: \"a\" inner*\ninner: /[xy]/ \";\"".to_owned()),
            &["a", "ax;y;"],
            &["ax", "b"],
        ),
        (Rule::Grammar(numbers.to_owned()), &["1,22"], &["1,", ","]),
    ];
    for (rule, good, bad) in cases {
        for text in *good {
            assert!(bench.takes(rule, text), "{rule:?} {text:?}");
        }
        for text in *bad {
            assert!(!bench.takes(rule, text), "{rule:?} {text:?}");
        }
    }
}

#[test]
fn white_space_does_not_run_on() {
    let bench = Bench::new();
    let text = |run: usize| format!("{{{}}}", " ".repeat(run));
    assert!(bench.takes(&Rule::JsonObject, &text(40)));
    assert!(!bench.takes(&Rule::JsonObject, &text(41)));
}

fn calls(functions: Value, required: bool, parallel: bool) -> Calls {
    let functions = functions
        .as_array()
        .unwrap()
        .iter()
        .map(|function| Function {
            name: function["name"].as_str().unwrap().to_owned(),
            parameters: function["parameters"].clone(),
            strict: function["strict"] == true,
        });
    Calls {
        functions: functions.collect(),
        required,
        parallel,
        answer: None,
    }
}

fn call(name: &str, parameters: &[(&str, &str)]) -> String {
    let parameters: Vec<String> = parameters
        .iter()
        .map(|(key, value)| format!("<parameter={key}>\n{value}\n</parameter>\n"))
        .collect();
    format!(
        "<tool_call>\n<function={name}>\n{}</function>\n</tool_call>",
        parameters.concat()
    )
}

#[test]
fn calls_keep_to_the_schema_of_their_function() {
    let bench = Bench::new();
    let functions = json!([
        {"name": "pick", "strict": true, "parameters": {
            "type": "object",
            "properties": {
                "id": {"type": "integer"},
                "unit": {"enum": ["m", "km"]},
                "note": {"type": ["string", "null"]},
                "code": {"type": "string", "pattern": "^[a-z]{2}$"},
                "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}},
                "deep": {"type": "boolean"},
            },
            "required": ["id"],
            "$defs": {"tag": {"type": "string", "maxLength": 3}},
        }},
        {"name": "now", "parameters": null},
        {"name": "any.thing", "parameters": {"type": "object"}},
    ]);
    let one = Rule::Calls(calls(functions.clone(), true, false));
    let many = Rule::Calls(calls(functions.clone(), true, true));
    let free = Rule::Calls(calls(functions, false, true));
    let good = [
        call("pick", &[("id", "5")]),
        call("pick", &[("id", "-12"), ("unit", "km")]),
        call("pick", &[("id", "5"), ("note", "two\nlines, <b>tags</b>")]),
        call("pick", &[("id", "5"), ("note", "")]),
        call(
            "pick",
            &[
                ("id", "5"),
                ("code", "ab"),
                ("tags", "[\"a\", \"bcd\"]"),
                ("deep", "True"),
            ],
        ),
        call("now", &[]),
        call("any.thing", &[("whatever", "[1"), ("x y", "")]),
    ];
    for text in &good {
        assert!(bench.takes(&one, text), "{text}");
        assert!(bench.takes(&many, text), "{text}");
        assert!(bench.takes(&free, text), "{text}");
        assert!(bench.takes(&free, &format!("Let me see.\n\n{text}")));
        assert!(!bench.takes(&one, &format!("Let me see.\n\n{text}")));
    }
    let bad = [
        String::new(),
        "Fine.".to_owned(),
        call("pick", &[]),
        call("pick", &[("id", "five")]),
        call("pick", &[("unit", "km"), ("id", "5")]),
        call("pick", &[("id", "5"), ("unit", "miles")]),
        call("pick", &[("id", "5"), ("code", "abc")]),
        call("pick", &[("id", "5"), ("tags", "[\"long one\"]")]),
        call("pick", &[("id", "5"), ("undeclared", "1")]),
        call("now", &[("x", "1")]),
        call("other", &[]),
    ];
    for text in &bad {
        assert!(!bench.takes(&one, text), "{text}");
    }
    for text in &bad[2..] {
        assert!(!bench.takes(&free, text), "{text}");
    }
    assert!(bench.takes(&free, "Fine."));
    let two = format!("{}\n{}", good[0], good[5]);
    assert!(bench.takes(&many, &two));
    assert!(!bench.takes(&one, &two));
}

#[test]
fn an_answer_in_a_format_or_else_calls() {
    let bench = Bench::new();
    let functions = json!([{"name": "now", "parameters": null}]);
    let rule = Rule::Calls(Calls {
        answer: Some(Box::new(schema(json!({"type": "integer"}), true))),
        ..calls(functions, false, true)
    });
    assert!(bench.takes(&rule, "42"));
    assert!(bench.takes(&rule, &call("now", &[])));
    assert!(!bench.takes(&rule, "forty"));
    assert!(!bench.takes(&rule, &format!("42{}", call("now", &[]))));
}

#[test]
fn forced_text_is_spelled_as_the_tokenizer_does() {
    let bench = Bench::new();
    let rule = schema(
        json!({"type": "object", "properties": {"answer": {"type": "boolean"}},
            "required": ["answer"], "additionalProperties": false,
            "x-guidance": {"whitespace_flexible": false}}),
        true,
    );
    // What a client says to the compiler itself is not heard.
    assert!(bench.takes(&rule, "{ \"answer\": true}"));

    let rule = Rule::Choice(vec![
        "The answer is yes.".into(),
        "The answer is no.".into(),
    ]);
    let mut matcher = bench.compiler.compile(&rule).unwrap().matcher();
    let before = matcher.mask().unwrap();
    let forced = matcher.forced();
    let whole = bench.demo.encode("The answer is");
    assert_eq!(forced[..whole.len()], whole);
    assert_eq!(matcher.mask().unwrap(), before, "asking changes nothing");
    assert_eq!(
        matcher.count_valid(&forced[..whole.len()]).unwrap(),
        whole.len()
    );
    for token in whole {
        matcher.take(token).unwrap();
    }
    assert!(!matcher.complete());
    let mut ended = matcher.clone();
    for token in bench.demo.encode(" no.") {
        ended.take(token).unwrap();
    }
    assert!(ended.complete() && ended.ended());
    assert_eq!(ids(&ended.mask().unwrap()), bench.demo.end_ids);
    assert!(!matcher.ended(), "a clone goes its own way");

    let calls = Rule::Calls(calls(
        json!([{"name": "now", "parameters": null}]),
        true,
        false,
    ));
    let mut matcher = bench.compiler.compile(&calls).unwrap().matcher();
    let call = call("now", &[]);
    assert_eq!(matcher.forced(), bench.demo.encode(&call));
}

#[test]
fn senseless_rules_are_refused_with_a_reason() {
    let bench = Bench::new();
    let strict = |value: Value| schema(value, true);
    let name = "a>b";
    let unspeakable = json!([{"name": "f", "strict": true, "parameters":
        {"properties": {name: {"type": "string"}}, "required": [name]}}]);
    let cases = [
        (Rule::Regex("(".into()), "regex"),
        (Rule::Regex("a(?=b)".into()), "look"),
        (
            Rule::Grammar("root ::= \"a\"\nroot ::= \"b\"".into()),
            "twice",
        ),
        (Rule::Grammar("start: missing".into()), "missing"),
        (Rule::Grammar("no grammar at all".into()), ""),
        (strict(json!({"type": "string", "pattern": "("})), ""),
        (strict(json!({"not": {"type": "string"}})), "not"),
        (
            strict(json!({"type": "integer", "minimum": 5, "maximum": 4})),
            "",
        ),
        (strict(json!({"type": "hiccup"})), ""),
        (Rule::Calls(calls(json!([]), true, true)), "no function"),
        (Rule::Calls(calls(unspeakable, true, true)), "a>b"),
    ];
    for (rule, word) in cases {
        let error = bench.refusal(&rule);
        assert!(matches!(error, Error::Rule(_)), "{rule:?}: {error:?}");
        let text = error.to_string();
        assert!(text.to_lowercase().contains(word), "{rule:?}: {text}");
        assert!(text.len() < 400 && !text.contains('\n'), "{text}");
    }
    // What cannot be enforced is left out where nothing says strict.
    assert!(bench.takes(
        &schema(json!({"type": "integer", "not": {"const": 3}}), false),
        "3"
    ));
}

/// Bounds beyond what the library counts with are drawn in; what comes out keeps to them.
#[test]
fn bounds_of_any_size_are_held() {
    let bench = Bench::new();
    let integer =
        |low: Value, high: Value| json!({"type": "integer", "minimum": low, "maximum": high});
    let number = |low: f64, high: f64| json!({"type": "number", "minimum": low, "maximum": high});
    for (bounds, yes, no) in [
        (
            integer(json!(i64::MIN), json!(i64::MAX)),
            "-9000000000000000000",
            "0.5",
        ),
        (
            integer(json!(0), json!(u64::MAX)),
            "9000000000000000000",
            "-1",
        ),
        (integer(json!(-1e300), json!(5)), "5", "6"),
        (number(-1e300, 1e300), "-1234.5", "\"1\""),
        (number(f64::MIN, 0.0), "-0.5", "0.5"),
        (number(1e-300, 1.0), "0.5", "1.5"),
        (json!({"type": "integer", "multipleOf": 5}), "15", "16"),
    ] {
        for strict in [true, false] {
            let rule = schema(bounds.clone(), strict);
            assert!(bench.takes(&rule, yes), "{bounds} {yes}");
            assert!(!bench.takes(&rule, no), "{bounds} {no}");
        }
    }
    let fine = json!({"type": "number", "multipleOf": 1e-9});
    let refusal = bench.refusal(&schema(fine.clone(), true)).to_string();
    assert!(refusal.contains("multipleOf"), "{refusal}");
    assert!(bench.takes(&schema(fine, false), "0.25"));
    let beyond = schema(json!({"type": "integer", "minimum": 1e300}), false);
    assert!(bench.refusal(&beyond).to_string().contains("minimum"));
}

/// Whatever a client sends: an answer in time, no crash, and room for the next one.
#[test]
fn hostile_rules_end_in_time() {
    let bench = Bench::new();
    let nested = |open: &str, close: &str, n: usize| open.repeat(n) + "a" + &close.repeat(n);
    let chain: String = (0..4000).map(|i| format!("r{i}: r{}\n", i + 1)).collect();
    let references: serde_json::Map<String, Value> = (0..3000)
        .map(|i| {
            (
                format!("d{i}"),
                json!({"$ref": format!("#/$defs/d{}", i + 1)}),
            )
        })
        .chain([("d3000".to_owned(), json!({"type": "null"}))])
        .collect();
    let many: serde_json::Map<String, Value> = (0..3000)
        .map(|i| (format!("property_{i}"), json!({"type": "string"})))
        .collect();
    let values: Vec<String> = (0..20_000).map(|i| format!("value {i}")).collect();
    let mut deep = json!({"type": "null"});
    for _ in 0..60 {
        deep = json!({"type": "object", "properties": {"a": deep}, "minProperties": 1});
    }
    let rules = [
        Rule::Regex(nested("(", ")", 30_000)),
        Rule::Regex("(a+)+(a+)+(a+)+$".into()),
        Rule::Regex("(((a{1,1000}){1,1000}){1,1000}){1,1000}".into()),
        Rule::Regex("(.*a.*b.*c.*d.*e.*f.*){1,200}".into()),
        Rule::Grammar(format!("start: {}", nested("(", ")", 30_000))),
        Rule::Grammar(format!("start: r0\n{chain}r4000: \"a\"")),
        Rule::Grammar("start: start | \"a\" start \"b\" | start start | \"\"".into()),
        Rule::Grammar("root ::= root root | \"a\"".into()),
        schema(json!({"$defs": references, "$ref": "#/$defs/d0"}), true),
        schema(json!({"type": "object", "properties": many}), true),
        schema(json!({"enum": values}), true),
        schema(deep, true),
        schema(json!({"$ref": "#"}), true),
        schema(
            json!({"type": "string", "pattern": "(x+x+)+y", "maxLength": 1_000_000}),
            true,
        ),
        schema(
            json!({"type": "array", "minItems": 1_000_000_000_u64, "items": {}}),
            true,
        ),
        schema(
            json!({"type": "string", "minLength": 4_000_000_000_u64}),
            true,
        ),
    ];
    for rule in rules {
        let start = Instant::now();
        let outcome = bench.compiler.compile(&rule);
        let shown: String = format!("{rule:?}").chars().take(60).collect();
        let what = match &outcome {
            Ok(_) => "compiles".to_owned(),
            Err(error) => error.to_string(),
        };
        eprintln!("{shown}: {:?}, {what}", start.elapsed());
        assert!(start.elapsed() < Duration::from_secs(20), "{shown}");
        let Ok(constraint) = outcome else { continue };
        // And its outputs are followed or given up, step by step.
        let mut matcher = constraint.matcher();
        for _ in 0..20 {
            let Ok(mask) = matcher.mask() else { break };
            let Some(token) = ids(&mask).first().copied() else {
                break;
            };
            if matcher.take(token).is_err() {
                break;
            }
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{shown}");
    }
    assert!(bench.takes(&Rule::JsonObject, "{}"));
}

#[test]
fn the_last_rules_are_kept_and_only_those() {
    let demo = Demo::new();
    let limits = CompileLimits {
        kept: 2,
        ..CompileLimits::default()
    };
    let compiler = Compiler::new(demo.vocabulary(), limits);
    let rule = |i: usize| Rule::Regex(format!("a{{{i}}}"));
    for i in 1..10 {
        compiler.compile(&rule(i)).unwrap();
        let again = compiler.compile(&rule(1)).unwrap();
        assert!(!again.matcher().ended());
        assert!(compiler.kept_count() <= 2);
    }
}

#[test]
fn time_and_number_are_limited() {
    let demo = Demo::new();
    let limits = CompileLimits {
        time: Duration::ZERO,
        at_once: 1,
        ..CompileLimits::default()
    };
    let compiler = Compiler::new(demo.vocabulary(), limits);
    let slow: Vec<String> = (0..20_000).map(|i| format!("value {i}")).collect();
    let rule = Rule::Choice(slow);
    assert_eq!(
        compiler.compile(&rule).unwrap_err(),
        Error::TooSlow { limit_ms: 0 }
    );
    assert_eq!(
        compiler.compile(&Rule::JsonObject).unwrap_err(),
        Error::Busy { limit: 1 }
    );
    let start = Instant::now();
    while compiler.compile(&Rule::JsonObject) == Err(Error::Busy { limit: 1 }) {
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(5));
    }
}
