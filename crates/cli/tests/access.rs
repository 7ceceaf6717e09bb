//! Keys, origins and limits of connections.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::{Answer, Server, user};
use serde_json::json;

fn short() -> String {
    let mut body = user("Hello!");
    body["max_tokens"] = 1.into();
    body.to_string()
}

fn ask(server: &Server, headers: &[(&str, &str)]) -> Answer {
    let headers = [&[("content-type", "application/json")], headers].concat();
    server.request("POST", "/v1/chat/completions", &headers, short().as_bytes())
}

/// A key file with two keys, kept while the server runs.
fn key_file() -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "# staff\nada = sk-ada\nbob = sk-bob").unwrap();
    file
}

#[test]
fn only_keys_open_the_door() {
    let file = key_file();
    let server = Server::start(&["--api-key-file", file.path().to_str().unwrap()]);
    for headers in [
        &[][..],
        &[("authorization", "Bearer sk-eve")],
        &[("authorization", "Bearer sk-ad")],
        &[("authorization", "Bearer ")],
        &[("authorization", "Basic sk-ada")],
        &[("x-api-key", "ada")],
    ] {
        let answer = ask(&server, headers);
        assert_eq!(answer.status, 401, "{headers:?}");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        assert_eq!(answer.json()["error"]["code"], "invalid_api_key");
        assert!(!answer.body.contains("sk-"), "{}", answer.body);
    }
    for headers in [
        [("authorization", "Bearer sk-ada")],
        [("authorization", "bearer sk-bob")],
        [("x-api-key", "sk-bob")],
    ] {
        assert_eq!(ask(&server, &headers).status, 200, "{headers:?}");
    }
    let refused = server.post("/v1/messages", &short());
    assert_eq!(refused.json()["error"]["type"], "authentication_error");
    for path in [
        "/",
        "/health",
        "/v1/health/",
        "/ready",
        "/version/",
        "/v1/openapi.json",
    ] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    for path in [
        "/v1/models",
        "/metrics",
        "/v1/metrics",
        "/tokenize",
        "/nothing",
        "/v1health",
    ] {
        assert_eq!(server.get(path).status, 401, "{path}");
    }
}

/// A server that others can reach warns when it is open to all of them.
#[test]
fn an_open_door_is_told() {
    for (flags, warns) in [
        (&[][..], false),
        (&["--host", "0.0.0.0"], true),
        (&["--host", "0.0.0.0", "--api-key", "k"], false),
    ] {
        let (mut server, mut log) = Server::start_logged("warn", flags);
        assert_eq!(server.get("/health").status, 200);
        server.signal("TERM");
        server.wait();
        let mut text = String::new();
        log.read_to_string(&mut text).unwrap();
        assert_eq!(
            text.contains("there is no API key"),
            warns,
            "{flags:?}: {text}"
        );
    }
}

#[test]
fn each_key_has_its_own_responses_and_its_own_share() {
    let file = key_file();
    let path = file.path().to_str().unwrap();
    let server = Server::start(&[
        "--api-key-file",
        path,
        "--max-concurrent-per-key",
        "1",
        "--open-metrics",
    ]);
    let (ada, bob) = ([("x-api-key", "sk-ada")], [("x-api-key", "sk-bob")]);
    let json_type = ("content-type", "application/json");
    let body = json!({"input": "Hello!", "max_output_tokens": 1}).to_string();
    let headers = [ada[0], json_type];
    let kept = server.request("POST", "/v1/responses", &headers, body.as_bytes());
    let kept = format!("/v1/responses/{}", kept.json()["id"].as_str().unwrap());
    assert_eq!(server.request("GET", &kept, &bob, b"").status, 404);
    assert_eq!(server.request("DELETE", &kept, &bob, b"").status, 404);
    assert_eq!(server.request("GET", &kept, &ada, b"").status, 200);

    let mut endless = user("Hello!");
    endless["ignore_eos"] = true.into();
    endless["stream"] = true.into();
    let endless = endless.to_string();
    let mut running = TcpStream::connect(&server.address).unwrap();
    write!(
        running,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-api-key: sk-ada\r\ncontent-length: {}\r\n\r\n{endless}",
        endless.len()
    )
    .unwrap();
    running.read_exact(&mut [0; 500]).unwrap();
    let refused = ask(&server, &ada);
    assert_eq!(refused.status, 429, "{}", refused.body);
    assert_eq!(refused.json()["error"]["code"], "concurrency_limit");
    assert!(refused.header("retry-after").is_some());
    assert_eq!(ask(&server, &bob).status, 200);
    drop(running);
    let again = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        ask(&server, &ada).status == 200
    });
    assert!(again, "the place comes back when the client goes");
    server.settles();
}

