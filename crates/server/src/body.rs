//! Reading the bodies of requests.

use std::io::Read;
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::extract::Request;
use axum::http::header;
use flate2::read::MultiGzDecoder;
use futures_util::StreamExt;
use tokio::time::{Instant, timeout, timeout_at};
use volley_protocol::ApiError;

use crate::http::header_text;

/// How much of a refused body is read, and how long, so that its sender gets to the answer: a
/// connection that is closed with unread bytes is reset.
const DISCARDED_BYTES: usize = 256 << 20;
const DISCARD_TIME: Duration = Duration::from_secs(5);
/// What a body has to bring in a second, on the whole.
const LEAST_BYTES_PER_S: f64 = 1024.0;

/// Bounds of a body.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimits {
    /// Most bytes, before and after decompression.
    pub bytes: usize,
    /// Longest wait for more of it, and for all of it beyond the time that its bytes may take.
    pub pause: Duration,
}

/// Reads a JSON body: 413 beyond the limit, 415 for an encoding other than gzip, or for another
/// content type unless the body is JSON all the same (curl sends a form's type).
pub async fn read_json(request: Request, limits: BodyLimits) -> Result<Vec<u8>, ApiError> {
    let (parts, body) = request.into_parts();
    let encoding = header_text(&parts.headers, header::CONTENT_ENCODING).unwrap_or_default();
    let encoding = encoding.trim().to_ascii_lowercase();
    let is_gzip = matches!(&*encoding, "gzip" | "x-gzip");
    if !is_gzip && !matches!(&*encoding, "" | "identity") {
        return Err(ApiError::unsupported_media(
            "Of content encodings only gzip is read; send the body without one.",
        ));
    }
    let announced = header_text(&parts.headers, header::CONTENT_LENGTH);
    let announced = announced.and_then(|text| text.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limits.bytes as u64) {
        tokio::spawn(discard(body.into_data_stream()));
        return Err(ApiError::request_too_large(limits.bytes));
    }
    let mut bytes = collect(body, limits).await?;
    if is_gzip {
        bytes = gunzip(&bytes, limits.bytes)?;
    }
    let kind = header_text(&parts.headers, header::CONTENT_TYPE).unwrap_or("application/json");
    let essence = kind.split(';').next().unwrap_or_default().trim();
    let is_json = essence.eq_ignore_ascii_case("application/json");
    if !is_json && serde_json::from_slice::<serde_json::Value>(&bytes).is_err() {
        let shown: String = kind.chars().take(100).collect();
        return Err(ApiError::unsupported_media(format!(
            "The request body must be application/json, but is {shown:?}."
        )));
    }
    Ok(bytes)
}

async fn collect(body: Body, limits: BodyLimits) -> Result<Vec<u8>, ApiError> {
    let mut bytes = Vec::new();
    let mut chunks = body.into_data_stream();
    let begin = Instant::now();
    loop {
        let bytes_take = Duration::from_secs_f64(bytes.len() as f64 / LEAST_BYTES_PER_S);
        let until = (Instant::now() + limits.pause).min(begin + limits.pause + bytes_take);
        let chunk = timeout_at(until, chunks.next())
            .await
            .map_err(|_| ApiError::slow_body(bytes.len(), begin.elapsed().as_secs_f64()))?;
        let Some(chunk) = chunk else {
            return Ok(bytes);
        };
        let chunk = chunk.map_err(|error| {
            ApiError::malformed_body(format_args!("it cannot be read: {error}"))
        })?;
        if bytes.len() + chunk.len() > limits.bytes {
            tokio::spawn(discard(chunks));
            return Err(ApiError::request_too_large(limits.bytes));
        }
        bytes.extend_from_slice(&chunk);
    }
}

async fn discard(mut chunks: BodyDataStream) {
    let read = async {
        let mut bytes = 0;
        while let Some(Ok(chunk)) = chunks.next().await
            && bytes < DISCARDED_BYTES
        {
            bytes += chunk.len();
        }
    };
    // Out of time, the connection is reset after all.
    let _ = timeout(DISCARD_TIME, read).await;
}

/// Never holds more than `limit` bytes, whatever the input would unpack to.
fn gunzip(bytes: &[u8], limit: usize) -> Result<Vec<u8>, ApiError> {
    let mut plain = Vec::new();
    let mut reader = MultiGzDecoder::new(bytes).take(limit as u64 + 1);
    reader
        .read_to_end(&mut plain)
        .map_err(|error| ApiError::malformed_body(format_args!("it is not gzip: {error}")))?;
    match plain.len() > limit {
        true => Err(ApiError::request_too_large(limit)),
        false => Ok(plain),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn gzip_is_unpacked_up_to_the_limit() {
        let packed = gzip(b"{\"a\": 1}");
        assert_eq!(gunzip(&packed, 8).unwrap(), b"{\"a\": 1}");
        assert_eq!(gunzip(&packed, 7).unwrap_err().status, 413);
        let bomb = gzip(&vec![b' '; 8 << 20]);
        assert!(bomb.len() < 20_000);
        assert_eq!(gunzip(&bomb, 1 << 20).unwrap_err().status, 413);
        assert_eq!(gunzip(b"{}", 100).unwrap_err().status, 400);
        assert_eq!(gunzip(&packed[..10], 100).unwrap_err().status, 400);
    }
}
