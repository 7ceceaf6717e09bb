//! HTTP rules shared by all routes: error bodies, request bodies, request ids (API 1.0, 1.1).

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use volley_protocol::ApiError;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// An error on its way to the client.
#[derive(Debug)]
pub struct Failure(pub ApiError);

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let Self(error) = self;
        let status =
            StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = json(status, error.to_json().to_string());
        let headers = response.headers_mut();
        if let Some(seconds) = error.retry_after_s {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            // The clients' libraries would send the same request twice more.
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        response
    }
}

/// A response with a JSON body.
pub fn json(status: StatusCode, body: String) -> Response {
    let kind = (header::CONTENT_TYPE, "application/json");
    (status, [kind], body).into_response()
}

/// Reads a JSON body: 413 beyond `limit` bytes, 415 for another encoding, or for another content
/// type unless the body is JSON all the same (curl sends a form's type).
pub async fn read_json(request: Request, limit: usize) -> Result<Vec<u8>, ApiError> {
    let (parts, body) = request.into_parts();
    let encoding = header_text(&parts.headers, header::CONTENT_ENCODING);
    if !matches!(encoding, None | Some("" | "identity")) {
        return Err(ApiError::unsupported_media(
            "compressed bodies are not read; send it with Content-Encoding: identity",
        ));
    }
    let announced = header_text(&parts.headers, header::CONTENT_LENGTH);
    let announced = announced.and_then(|text| text.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit as u64) {
        return Err(ApiError::request_too_large(limit));
    }
    let bytes = collect(body, limit).await?;
    let kind = header_text(&parts.headers, header::CONTENT_TYPE).unwrap_or("application/json");
    let essence = kind.split(';').next().unwrap_or_default().trim();
    let is_json = essence.eq_ignore_ascii_case("application/json");
    if !is_json && serde_json::from_slice::<serde_json::Value>(&bytes).is_err() {
        let shown: String = kind.chars().take(100).collect();
        return Err(ApiError::unsupported_media(&format!("it is {shown:?}")));
    }
    Ok(bytes)
}

async fn collect(body: Body, limit: usize) -> Result<Vec<u8>, ApiError> {
    let mut bytes = Vec::new();
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| {
            ApiError::malformed_body(format_args!("it cannot be read: {error}"))
        })?;
        if bytes.len() + chunk.len() > limit {
            return Err(ApiError::request_too_large(limit));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// The id of a request: the client's own if it is short and plain, else a random one.
#[derive(Clone, Debug)]
pub struct RequestId(pub String);

/// Gives each request an id, and returns it in `x-request-id`.
pub async fn with_request_id(mut request: Request, next: Next) -> Response {
    let own = header_text(request.headers(), REQUEST_ID).filter(|id| is_plain(id));
    let id = own.map_or_else(|| random_id("req_"), str::to_owned);
    request.extensions_mut().insert(RequestId(id.clone()));
    let mut response = next.run(request).await;
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

/// `prefix` and 96 random bits.
pub fn random_id(prefix: &str) -> String {
    let bits: u128 = rand::random();
    format!("{prefix}{:024x}", bits >> 32)
}

fn is_plain(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=128).contains(&id.len()) && id.bytes().all(plain)
}

fn header_text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_plain_and_differ() {
        let (a, b) = (random_id("req_"), random_id("req_"));
        assert_ne!(a, b);
        assert_eq!(a.len(), 28);
        assert!(is_plain(&a));
        for bad in ["", "a b", "a\"b", &"x".repeat(129)] {
            assert!(!is_plain(bad), "{bad}");
        }
    }

    #[test]
    fn failures_carry_their_headers() {
        let response = Failure(ApiError::queue_full(3)).into_response();
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()["retry-after"], "3");
        assert_eq!(response.headers()["content-type"], "application/json");
        assert!(!response.headers().contains_key("x-should-retry"));
        let response = Failure(ApiError::engine_failure("x")).into_response();
        assert_eq!(response.headers()["x-should-retry"], "false");
    }
}
