//! The other commands, and errors of the command line.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const CHATS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../models/demo/eval/methods.jsonl"
);

fn volley(args: &[&str], input: &str) -> Output {
    // The port that is taken by default may be in use on this machine.
    let port = args[0] == "serve" && !args.contains(&"--port");
    let mut child = Command::new(env!("CARGO_BIN_EXE_volley"))
        .args(args)
        .args(["--port", "0"].iter().filter(|_| port))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A process that refuses its arguments does not read.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json_of(args: &[&str]) -> Value {
    let output = volley(args, "");
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn generate_prints_text_or_json() {
    let flags = [
        "generate",
        "--prompt",
        "What is 17 + 25?",
        "--chat",
        "--temperature",
        "0",
    ];
    let printed = volley(&flags, "");
    assert!(printed.status.success());
    assert!(
        text(&printed.stdout).contains("42"),
        "{}",
        text(&printed.stdout)
    );
    assert!(text(&printed.stderr).contains("acceptance length"));

    let result = json_of(&[&flags[..], &["--json"]].concat());
    assert!(result["content"].as_str().unwrap().contains("42"));
    assert!(!result["reasoning_content"].as_str().unwrap().is_empty());
    let tokens = result["tokens"].as_array().unwrap().len();
    assert_eq!(result["usage"]["completion_tokens"], tokens);
    assert!(result["timings"]["acceptance_length"].as_f64().unwrap() >= 1.0);
    assert!(result["timings"]["tokens_per_second"].as_f64().unwrap() > 0.0);
}

#[test]
fn generate_continues_raw_text_from_stdin() {
    let flags = [
        "generate",
        "--prompt",
        "-",
        "--max-tokens",
        "12",
        "--ignore-eos",
        "--temperature",
        "0",
    ];
    let raw = volley(&flags, "def square(x):\n    return");
    assert!(raw.status.success(), "{}", text(&raw.stderr));
    assert!(!raw.stdout.is_empty());
    assert!(text(&raw.stderr).contains("12 tokens"));
}

#[test]
fn chat_keeps_the_conversation() {
    let lines = "Tell me about the Karra basket.\nAnd its weight?\n/reset\n/think off\nHello!\n/quit\nnever\n";
    let output = volley(&["chat", "--temperature", "0"], lines);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let answers = text(&output.stdout);
    let second = answers.lines().nth(1).unwrap();
    assert_eq!(second, "The Karra basket weighs 400 grams.", "{answers}");
    let remarks = text(&output.stderr);
    assert_eq!(remarks.matches("tokens/s").count(), 3, "{remarks}");
}

#[test]
fn inspect_describes_the_demo() {
    let report = text(&volley(&["inspect", "demo"], "").stdout);
    assert!(report.contains("DFlash drafter"), "{report}");
    let lines = text(&volley(&["inspect", "demo", "--json"], "").stdout);
    let parsed: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(parsed.len(), 2);
    for (inspection, kind) in parsed.iter().zip(["target", "drafter"]) {
        assert_eq!(inspection["kind"], kind);
        assert_eq!(inspection["problems"], serde_json::json!([]));
        assert!(inspection["total_parameters"].as_u64().unwrap() > 100_000);
    }
}

/// What could be served ends with status 0, what could not with 1 once it is described.
#[test]
fn inspect_fails_where_serve_would() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let demo = format!("{root}/models/demo/target");
    let fixture = format!("{root}/crates/model/tests/golden/target");
    // A copy of the demo model with one of its texts changed, or left out.
    let copy = |file: &str, text: Option<&str>| {
        let folder = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(&demo).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name() != file {
                std::os::unix::fs::symlink(entry.path(), folder.path().join(entry.file_name()))
                    .unwrap();
            } else if let Some(text) = text {
                std::fs::write(folder.path().join(file), text).unwrap();
            }
        }
        folder
    };
    let no_tokenizer = copy("tokenizer.json", None);
    let bad_template = copy("chat_template.jinja", Some("{% if %}"));
    let bad_defaults = copy("generation_config.json", Some("{"));
    let bad_config = copy("config.json", Some("{}"));
    let place = |folder: &tempfile::TempDir| folder.path().to_str().unwrap().to_owned();
    for (path, problem) in [
        (demo.clone(), None),
        (format!("{root}/models/demo/drafter"), None),
        (
            format!("{root}/models/demo/drafter/model.safetensors"),
            None,
        ),
        (fixture, Some("tokenizer.json: missing")),
        (place(&no_tokenizer), Some("tokenizer.json: missing")),
        (place(&bad_template), Some("chat template: ")),
        (place(&bad_defaults), Some("generation_config.json: ")),
        (place(&bad_config), Some("config.json: ")),
    ] {
        for flags in [&["--json"][..], &[]] {
            let output = volley(&[&["inspect", &*path], flags].concat(), "");
            let (report, told) = (text(&output.stdout), text(&output.stderr));
            let status = output.status.code();
            match problem {
                None => assert_eq!(status, Some(0), "{path}: {report}"),
                Some(problem) => {
                    assert_eq!(status, Some(1), "{path}: {report}");
                    assert!(report.contains(problem), "{path}: {report}");
                    assert!(told.contains("cannot be loaded"), "{path}: {told}");
                    let served = volley(&["serve", &*path, "--port", "0"], "");
                    assert_eq!(served.status.code(), Some(1), "{path}");
                }
            }
        }
    }
}

