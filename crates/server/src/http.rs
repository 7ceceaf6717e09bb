//! HTTP rules shared by all routes: ids of requests, who asks, the shape of errors.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use volley_protocol::{ApiError, Surface};

use crate::app::App;
use crate::keys::Key;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const ANTHROPIC_REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// Paths that need no key: whether the server lives, what it is, and the page that asks for a key.
const OPEN_PATHS: &[&str] = &[
    "/",
    "/health",
    "/health/ready",
    "/openapi.json",
    "/page.css",
    "/page.js",
    "/ping",
    "/ready",
    "/version",
];

/// An error on its way to the client. [`frame`] writes its body.
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
        let mut response = status.into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = error.retry_after_s {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            // The clients' libraries would send the same request twice more.
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(error);
        response
    }
}

/// A response with a JSON body.
pub fn json(status: StatusCode, body: String) -> Response {
    let kind = (header::CONTENT_TYPE, "application/json");
    (status, [kind], body).into_response()
}

/// Who asks.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Id of the request: the client's own if it is short and plain, else a random one.
    pub id: String,
    /// The key, on a server that has keys.
    pub key: Option<Arc<Key>>,
}

impl Caller {
    /// Name of the key.
    pub fn key_name(&self) -> Option<&str> {
        self.key.as_ref().map(|key| key.name())
    }
}

/// Gives each request an id and returns it, writes errors in the shape of the surface that the
/// path belongs to, and counts the response.
pub async fn frame(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let own = header_text(request.headers(), REQUEST_ID).filter(|id| is_plain(id));
    let id = own.map_or_else(|| random_id("req_"), str::to_owned);
    let surface = surface_of(request.uri().path());
    let method = request.method().clone();
    let pattern = request.extensions().get::<MatchedPath>();
    let pattern = pattern.map_or("other", MatchedPath::as_str).to_owned();
    let caller = Caller {
        id: id.clone(),
        key: None,
    };
    request.extensions_mut().insert(caller);
    let mut response = next.run(request).await;
    if let Some(error) = response.extensions_mut().remove::<ApiError>() {
        let body = surface.error_body(&error, Some(&id)).to_string();
        *response.body_mut() = Body::from(body);
        let kind = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        if surface == Surface::Messages {
            response
                .headers_mut()
                .insert(ANTHROPIC_REQUEST_ID, value.clone());
        }
        response.headers_mut().insert(REQUEST_ID, value);
    }
    let status = response.status().as_u16();
    app.metrics.response(&pattern, method.as_str(), status);
    response
}

/// Lets only those through who bring a key, if the server has keys.
pub async fn authorize(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let keys = &app.options.keys;
    let path = bare(request.uri().path());
    let counts = matches!(path, "/load" | "/metrics");
    let is_open = OPEN_PATHS.contains(&path) || (counts && app.options.open_metrics);
    if keys.is_empty() || is_open {
        return next.run(request).await;
    }
    let Some(key) = keys.find(request.headers()) else {
        return Failure(ApiError::invalid_api_key()).into_response();
    };
    if let Some(caller) = request.extensions_mut().get_mut::<Caller>() {
        caller.key = Some(key);
    }
    next.run(request).await
}

/// A path without `/v1` before it and a slash behind it, in which the routes do not differ.
fn bare(path: &str) -> &str {
    let inner = path.strip_prefix("/v1");
    let inner = inner.filter(|inner| inner.starts_with('/')).unwrap_or(path);
    match inner.strip_suffix('/') {
        Some(inner) if !inner.is_empty() => inner,
        _ => inner,
    }
}

/// The surface whose errors a path has.
pub fn surface_of(path: &str) -> Surface {
    let path = bare(path);
    match path == "/messages" || path.starts_with("/messages/") {
        true => Surface::Messages,
        false => Surface::Chat,
    }
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

/// The text of a header.
pub fn header_text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
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
        for bad in ["", "a b", "a\"b", "a/b", &"x".repeat(129)] {
            assert!(!is_plain(bad), "{bad}");
        }
    }

    #[test]
    fn failures_carry_their_headers() {
        let response = Failure(ApiError::queue_full(3)).into_response();
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()["retry-after"], "3");
        assert!(!response.headers().contains_key("x-should-retry"));
        let response = Failure(ApiError::engine_failure("x")).into_response();
        assert_eq!(response.headers()["x-should-retry"], "false");
        let response = Failure(ApiError::invalid_api_key()).into_response();
        assert_eq!(response.headers()["www-authenticate"], "Bearer");
    }

    #[test]
    fn paths_have_the_errors_of_their_surface() {
        for path in ["/v1/messages", "/messages/", "/v1/messages/count_tokens"] {
            assert_eq!(surface_of(path), Surface::Messages, "{path}");
        }
        for path in [
            "/v1/chat/completions",
            "/v1/messagesx",
            "/v1messages",
            "/",
            "/metrics",
        ] {
            assert_eq!(surface_of(path), Surface::Chat, "{path}");
        }
    }

    #[test]
    fn paths_are_the_same_with_and_without_v1_and_a_slash() {
        for path in ["/health", "/health/", "/v1/health", "/v1/health/"] {
            assert_eq!(bare(path), "/health", "{path}");
        }
        for path in ["/", "/v1/"] {
            assert_eq!(bare(path), "/", "{path}");
        }
        for path in [
            "//health",
            "/v1",
            "/v1health",
            "/v1//health",
            "/v1/v1/health",
        ] {
            assert!(!OPEN_PATHS.contains(&bare(path)), "{path}");
        }
    }
}
