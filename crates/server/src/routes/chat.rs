//! `POST /v1/chat/completions`.

use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use volley_protocol::ApiError;
use volley_protocol::openai::{ChatRequest, StreamOptions};
use volley_protocol::parser::Aggregate;
use volley_protocol::stream::{ReasoningField, ResponseMeta, response};

use crate::app::{App, unix_seconds};
use crate::generation::Generation;
use crate::http::{Failure, RequestId, json, random_id, read_json};
use crate::served::Prepared;
use crate::sse;

/// A generation that has been handed to the engine.
pub struct Running {
    /// The answer under way.
    pub generation: Generation,
    /// Head of the response.
    pub meta: ResponseMeta,
    /// For the log.
    pub log: RequestLog,
}

/// Answers one chat. Everything that can be wrong with the request is found before the status
/// goes out.
pub async fn complete(
    State(app): State<Arc<App>>,
    Extension(RequestId(id)): Extension<RequestId>,
    request: Request,
) -> Result<Response, Failure> {
    let mut log = RequestLog::new(id);
    let admitted = admit(&app, request).await;
    let (generation, stream) = admitted.inspect_err(|error| log.refused(error))?;
    let running = Running {
        generation,
        meta: meta(&app),
        log,
    };
    match stream {
        Some(options) => Ok(sse::stream(running, options)),
        None => whole(running).await.map_err(Failure),
    }
}

/// Takes a request in, and hands it to the engine. The options come along for a request that
/// wants a stream.
async fn admit(
    app: &Arc<App>,
    request: Request,
) -> Result<(Generation, Option<StreamOptions>), ApiError> {
    app.check_open()?;
    let body = read_json(request, app.max_body_bytes).await?;
    let (prepared, stream) = prepare(Arc::clone(app), body).await?;
    Ok((app.model.start(prepared)?, stream))
}

/// Checks and encodes a request on a thread where it may take its time.
async fn prepare(
    app: Arc<App>,
    body: Vec<u8>,
) -> Result<(Prepared, Option<StreamOptions>), ApiError> {
    let task = tokio::task::spawn_blocking(move || {
        let chat = ChatRequest::from_json(&body)?;
        for notice in &chat.notices {
            tracing::debug!("{notice}");
        }
        let stream = chat.stream.then_some(chat.stream_options);
        let prepared = app.model.prepare(chat, random_id("call_") + "_")?;
        Ok((prepared, stream))
    });
    task.await
        .unwrap_or_else(|error| Err(ApiError::engine_failure(&error.to_string())))
}

async fn whole(mut running: Running) -> Result<Response, ApiError> {
    let mut answer = Aggregate::default();
    while let Some(deltas) = running.generation.next().await {
        answer.extend(&deltas.inspect_err(|error| running.log.failed(error))?);
    }
    running.log.finished(&running.generation);
    let usage = running.generation.usage();
    let body = serde_json::to_string(&response(running.meta, answer, usage))
        .map_err(|error| ApiError::engine_failure(&error.to_string()))?;
    Ok(json(StatusCode::OK, body))
}

fn meta(app: &App) -> ResponseMeta {
    ResponseMeta {
        id: random_id("chatcmpl-"),
        created: unix_seconds(),
        model: app.model.name().to_owned(),
        system_fingerprint: concat!("volley-", env!("CARGO_PKG_VERSION")).to_owned(),
        reasoning_field: ReasoningField::default(),
    }
}

/// One line of log for the end of a request, whichever it is.
pub struct RequestLog {
    id: String,
    start: Instant,
    ended: bool,
}

impl RequestLog {
    fn new(id: String) -> Self {
        Self {
            id,
            start: Instant::now(),
            ended: false,
        }
    }

    /// The answer is complete.
    pub fn finished(&mut self, generation: &Generation) {
        self.ended = true;
        let usage = generation.usage();
        let details = usage.completion_tokens_details;
        tracing::info!(
            id = self.id,
            prompt_tokens = usage.prompt_tokens,
            completion_tokens = usage.completion_tokens,
            accepted = details.accepted_prediction_tokens,
            rejected = details.rejected_prediction_tokens,
            seconds = self.start.elapsed().as_secs_f32(),
            "answered"
        );
    }

    /// The request is at fault, or comes at a bad time.
    fn refused(&mut self, error: &ApiError) {
        self.ended = true;
        tracing::info!(id = self.id, status = error.status, "refused: {error}");
    }

    /// The engine failed.
    pub fn failed(&mut self, error: &ApiError) {
        self.ended = true;
        tracing::error!(id = self.id, "failed: {error}");
    }
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        if !self.ended {
            let seconds = self.start.elapsed().as_secs_f32();
            tracing::info!(id = self.id, seconds, "the client went away");
        }
    }
}
