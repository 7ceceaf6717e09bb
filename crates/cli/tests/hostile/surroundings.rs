//! What lies around the server fails: the readers of its log and its banner, the folder of its
//! recordings.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::canary::Canary;
use crate::common::{Server, user};

#[test]
fn a_log_that_nobody_reads_and_a_folder_that_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let canary = Canary::new(&["--record", folder.path().to_str().unwrap()]);
    folder.close().unwrap();
    for _ in 0..3 {
        canary.sings("a lost folder");
    }

    let (server, log) = Server::start_logged("trace", &[]);
    drop(log);
    for _ in 0..3 {
        let mut body = user("Hello!");
        body["max_tokens"] = 2.into();
        server.chat_ok(body);
    }
    server.settles();
}

/// As `volley serve | head -1` does.
#[test]
fn a_banner_that_nobody_reads() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    drop(free);
    let mut server = Command::new(env!("CARGO_BIN_EXE_volley"))
        .args(["serve", "--log-level", "error", "--port", &port])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(server.stdout.take());
    let url = format!("http://127.0.0.1:{port}/ready");
    let ready = (0..600).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        ureq::get(&url).call().is_ok()
    });
    let ended = server.try_wait().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(ready && ended.is_none(), "{ended:?}");
}