#[test]
fn pages_of_other_origins_ask_only_where_they_may() {
    let preflight = |server: &Server, origin: &str| {
        let headers = [
            ("origin", origin),
            ("access-control-request-method", "POST"),
            (
                "access-control-request-headers",
                "authorization,content-type",
            ),
        ];
        server.request("OPTIONS", "/v1/chat/completions", &headers, b"")
    };
    let allowed = |answer: &Answer| {
        answer
            .header("access-control-allow-origin")
            .map(str::to_owned)
    };
    let closed = Server::start(&[]);
    assert_eq!(allowed(&preflight(&closed, "https://a.example")), None);
    let server = Server::start(&["--allowed-origins", "https://a.example", "--api-key", "k"]);
    let good = preflight(&server, "https://a.example");
    assert_eq!(good.status, 200);
    assert_eq!(allowed(&good).as_deref(), Some("https://a.example"));
    let headers = good.header("access-control-allow-headers").unwrap();
    assert!(headers.contains("authorization"), "{headers}");
    assert_eq!(allowed(&preflight(&server, "https://b.example")), None);
    let answer = ask(
        &server,
        &[("origin", "https://a.example"), ("x-api-key", "k")],
    );
    assert_eq!(
        (answer.status, allowed(&answer).as_deref()),
        (200, Some("https://a.example"))
    );
    let open = Server::start(&["--allowed-origins", "*"]);
    assert_eq!(
        allowed(&preflight(&open, "https://b.example")).as_deref(),
        Some("*")
    );
}

/// What the server sends on a connection until it closes it.
fn rest(socket: &mut TcpStream) -> String {
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut bytes = Vec::new();
    // A reset in place of an end is the system's way to say that unread bytes were thrown away.
    let _ = socket.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn slow_and_oversized_heads_and_bodies_are_cut_off() {
    let server = Server::start(&["--head-timeout", "0.5", "--body-timeout", "0.5"]);
    let connect = || TcpStream::connect(&server.address).unwrap();

    let begin = Instant::now();
    let mut silent: Vec<TcpStream> = (0..200).map(|_| connect()).collect();
    let mut dripping = connect();
    write!(dripping, "GET /health HTTP/1.1\r\nho").unwrap();
    rest(&mut dripping);
    for socket in &mut silent {
        assert_eq!(rest(socket), "");
    }
    assert!(
        begin.elapsed() < Duration::from_secs(10),
        "{:?}",
        begin.elapsed()
    );

    let mut slow = connect();
    write!(
        slow,
        "POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{{"
    )
    .unwrap();
    let answer = rest(&mut slow);
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("\"type\":\"error\""), "{answer}");

    // Neither a head nor a body may come byte by byte for ever.
    for (start, answer) in [
        ("GET /health HTTP/1.1\r\nx: ", ""),
        (
            "POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n\r\n",
            "HTTP/1.1 408",
        ),
        (
            "POST /tokenize HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1f4\r\n",
            "HTTP/1.1 408",
        ),
    ] {
        let mut drip = connect();
        drip.set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        drip.write_all(start.as_bytes()).unwrap();
        let begin = Instant::now();
        let mut space = [0; 12];
        let read = loop {
            let _ = drip.write_all(b" ");
            match drip.read(&mut space) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => break read.unwrap_or(0),
            }
            assert!(begin.elapsed() < Duration::from_secs(5), "{start:?}");
        };
        assert_eq!(&space[..read], answer.as_bytes(), "{start:?}");
    }

    let mut large = connect();
    // The server may have closed before all of it is sent.
    let _ = write!(
        large,
        "GET /health HTTP/1.1\r\nx: {}\r\n\r\n",
        "y".repeat(1 << 20)
    );
    let answer = rest(&mut large);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );
    let mut many = connect();
    let lines: String = (0..10_000).map(|i| format!("x{i}: y\r\n")).collect();
    let _ = write!(many, "GET /health HTTP/1.1\r\n{lines}\r\n");
    let answer = rest(&mut many);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );
    let mut few = connect();
    let lines: String = (0..101).map(|i| format!("x{i}: y\r\n")).collect();
    write!(few, "GET /health HTTP/1.1\r\n{lines}\r\n").unwrap();
    assert!(rest(&mut few).starts_with("HTTP/1.1 431"));

    for hello in [
        "\x16\x03\x01\x02\x00\x01\x00",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\0\0\0\0\r\n\r\n",
    ] {
        let mut odd = connect();
        odd.write_all(hello.as_bytes()).unwrap();
        let answer = rest(&mut odd);
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 400"),
            "{answer}"
        );
    }
    let mut both = connect();
    let smuggled = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /health HTTP/1.1\r\nhost: x\r\n\r\n";
    both.write_all(smuggled.as_bytes()).unwrap();
    assert!(rest(&mut both).starts_with("HTTP/1.1 400"));
    assert_eq!(ask(&server, &[]).status, 200);
    server.settles();
}

