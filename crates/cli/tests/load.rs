//! Many clients, clients that leave, and the end of the server.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::io::Read;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use common::{Server, user};
use serde_json::{Value, json};

/// A chat that runs for as long as the context allows.
fn endless() -> Value {
    let mut body = user("Hello!");
    body["ignore_eos"] = true.into();
    body
}

fn short() -> Value {
    let mut body = user("Hello!");
    body["max_tokens"] = 3.into();
    body
}

#[test]
fn sixteen_at_once_are_all_answered_alike() {
    let server = Server::start(&[]);
    let mut body = user("What is 17 + 25?");
    body["max_tokens"] = 60.into();
    let alone = server.chat_ok(body.clone())["choices"].clone();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..16)
            .map(|_| scope.spawn(|| server.chat_ok(body.clone())["choices"].clone()))
            .collect();
        for client in clients {
            assert_eq!(client.join().unwrap(), alone);
        }
    });
}

/// `volley bench serve` against a server: what it counts is what the server counts.
#[test]
fn the_benchmark_of_a_server_counts_what_it_did() {
    let server = Server::start(&["--api-key", "sk-secret", "--open-metrics"]);
    let folder = tempfile::tempdir().unwrap();
    let (chats, record) = (folder.path().join("chats"), folder.path().join("record"));
    let chat = |text: &str| json!({"kind": "x", "messages": [{"role": "user", "content": text}]});
    let lines = [chat("What is 17 + 25?"), chat("What is 347 + 58?")];
    std::fs::write(&chats, format!("{}\n{}\n", lines[0], lines[1])).unwrap();
    let bench = |url: &str, flags: &[&str]| {
        std::process::Command::new(env!("CARGO_BIN_EXE_volley"))
            .args(["bench", "serve", chats.to_str().unwrap(), "--url", url])
            .args(["--max-tokens", "20", "--json", record.to_str().unwrap()])
            .args(flags)
            .output()
            .unwrap()
    };
    let url = format!("http://{}/v1/", server.address);
    let key = ["--api-key", "sk-secret"];
    let load = ["--concurrency", "1,3", "--requests", "5", "--rate", "50"];
    let output = bench(&url, &[&key[..], &load].concat());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("5 requests in"), "{said}");
    assert!(said.contains("volley-demo), 3 at a time"), "{said}");

    let written = std::fs::read_to_string(&record).unwrap();
    assert!(!written.contains("sk-secret"), "{written}");
    let written: Value = serde_json::from_str(&written).unwrap();
    let command = written["command"].as_str().unwrap();
    assert!(command.starts_with("volley bench serve "), "{command}");
    assert!(written["machine"].is_object() && written.get("commit").is_some());
    let rows = written["rows"].as_array().unwrap();
    let number = |row: &Value, name: &str| row[name].as_f64().unwrap();
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-6 * b;
    let mut prompt_tokens = 0.0;
    for (row, concurrency) in rows.iter().zip([1, 3]) {
        let number = |name: &str| number(row, name);
        assert_eq!(row["url"], json!(url));
        assert_eq!(row["model"], "volley-demo");
        assert_eq!(row["concurrency"], concurrency);
        assert_eq!((&row["requests"], &row["failed"]), (&json!(5), &json!(0)));
        assert_eq!(row["completion_tokens"], 5 * 20);
        let seconds = number("seconds");
        // The fifth request may start after 4 / 50 s.
        assert!(seconds >= 0.08, "{seconds}");
        assert!(near(number("output_tokens_per_s"), 100.0 / seconds));
        assert!(near(number("requests_per_s"), 5.0 / seconds));
        for name in ["first_token_ms", "between_events_ms", "ms_per_token"] {
            let (half, most) = (
                number(&format!("{name}_p50")),
                number(&format!("{name}_p99")),
            );
            assert!(0.0 < half && half <= most && most < seconds * 1e3, "{row}");
        }
        // Steps of several tokens are one event.
        assert!(number("ms_per_token_p50") < number("between_events_ms_p99"));
        prompt_tokens += number("prompt_tokens");
    }
    assert_eq!(rows.len(), 2);
    let served = server.metric("vllm:request_prompt_tokens_sum");
    assert_eq!(served, prompt_tokens);
    assert_eq!(server.metric("vllm:generation_tokens_total"), 200.0);

    // Failures are counted and told.
    let named = ["--served-model-name", "volley-demo"];
    let refused = bench(&url, &[&["--api-key", "sk-wrong"][..], &named].concat());
    assert_eq!(refused.status.code(), Some(1));
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(told.contains("2 of 2 requests failed"), "{told}");
    assert!(told.contains("401"), "{told}");
    let written = std::fs::read_to_string(&record).unwrap();
    let written: Value = serde_json::from_str(&written).unwrap();
    assert_eq!(written["rows"][0]["failed"], 2);
    for url in ["http://127.0.0.1:9/v1", &url] {
        let lost = bench(url, &[]);
        assert_eq!(lost.status.code(), Some(1), "{url}");
    }
}

