//! Answers while the model is still loading: 503, so that clients and gateways come back.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use volley_protocol::ApiError;

use crate::http::{random_id, surface_of};

/// Seconds after which a client may ask again.
const RETRY_AFTER_S: u32 = 5;
const POLL: Duration = Duration::from_millis(20);
const READ_TIMEOUT: Duration = Duration::from_secs(1);
/// Most of a request's head that is looked at.
const HEAD_BYTES: u64 = 16 << 10;

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
        let thread = spawn(move || {
            while !until.load(Ordering::Acquire) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        spawn(move || refuse(stream));
                    }
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
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    let mut head = BufReader::new((&stream).take(HEAD_BYTES));
    let mut first = String::new();
    head.read_line(&mut first)?;
    let path = first.split(' ').nth(1).unwrap_or("/");
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
    std::io::copy(&mut (&stream).take(64 << 20), &mut std::io::sink())?;
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
}