/// Twice 48 GB hold the 27B and its drafter, once does not.
#[test]
fn plan_says_what_fits_without_a_gpu() {
    let flags = ["plan", "qwen3.6-27b", "--load-format", "dummy", "--json"];
    let two = [&flags[..], &["-tp", "2", "--max-model-len", "131072"]].concat();
    let report = json_of(&two);
    assert_eq!(report["ranks"], 2);
    assert!(report["sequences"].as_u64().unwrap() >= 1, "{report}");
    let weights = report["plan"]["weights"].as_f64().unwrap();
    assert!((26.8e9..27.1e9).contains(&weights), "{weights}");

    let one = volley(&flags, "");
    assert_eq!(one.status.code(), Some(1));
    assert!(
        text(&one.stderr).contains("weights 53.79 GB"),
        "{}",
        text(&one.stderr)
    );
}

/// As with `head`: what measures goes on to its record, and nothing panics.
#[test]
fn a_reader_that_leaves_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("start.json");
    let record = record.to_str().unwrap();
    for args in [
        &["inspect", "demo"][..],
        &["plan", "demo"],
        &["bench", "start", "demo", "--json", record],
        &[
            "bench",
            "methods",
            CHATS,
            "--limit",
            "1",
            "--methods",
            "none",
            "--max-tokens",
            "2",
        ],
        &[
            "bench",
            "simulate",
            CHATS,
            "--limit",
            "1",
            "--max-tokens",
            "2",
        ],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = Command::new(env!("CARGO_BIN_EXE_volley"))
            .args(args)
            .stdout(writer)
            .output()
            .unwrap();
        let message = text(&output.stderr);
        assert!(output.status.success(), "{args:?}: {message}");
        assert!(!message.contains("panicked"), "{args:?}: {message}");
    }
    let record: Value = serde_json::from_str(&std::fs::read_to_string(record).unwrap()).unwrap();
    assert!(!record["rows"].as_array().unwrap().is_empty(), "{record}");
}

/// Methods side by side, and steps counted along their answers.
#[test]
fn ways_to_draft_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let chats = folder.path().join("chats.jsonl");
    let question = r#"{"kind":"sum","messages":[{"role":"user","content":"What is 17 + 25?"}]}"#;
    std::fs::write(&chats, format!("{question}\n")).unwrap();
    let record = folder.path().join("record.json");
    let (chats, json) = (chats.to_str().unwrap(), record.to_str().unwrap());
    let rows = |args: &[&str]| {
        let output = volley(&[args, &["--json", json]].concat(), "");
        assert!(output.status.success(), "{}", text(&output.stderr));
        let record = std::fs::read_to_string(json).unwrap();
        let record: Value = serde_json::from_str(&record).unwrap();
        (
            text(&output.stdout),
            record["rows"].as_array().unwrap().clone(),
        )
    };
    let methods = ["none", "ngram", "mtp:3", "dflash:15", "ddtree:22", "auto"];
    let list = methods.join(",");
    let (said, run) = rows(&["bench", "methods", chats, "--methods", &list]);
    assert!(
        said.contains("answers that differ between the methods: 0 of 1"),
        "{said}"
    );
    assert!(said.contains("sum: auto "), "{said}");
    let length = |method: &str| {
        let mut of = run
            .iter()
            .filter(|row| row["kind"] == "sum" && row["method"] == method);
        of.next().unwrap()["acceptance_length"].as_f64().unwrap()
    };
    assert_eq!(length("none"), 1.0);
    assert!(length("mtp:3") > 2.0 && length("dflash:15") > 3.0);
    assert!(length("ddtree:22") >= length("dflash:15"));
    let (_, counted) = rows(&["bench", "simulate", chats]);
    let steps = |policy: &str| {
        let mut of = counted
            .iter()
            .filter(|row| row["kind"] == "sum" && row["policy"] == policy);
        of.next().unwrap()["acceptance_length"].as_f64().unwrap()
    };
    // Counted or run, a chain takes the same steps.
    assert!((steps("chain 15") - length("dflash:15")).abs() < 1e-9);
    assert!((steps("seeded tree 22") - length("ddtree:22")).abs() < 1e-9);
}

