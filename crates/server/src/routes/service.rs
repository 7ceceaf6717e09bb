//! Endpoints for operators.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use volley_protocol::ApiError;

use crate::app::App;
use crate::http::{Failure, json as json_response};
use crate::metrics::exposition;

/// `GET /health`, and `/ping` as SageMaker has it: 200 while the engine runs and is not stuck in a step, else 503.
pub async fn health(State(app): State<Arc<App>>) -> Response {
    let (status, text) = match app.model.engine.alive() {
        true => (StatusCode::OK, "ok"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "engine stopped or stalled"),
    };
    json_response(status, json!({"status": text}).to_string())
}

/// `GET /load`, as vLLM has it: requests that are being answered or wait for it.
pub async fn load(State(app): State<Arc<App>>) -> Response {
    let body = json!({"server_load": app.metrics.in_flight()});
    json_response(StatusCode::OK, body.to_string())
}

/// `GET /tokenizer_info`, where it is switched on: `tokenizer_config.json` and the chat template.
pub async fn tokenizer_info(State(app): State<Arc<App>>) -> Result<Response, Failure> {
    let info = app.options.tokenizer_info.clone();
    let missing = || ApiError::unknown_path("/tokenizer_info");
    Ok(json_response(StatusCode::OK, info.ok_or_else(missing)?))
}

/// `GET /ready`: 200 while requests are taken, else 503 with the reason.
pub async fn ready(State(app): State<Arc<App>>) -> Response {
    let (status, text) = match app.not_ready() {
        None => (StatusCode::OK, "ready"),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, reason),
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
        "speculation": {"method": info.method.name(), "num_speculative_tokens": info.max_drafts},
    });
    json_response(StatusCode::OK, body.to_string())
}

/// `GET /metrics`, in Prometheus's text format.
pub async fn metrics(State(app): State<Arc<App>>) -> Response {
    let engine = &app.model.engine;
    let text = exposition(
        &app.metrics,
        &engine.stats(),
        engine.info(),
        app.model.name(),
        engine.alive(),
    );
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

/// `GET /openapi.json`.
pub async fn openapi(State(app): State<Arc<App>>) -> Result<Response, Failure> {
    Ok(json_response(StatusCode::OK, app.openapi.clone()))
}