#[test]
fn a_connection_is_used_again_after_errors() {
    let server = Server::start(&[]);
    let mut socket = TcpStream::connect(&server.address).unwrap();
    let mut requests = String::new();
    for _ in 0..20 {
        requests += "GET /nothing HTTP/1.1\r\nhost: x\r\n\r\n";
        requests += "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}";
    }
    requests += "GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    socket.write_all(requests.as_bytes()).unwrap();
    let answers = rest(&mut socket);
    assert_eq!(answers.matches("HTTP/1.1 404").count(), 20);
    assert_eq!(answers.matches("HTTP/1.1 400").count(), 20);
    assert_eq!(answers.matches("HTTP/1.1 200").count(), 1);
}

/// N05, N10, N11: lengths that do not fit, paths that lead elsewhere, other protocols.
#[test]
fn odd_paths_lengths_and_upgrades() {
    let server = Server::start(&["--body-timeout", "0.5"]);
    let say = |head: &str, body: &str| {
        let mut socket = TcpStream::connect(&server.address).unwrap();
        // The server may have closed before all of it is sent.
        let _ = write!(
            socket,
            "{head}\r\nhost: x\r\nconnection: close\r\n\r\n{body}"
        );
        rest(&mut socket)
    };
    let post = "POST /v1/chat/completions HTTP/1.1";
    let body = short();
    for (length, status) in [
        (body.len(), "200"),
        (body.len() - 1, "400"),
        (body.len() + 1, "408"),
    ] {
        let answer = say(&format!("{post}\r\ncontent-length: {length}"), &body);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{length}: {answer}"
        );
    }
    for length in ["-1", "0x10", "99999999999999999999", "5, 6"] {
        let answer = say(&format!("{post}\r\ncontent-length: {length}"), &body);
        assert!(answer.starts_with("HTTP/1.1 400"), "{length}: {answer}");
    }
    let long = format!("/{}", "x".repeat(65_000));
    for (path, statuses) in [
        ("/../../etc/passwd", &["404"][..]),
        ("/v1/models/..%2f..%2fetc%2fpasswd", &["404"]),
        ("/v1/models/%00", &["404"]),
        ("/v1/responses/%ff%fe", &["400", "404"]),
        ("/page.css/../../Cargo.toml", &["404"]),
        (&long, &["400", "404", "414", "431"]),
    ] {
        let answer = say(&format!("GET {path} HTTP/1.1"), "");
        let status = answer.get(9..12).unwrap_or_default();
        assert!(statuses.contains(&status), "{path:.40}: {answer:.200}");
    }
    let upgrade = "GET / HTTP/1.1\r\nupgrade: websocket\r\nsec-websocket-version: 13";
    assert!(
        say(upgrade, "").starts_with("HTTP/1.1 200"),
        "asked for in vain"
    );
    assert_eq!(ask(&server, &[]).status, 200);
    server.settles();
}

