//! Counting tokens, and text to tokens and back. All of it takes time
//! in proportion to the text, so it runs on threads that may wait.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use volley_protocol::ApiError;
use volley_protocol::anthropic::{MessagesRequest, TokenCount};
use volley_protocol::responses::{InputTokenCount, ResponsesRequest};
use volley_protocol::template::RenderOptions;
use volley_protocol::tokenize::{
    DetokenizeRequest, DetokenizeResponse, TokenizeInput, TokenizeRequest, TokenizeResponse,
};

use crate::app::App;
use crate::body::read_json;
use crate::http::{Caller, Failure, json};
use crate::served::FEATURES;

/// Longest text to tokenize, in bytes.
const MAX_TEXT_BYTES: usize = 16 << 20;

/// `POST /v1/messages/count_tokens`.
pub async fn count(State(app): State<Arc<App>>, request: Request) -> Result<Response, Failure> {
    answer(app, request, |app, body| {
        let request = MessagesRequest::for_counting(body, &FEATURES)?;
        let generation = &request.generation;
        let options = app.model.render_options(generation);
        let tokens = app.model.chat_tokens(generation, options)?;
        Ok(TokenCount {
            input_tokens: tokens.len(),
        })
    })
    .await
}

/// `POST /v1/responses/input_tokens`.
pub async fn input_tokens(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Failure> {
    answer(app, request, move |app, body| {
        let mut request = ResponsesRequest::from_json(body, &FEATURES)?;
        app.go_on(&mut request, &caller)?;
        let generation = &request.generation;
        let options = app.model.render_options(generation);
        let tokens = app.model.chat_tokens(generation, options)?;
        Ok(InputTokenCount::new(tokens.len()))
    })
    .await
}

/// `POST /tokenize`.
pub async fn tokenize(State(app): State<Arc<App>>, request: Request) -> Result<Response, Failure> {
    answer(app, request, |app, body| {
        let request = TokenizeRequest::from_json(body)?;
        let model = &app.model;
        model.check_name(request.model.as_deref())?;
        let pieces = match &request.input {
            TokenizeInput::Text(text) if request.parse_special => vec![text.clone()],
            TokenizeInput::Text(text) => model.tokenizer.apart(text),
            TokenizeInput::Chat(generation) => {
                let options = RenderOptions {
                    add_generation_prompt: request.add_generation_prompt,
                    ..model.render_options(generation)
                };
                model.pieces(generation, options)?
            }
        };
        let bytes: usize = pieces.iter().map(String::len).sum();
        if bytes > MAX_TEXT_BYTES {
            let message = format!("the text has {bytes} bytes; the limit is {MAX_TEXT_BYTES}");
            return Err(ApiError::invalid_value("prompt", message));
        }
        let tokens = model.tokens(&pieces)?;
        let texts = request.with_texts.then(|| {
            let texts = tokens.iter().map(|id| model.tokenizer.text(&[*id]));
            texts.collect()
        });
        let limit = model.engine.info().max_model_len;
        Ok(TokenizeResponse::new(tokens, texts, limit))
    })
    .await
}

/// `POST /detokenize`.
pub async fn detokenize(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Failure> {
    answer(app, request, |app, body| {
        let request = DetokenizeRequest::from_json(body)?;
        let model = &app.model;
        model.check_name(request.model.as_deref())?;
        model.check_tokens("tokens", &request.tokens)?;
        let text = model.tokenizer.text(&request.tokens);
        Ok(DetokenizeResponse::new(text))
    })
    .await
}

async fn answer<T: Serialize + Send + 'static>(
    app: Arc<App>,
    request: Request,
    work: impl FnOnce(&App, &[u8]) -> Result<T, ApiError> + Send + 'static,
) -> Result<Response, Failure> {
    let body = read_json(request, app.options.body_limits()).await?;
    let failed = |error: String| ApiError::engine_failure(&error);
    let task = tokio::task::spawn_blocking(move || {
        let answer = work(&app, &body)?;
        serde_json::to_string(&answer).map_err(|error| failed(error.to_string()))
    });
    let body = task.await.map_err(|error| failed(error.to_string()))??;
    Ok(json(StatusCode::OK, body))
}
