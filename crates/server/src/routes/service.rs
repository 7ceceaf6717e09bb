//! Endpoints for operators (API section 1.16).

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;

use crate::app::App;
use crate::http::json as json_response;

/// `GET /`: what this is.
pub async fn root(State(app): State<Arc<App>>) -> String {
    format!(
        "volley {} serves {} with OpenAI's API: POST /v1/chat/completions, GET /v1/models, GET /health\n",
        env!("CARGO_PKG_VERSION"),
        app.model.name(),
    )
}

/// `GET /health`: 200 while the engine runs and is not stuck in a step, else 503.
pub async fn health(State(app): State<Arc<App>>) -> Response {
    let (status, text) = match app.model.engine.alive() {
        true => (StatusCode::OK, "ok"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "engine stopped or stalled"),
    };
    json_response(status, json!({"status": text}).to_string())
}

/// `GET /version`.
pub async fn version(State(app): State<Arc<App>>) -> Response {
    let info = app.model.engine.info();
    let body = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "model": app.model.name(),
        "max_model_len": info.max_model_len,
        "speculation": {"method": info.method, "num_speculative_tokens": info.max_drafts},
    });
    json_response(StatusCode::OK, body.to_string())
}
