//! What lies around the server fails: the reader of its log, the folder of its recordings.

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