#[test]
fn messages_and_packed_bodies_have_limits() {
    let server = Server::start(&["--max-messages", "3", "--max-body-bytes", "4000000"]);
    let many = |count: usize| json!({"max_tokens": 1, "messages": vec![json!({"role": "user", "content": "x"}); count]});
    assert_eq!(server.chat(many(3)).status, 200);
    for path in ["/v1/chat/completions", "/v1/messages"] {
        let refused = server.post(path, &many(4).to_string());
        assert_eq!(refused.status, 400, "{path}");
        assert!(refused.body.contains("the limit is 3"), "{}", refused.body);
    }
    let headers = [
        ("content-type", "application/json"),
        ("content-encoding", "gzip"),
    ];
    let packed = |body: &[u8]| {
        let path = "/v1/chat/completions";
        server.request("POST", path, &headers, &gzip(body))
    };
    assert_eq!(packed(short().as_bytes()).status, 200);
    let bomb = packed(&vec![b' '; 64 << 20]);
    assert_eq!(
        (bomb.status, &bomb.json()["error"]["code"]),
        (413, &json!("request_too_large"))
    );
}

/// `body` as gzip, by the tool of that name.
fn gzip(body: &[u8]) -> Vec<u8> {
    use std::process::{Command, Stdio};
    let mut tool = Command::new("gzip")
        .arg("-c")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = tool.stdin.take().unwrap();
    let body = body.to_vec();
    let writer = std::thread::spawn(move || input.write_all(&body).unwrap());
    let output = tool.wait_with_output().unwrap();
    writer.join().unwrap();
    output.stdout
}

/// Agents send bodies of several megabytes, beyond what the framework takes by itself.
#[test]
fn b91_bodies_of_several_megabytes() {
    let server = Server::start(&["--max-body-bytes", "9000000"]);
    for bytes in [1_900_000, 2_100_000, 8_000_000] {
        // Long in bytes, short in tokens: ignored fields count for the limit of the body only.
        let body = json!({
            "max_tokens": 1, "metadata": {"note": "x".repeat(bytes)},
            "messages": [{"role": "user", "content": "Hello!"}],
        });
        assert_eq!(server.chat(body).status, 200, "{bytes}");
    }
    let over = " ".repeat(9_000_001);
    let answer = server.post("/v1/chat/completions", &over);
    assert_eq!(
        (answer.status, &answer.json()["error"]["code"]),
        (413, &json!("request_too_large"))
    );
    // The same without an announced length.
    let mut socket = TcpStream::connect(&server.address).unwrap();
    write!(
        socket,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    .unwrap();
    let chunk = format!("100000\r\n{}\r\n", " ".repeat(1 << 20));
    let _ = (0..9).try_for_each(|_| socket.write_all(chunk.as_bytes()));
    assert!(rest(&mut socket).starts_with("HTTP/1.1 413"));
    // Tiny chunks must not cost more than their bytes.
    let mut socket = TcpStream::connect(&server.address).unwrap();
    write!(socket, "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n").unwrap();
    let body = short();
    let pad = "1\r\n \r\n".repeat(200_000);
    let chunks: String = body
        .bytes()
        .map(|byte| format!("1\r\n{}\r\n", char::from(byte)))
        .collect();
    socket
        .write_all(format!("{pad}{chunks}0\r\n\r\n").as_bytes())
        .unwrap();
    assert!(rest(&mut socket).starts_with("HTTP/1.1 200"));
}
