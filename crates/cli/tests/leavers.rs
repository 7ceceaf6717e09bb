//! Clients that go, or do not read: they free what they held, and nobody else notices.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use common::canary::Canary;
use common::user;

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
