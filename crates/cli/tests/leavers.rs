//! Clients that go, or do not read: they free what they held, and nobody else notices.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use common::canary::Canary;
use common::user;
use serde_json::{Value, json};

/// B83: clients that leave by a reset, while others go on.
#[test]
fn b83_hard_closes_hurt_nobody_else() {
    let canary = Canary::new(&["--max-num-seqs", "8"]);
    let mut long = user("Hello!");
    long["ignore_eos"] = true.into();
    for round in 0..10_u64 {
        let leavers: Vec<TcpStream> = (0..3)
            .map(|_| canary.server.begin(long.clone(), true))
            .collect();
        std::thread::scope(|scope| {
            let others: Vec<_> = (0..5)
                .map(|_| {
                    scope.spawn(|| canary.server.chat_ok(canary.body.clone())["choices"].clone())
                })
                .collect();
            std::thread::sleep(Duration::from_millis(round * 7 % 60));
            for leaver in leavers {
                // Unread bytes make the close a reset.
                drop(leaver);
            }
            for other in others {
                assert_eq!(other.join().unwrap(), canary.expected, "round {round}");
            }
        });
    }
    canary.sings("resets");
}

/// B81: streamed, not streamed, queued, and in a long prefill.
#[test]
fn b81_clients_that_leave_free_everything() {
    let canary = Canary::new(&["--max-num-seqs", "2"]);
    let phases = ["waiting", "prefill", "decode"];
    let counted = || {
        let name = "volley:cancelled_by_phase_total";
        let labels = "model_name=\"volley-demo\"";
        let of = |phase| format!("{name}{{{labels},phase=\"{phase}\"}}");
        phases.map(|phase| canary.server.metric(&of(phase)))
    };
    let before = canary.server.metric("volley:cancelled_total");
    let mut long = user("Hello!");
    long["ignore_eos"] = true.into();
    let mut prefill = user(&"word ".repeat(1_200));
    prefill["max_tokens"] = 4000.into();
    let mut left = 0.0;
    for _ in 0..5 {
        // Two run, two wait, and one of each has a long prompt.
        let sockets = [
            canary.server.begin(long.clone(), true),
            canary.server.begin(long.clone(), false),
            canary.server.begin(prefill.clone(), false),
            canary.server.begin(long.clone(), false),
        ];
        std::thread::sleep(Duration::from_millis(120));
        left += sockets.len() as f64;
        drop(sockets);
        canary.server.settles();
    }
    canary.sings("clients that left");
    // A request that had not yet reached the engine is not counted.
    let cancelled = canary.server.metric("volley:cancelled_total") - before;
    assert!(
        cancelled >= left / 2.0 && cancelled <= left,
        "{cancelled} of {left}"
    );
    let counted = counted();
    assert_eq!(counted.iter().sum::<f64>(), before + cancelled);
    assert!(counted[0] > 0.0 && counted[2] > 0.0, "{counted:?}");
}

/// A client that never reads is held back by its own connection only.
#[test]
fn a_client_that_does_not_read_slows_nobody() {
    let canary = Canary::new(&[]);
    let mut long = user("Hello!");
    long["ignore_eos"] = true.into();
    let lazy: Vec<TcpStream> = (0..3)
        .map(|_| canary.server.begin(long.clone(), true))
        .collect();
    for _ in 0..5 {
        let answer = canary.server.chat_ok(canary.body.clone());
        assert_eq!(answer["choices"], canary.expected);
    }
    drop(lazy);
    canary.sings("clients that do not read");
}

/// Such a client is not waited for without end: what it asked for is cancelled, and its connection
/// ends. One that reads slowly is waited for.
#[test]
fn a_client_that_takes_nothing_for_long_has_left() {
    let canary = Canary::new(&["--write-timeout", "0.6"]);
    let address = &canary.server.address;
    // Far more than what fits between a server and its client: each prompt comes back 8 times.
    let endless = json!({
        "prompt": vec!["\u{1}".repeat(3000); 16], "echo": true, "n": 8, "stream": true,
    });
    let mut lazy = begin(address, "/v1/completions", &endless);
    let mut slow = begin(address, "/v1/completions", &endless);
    let waits = |socket: &mut TcpStream| socket.read(&mut [0; 60_000]).unwrap() > 0;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1500) {
        assert!(waits(&mut slow), "a slow reader was cut off");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_cut_off(&mut lazy);
    assert!(waits(&mut slow));
    drop(slow);
    canary.server.settles();
    assert!(canary.server.metric("volley:cancelled_total") >= 128.0);
    canary.sings("a stream that was not read");

    // A whole answer: the ids of a million tokens.
    let text = json!({"prompt": "\u{1}".repeat(1_000_000)});
    let mut lazy = begin(address, "/tokenize", &text);
    std::thread::sleep(Duration::from_millis(1500));
    assert_cut_off(&mut lazy);
    canary.sings("an answer that was not read");
}

/// A connection on which an answer has begun to come.
fn begin(address: &str, path: &str, body: &Value) -> TcpStream {
    let body = body.to_string();
    let mut socket = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(
        socket,
        "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut head = [0; 16];
    socket.read_exact(&mut head).unwrap();
    assert!(head.starts_with(b"HTTP/1.1 200"));
    socket
}

/// What was sent can still be read, and then the connection has ended in the middle.
fn assert_cut_off(socket: &mut TcpStream) {
    socket
        .set_read_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    let mut bytes = Vec::new();
    let end = socket.read_to_end(&mut bytes);
    let open = end.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    assert!(!open, "the connection is still open");
    let text = String::from_utf8_lossy(&bytes);
    assert!(
        !text.contains("[DONE]") && !text.ends_with('}'),
        "it was complete"
    );
}

/// N42: connections that wait for nothing, and streams that nobody reads.
#[test]
fn idle_connections_slow_nobody() {
    let canary = Canary::new(&[]);
    let connect = || TcpStream::connect(&canary.server.address).unwrap();
    let mut idle: Vec<TcpStream> = (0..500).map(|_| connect()).collect();
    let health = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n";
    for socket in &mut idle {
        socket.write_all(health).unwrap();
    }
    canary.sings("500 connections");
    for socket in &mut idle {
        socket.read_exact(&mut [0; 12]).unwrap();
    }
    canary.sings("500 answers half read");
}

/// A client that closes its sending side has left: its request is cancelled.
#[test]
fn a_half_closed_connection_counts_as_left() {
    let canary = Canary::new(&[]);
    let mut long = user("Hello!");
    long["ignore_eos"] = true.into();
    let mut socket = canary.server.begin(long, true);
    socket.shutdown(Shutdown::Write).unwrap();
    canary.server.settles();
    let mut rest = Vec::new();
    let _ = socket.read_to_end(&mut rest);
    canary.sings("a half-closed connection");
    let mut idle = TcpStream::connect(&canary.server.address).unwrap();
    idle.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        .unwrap();
    idle.read_exact(&mut [0; 15]).unwrap();
}
