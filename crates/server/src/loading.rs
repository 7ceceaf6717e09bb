//! Answers while the model is still loading: 503, so that clients and gateways come back.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use volley_protocol::ApiError;

use crate::http::{random_id, surface_of};

/// Seconds after which a client may ask again.
const RETRY_AFTER_S: u32 = 5;
const POLL: Duration = Duration::from_millis(20);
const READ_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest time that a client is heard out.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most clients that are answered at once; others find the door shut.
const MOST_CLIENTS: usize = 64;
/// Most of a request's head that is looked at.
const HEAD_BYTES: usize = 16 << 10;

/// A thread that refuses requests until it is dropped.
pub struct Loading {
    loaded: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Loading {
    /// Begins on a listener that does not block.
    pub fn begin(listener: TcpListener) -> Self {
        let loaded = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&loaded);
        let clients = Arc::new(());
        let thread = spawn(move || {
            while !until.load(Ordering::Acquire) {
                match listener.accept() {
                    Ok((stream, _)) if Arc::strong_count(&clients) <= MOST_CLIENTS => {
                        let client = Arc::clone(&clients);
                        let refused = Builder::new().spawn(move || {
                            refuse(stream);
                            drop(client);
                        });
                        if let Err(error) = refused {
                            tracing::error!("cannot answer while loading: {error}");
                        }
                    }
                    Ok(_) => {}
                    Err(_) => sleep(POLL),
                }
            }
        });
        Self {
            loaded,
            thread: Some(thread),
        }
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        self.loaded.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that answers while loading has panicked");
        }
    }
}

fn refuse(stream: TcpStream) {
    // Whoever has gone by now does not need the answer.
    let _ = answer(stream);
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let until = Instant::now() + PATIENCE;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    stream.set_write_timeout(Some(READ_TIMEOUT))?;
    let mut unread = [0; 16 << 10];
    let mut head = Vec::new();
    while !head.contains(&b'\n') && head.len() < HEAD_BYTES && Instant::now() < until {
        match stream.read(&mut unread)? {
            0 => break,
            count => head.extend_from_slice(&unread[..count]),
        }
    }
    let head = String::from_utf8_lossy(&head);
    let path = head.split([' ', '\n']).nth(1).unwrap_or("/");
    let path = path.split('?').next().unwrap_or(path);
    let error = ApiError::model_loading(RETRY_AFTER_S);
    let id = random_id("req_");
    let body = surface_of(path).error_body(&error, Some(&id)).to_string();
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\nretry-after: {RETRY_AFTER_S}\r\nx-request-id: {id}\r\n\
         connection: close\r\n\r\n{body}"
    )?;
    stream.shutdown(std::net::Shutdown::Write)?;
    // Unread bytes would make the close a reset, and the answer would be lost.
    while Instant::now() < until && stream.read(&mut unread)? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_refused_until_the_model_is_there() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let loading = Loading::begin(listener);
        for (path, word) in [
            ("/v1/chat/completions", "\"code\":\"model_loading\""),
            ("/v1/messages?beta=true", "\"overloaded_error\""),
            ("/health", "model_loading"),
        ] {
            let mut stream = TcpStream::connect(address).unwrap();
            write!(
                stream,
                "POST {path} HTTP/1.1\r\ncontent-length: 2\r\n\r\n{{}}"
            )
            .unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
            assert!(answer.contains("retry-after: 5\r\n"), "{answer}");
            assert!(answer.contains(word), "{answer}");
        }
        drop(loading);
        assert!(TcpStream::connect(address).is_err());
    }

    #[test]
    fn clients_that_say_nothing_are_few() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let loading = Loading::begin(listener);
        let silent = (0..MOST_CLIENTS).map(|_| TcpStream::connect(address).unwrap());
        let silent: Vec<TcpStream> = silent.collect();
        let ask = || {
            let mut stream = TcpStream::connect(address).unwrap();
            let mut answer = String::new();
            // The door may be shut in the middle of a word.
            let _ = write!(stream, "GET / HTTP/1.1\r\n\r\n");
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read_to_string(&mut answer);
            answer
        };
        assert_eq!(ask(), "");
        drop(silent);
        let again = (0..500).any(|_| {
            sleep(Duration::from_millis(10));
            ask().starts_with("HTTP/1.1 503 ")
        });
        assert!(again, "whoever has gone makes room");
        drop(loading);
    }
}
