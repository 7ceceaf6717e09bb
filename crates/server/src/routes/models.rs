//! `GET /v1/models` and `GET /v1/models/{id}`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use volley_protocol::openai::{ModelInfo, ModelList};

use crate::app::App;
use crate::http::Failure;

/// All names of the model.
pub async fn list(State(app): State<Arc<App>>) -> Json<ModelList> {
    let names = app.model.names.iter();
    Json(ModelList::new(names.map(|name| info(&app, name)).collect()))
}

/// One name, which may contain slashes.
pub async fn one(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Json<ModelInfo>, Failure> {
    let ours = |id: &str| app.model.check_served(id).is_ok();
    let id = match id.strip_suffix('/') {
        Some(bare) if !ours(&id) => bare,
        _ => &id,
    };
    app.model.check_served(id)?;
    Ok(Json(info(&app, id)))
}

fn info(app: &App, name: &str) -> ModelInfo {
    ModelInfo::new(name, app.started, app.model.engine.info().max_model_len)
}