/// vLLM's flag: a file of a template, or the template itself.
#[test]
fn a_chat_template_may_be_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plain.jinja");
    let template = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n<think>\n\n</think>{{ '\n\n' }}";
    std::fs::write(&file, template).unwrap();
    let question = [
        "generate",
        "--prompt",
        "What is 17 + 25?",
        "--chat",
        "--temperature",
        "0",
        "--json",
    ];
    let ask = |flags: &[&str]| json_of(&[&question[..], flags].concat());
    let own = ask(&[]);
    assert_ne!(own["reasoning_content"], "", "{own}");
    for named in [file.to_str().unwrap(), template] {
        let answer = ask(&["--chat-template", named]);
        assert_eq!(answer["reasoning_content"], "", "{answer}");
        assert!(answer["content"].as_str().unwrap().contains("42"));
    }
}

#[test]
fn answers_that_do_not_get_beyond_thoughts_are_told() {
    let flags = ["generate", "--prompt", "What is 17 + 25?", "--chat"];
    let short = volley(&[&flags[..], &["--max-tokens", "4"]].concat(), "");
    assert!(short.status.success());
    assert_eq!(text(&short.stdout), "\n");
    let told = text(&short.stderr);
    assert!(told.contains("nothing but thoughts"), "{told}");
}

#[test]
fn wrong_arguments_end_with_2_and_one_line() {
    for (args, words) in [
        (&["serve", "/no/such/folder"][..], "/no/such/folder"),
        (&["serve", "--spec", "none", "--drafter", "x"], "--drafter"),
        (&["serve", "--num-speculative-tokens", "16"], "allows 15"),
        (&["serve", "--generation-config", "/no/such"], "/no/such"),
        (&["serve", "--tool-call-parser", "hermes"], "qwen3_coder"),
        (
            &["generate", "--prompt", "x", "--temperature", "9"],
            "between 0 and 2",
        ),
        (&["inspect", "/no/such"], "/no/such"),
        (
            &["serve", "--quantization", "fp8"],
            "as their files have them",
        ),
        (&["serve", "--enable-lora"], "there are no adapters"),
        (
            &["serve", "Qwen/Qwen3.6-27B"],
            "hf download Qwen/Qwen3.6-27B",
        ),
        (
            &["serve", "--override-generation-config", "{\"top\": 1}"],
            "top is none of temperature",
        ),
        (
            &["serve", "--default-chat-template-kwargs", "{\"tools\": 1}"],
            "tools is set by the server",
        ),
        (
            &[
                "serve",
                "--default-chat-template-kwargs",
                "{\"enable_thinking\": 0}",
            ],
            "enable_thinking must be true or false",
        ),
        (&["serve", "--chat-template", "/no/such"], "/no/such"),
        (
            &["serve", "--chat-template", "{% if %}"],
            "--chat-template: ",
        ),
        // It compiles, and answers nobody.
        (
            &["serve", "--chat-template", "{{ strange(messages) }}"],
            "strange",
        ),
        (&["plan", "--gpu-memory-mib", "0"], "--gpu-memory-mib"),
        // Long work ends in a file: that it can be written is asked before.
        (
            &["bench", "start", "--json", "/no/such/x.json"],
            "no folder /no/such",
        ),
        (
            &["serve", "--record", "/dev/null/x"],
            "--record /dev/null/x",
        ),
    ] {
        let output = volley(args, "");
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
        assert!(message.contains(words), "{args:?}: {message}");
        assert!(!message.contains("panicked"), "{message}");
    }
}

#[test]
fn broken_models_and_taken_ports_end_with_1_and_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().to_str().unwrap().to_owned();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (args, words) in [
        (&["serve", &*empty][..], &*empty),
        (&["serve", "--port", &*port], &*port),
        (&["serve", "--tensor-parallel-size", "7"], "7"),
        // What no machine has room for is not tried.
        (
            &["serve", "--tensor-parallel-size", "1000000"],
            "1000000 ranks cannot share",
        ),
        (&["serve", "--max-num-seqs", "1000000000"], "1 and 4096"),
        (
            &["serve", "--max-num-seqs", "18446744073709551615"],
            "1 and 4096",
        ),
        (
            &["serve", "--max-prefix-checkpoints", "1000000000000"],
            "0 and 65536",
        ),
        (&["serve", "--device", "cpu", "--gpus", "0"], "processor"),
        (&["generate", "--prompt", "", "--max-tokens", "1"], "empty"),
        (&["plan", "--gpu-memory-mib", "900"], "available 0.85 GB"),
    ] {
        let output = volley(args, "");
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {message}");
        assert!(message.contains(words), "{args:?}: {message}");
        assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    }
}
