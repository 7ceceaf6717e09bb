//! What lies around the server fails: the reader of its log, the folder of its recordings.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::common::canary::Canary;
use crate::common::user;

#[test]
fn a_log_that_nobody_reads_and_a_folder_that_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let canary = Canary::new(&["--record", folder.path().to_str().unwrap()]);
    folder.close().unwrap();
    for _ in 0..3 {
        canary.sings("a lost folder");
    }

    let mut server = Command::new(env!("CARGO_BIN_EXE_volley"))
        .args(["serve", "--port", "0", "--log-level", "trace"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(server.stderr.take());
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let url = lines.find_map(|line| {
        let line = line.unwrap();
        let (_, url) = line
            .split_once("http://")
            .filter(|_| line.starts_with("serving"))?;
        Some(format!("http://{}", url.split(' ').next()?))
    });
    drop(lines);
    let url = format!("{}/v1/chat/completions", url.unwrap());
    let mut body = user("Hello!");
    body["max_tokens"] = 2.into();
    for _ in 0..3 {
        let answer = ureq::post(&url).send(body.to_string()).unwrap();
        assert_eq!(answer.status(), 200);
    }
    assert!(server.try_wait().unwrap().is_none());
    server.kill().unwrap();
    server.wait().unwrap();
}