#[test]
fn a_client_that_leaves_frees_the_engine() {
    let server = Server::start(&["--max-model-len", "1024"]);
    let begin = Instant::now();
    let whole = server.chat_ok(endless());
    let endless_time = begin.elapsed();
    assert_eq!(whole["choices"][0]["finish_reason"], "length");
    for stream in [true, false] {
        let sockets: Vec<_> = (0..8).map(|_| server.begin(endless(), stream)).collect();
        thread::sleep(Duration::from_millis(100));
        drop(sockets);
        let begin = Instant::now();
        server.chat_ok(short());
        // Had they run to their ends, this would have taken eight times as long as one.
        assert!(
            begin.elapsed() < endless_time * 4,
            "{stream}: {:?} of {endless_time:?}",
            begin.elapsed()
        );
    }
}

#[test]
fn a_full_queue_refuses_with_a_time_to_retry() {
    let server = Server::start(&["--max-num-seqs", "1", "--max-num-queued-reqs", "1"]);
    let running = server.begin(endless(), true);
    // The first chunks of the answer proper are out: this one no longer waits.
    let mut bytes = [0; 2000];
    (&running).read_exact(&mut bytes).unwrap();
    let waiting = server.begin(endless(), true);
    let refused = server.chat(short());
    assert_eq!(refused.status, 429, "{}", refused.body);
    assert_eq!(refused.json()["error"]["code"], "queue_full");
    assert!(
        refused
            .header("retry-after")
            .unwrap()
            .parse::<u32>()
            .unwrap()
            > 0
    );
    drop((running, waiting));
    let mut freed = false;
    for _ in 0..100 {
        freed = server.chat(short()).status == 200;
        if freed {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    assert!(freed, "places in the queue come back");
}

/// B92: a step beyond the limit is no health; one that takes its time is.
#[test]
fn b92_health_tells_a_step_that_does_not_end() {
    for (limit, stalls) in [("0.001", true), ("120", false)] {
        let server = Server::start(&["--stall-limit", limit]);
        let mut long = user(&"word ".repeat(1_200));
        long["max_tokens"] = 1.into();
        let mut seen = Vec::new();
        thread::scope(|scope| {
            let answer = scope.spawn(|| server.chat(long));
            while !answer.is_finished() {
                let ready = server.get("/ready").status;
                seen.push((server.get("/health").status, ready));
            }
            assert_eq!(answer.join().unwrap().status, 200);
        });
        assert!(!seen.is_empty());
        let sick = seen
            .iter()
            .any(|(health, ready)| (*health, *ready) == (503, 503));
        assert_eq!(sick, stalls, "{seen:?}");
        server.settles();
        assert_eq!(server.get("/health").status, 200);
        assert_eq!(server.chat(short()).status, 200);
    }
}

#[test]
fn a_signal_lets_running_answers_end() {
    let mut server = Server::start(&[]);
    let mut body = user("What is 17 + 25?");
    body["max_tokens"] = 20.into();
    let mut running = server.begin(body, true);
    server.signal("TERM");
    let mut rest = String::new();
    running.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("data: [DONE]"), "{rest}");
    assert!(server.wait().success());
}

/// Nobody new gets in, and what still runs at the limit ends with an error.
#[test]
fn the_end_has_a_limit() {
    let mut server = Server::start(&["--shutdown-timeout", "1"]);
    let mut running = server.begin(endless(), true);
    running.read_exact(&mut [0; 2000]).unwrap();
    let begun = Instant::now();
    server.signal("TERM");
    thread::sleep(Duration::from_millis(300));
    assert!(TcpStream::connect(&server.address).is_err());
    let mut rest = String::new();
    running.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("\"shutting_down\""), "{}", rest.len());
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert!(server.wait().success());
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_second_signal_cuts_answers_off_with_an_error() {
    let mut server = Server::start(&[]);
    let mut running = server.begin(endless(), true);
    server.signal("INT");
    thread::sleep(Duration::from_millis(100));
    server.signal("INT");
    let mut rest = String::new();
    running.read_to_string(&mut rest).unwrap();
    assert!(
        rest.contains(&json!("shutting_down").to_string()),
        "{}",
        rest.len()
    );
    assert!(server.wait().success());
}
