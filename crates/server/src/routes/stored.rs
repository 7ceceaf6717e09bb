//! `GET` and `DELETE /v1/responses/{id}`.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;
use volley_protocol::ApiError;

use crate::app::App;
use crate::http::{Caller, Failure, json as json_response};

/// A kept response.
pub async fn get(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let kept = app.responses.get(&id, caller.key_name());
    let kept = kept.ok_or_else(|| ApiError::response_not_found(&id))?;
    Ok(json_response(StatusCode::OK, kept.body.clone()))
}

/// Forgets a kept response.
pub async fn delete(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    if !app.responses.remove(&id, caller.key_name()) {
        return Err(ApiError::response_not_found(&id).into());
    }
    let body = json!({"id": id, "object": "response", "deleted": true});
    Ok(json_response(StatusCode::OK, body.to_string()))
}
