//! The page at `/`: plain files in the binary.

use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};

/// The page loads nothing from elsewhere, and nothing else may show it.
const POLICY: &str = "default-src 'self'; img-src data:; frame-ancestors 'none'";
const NO_SNIFF: (HeaderName, &str) = (header::X_CONTENT_TYPE_OPTIONS, "nosniff");

/// `GET /`.
pub async fn html() -> Response {
    file(
        "text/html; charset=utf-8",
        include_str!("../../page/index.html"),
    )
}

/// `GET /page.css`.
pub async fn css() -> Response {
    file(
        "text/css; charset=utf-8",
        include_str!("../../page/page.css"),
    )
}

/// `GET /page.js`.
pub async fn js() -> Response {
    file(
        "text/javascript; charset=utf-8",
        include_str!("../../page/page.js"),
    )
}

fn file(kind: &'static str, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::CACHE_CONTROL, "no-cache"),
        NO_SNIFF,
    ];
    (headers, text).into_response()
}
