//! The four surfaces that answer: chat completions, completions, responses, messages.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use axum::routing::{MethodRouter, post};
use serde::Deserialize;
use serde::de::IgnoredAny;
use volley_protocol::{ApiError, Surface};

use crate::app::App;
use crate::body::read_json;
use crate::http::{Caller, Failure, json};
use crate::job::Job;
use crate::sse;

/// The route of a surface.
pub fn route(surface: Surface) -> MethodRouter<Arc<App>> {
    post(
        async move |State(app): State<Arc<App>>,
                    Extension(caller): Extension<Caller>,
                    request: Request| { answer(&app, surface, caller, request).await },
    )
}

/// `POST /invocations`, SageMaker's one path: a chat or a completion, by its body.
pub async fn invocations(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Failure> {
    let (mut head, body) = request.into_parts();
    let request = Request::from_parts(head.clone(), body);
    let body = read_json(request, app.options.body_limits()).await?;
    // It is read and unpacked now.
    head.headers.remove(header::CONTENT_ENCODING);
    head.headers.remove(header::CONTENT_LENGTH);
    let surface = invoked(&body)?;
    let request = Request::from_parts(head, body.into());
    answer(&app, surface, caller, request).await
}

/// The surface that a body is for.
fn invoked(body: &[u8]) -> Result<Surface, ApiError> {
    #[derive(Deserialize)]
    struct Head {
        messages: Option<IgnoredAny>,
        prompt: Option<IgnoredAny>,
    }
    let head: Head = serde_json::from_slice(body).map_err(ApiError::malformed_body)?;
    match head {
        Head {
            messages: Some(_), ..
        } => Ok(Surface::Chat),
        Head {
            prompt: Some(_), ..
        } => Ok(Surface::Completions),
        _ => Err(ApiError::missing("messages")),
    }
}

async fn answer(
    app: &Arc<App>,
    surface: Surface,
    caller: Caller,
    request: Request,
) -> Result<Response, Failure> {
    let job = Job::admit(app, surface, caller, request).await?;
    match job.streams {
        true => Ok(sse::stream(job, app.options.heartbeat)),
        false => whole(job).await.map_err(Failure),
    }
}

async fn whole(mut job: Job) -> Result<Response, ApiError> {
    for (choice, step) in job.take_echo().iter().enumerate() {
        job.reply.collect(choice, step);
    }
    while let Some(progress) = job.next().await {
        let progress = progress?;
        job.reply.collect(progress.choice, &progress.step);
    }
    let body = job.reply.snapshot(job.usage());
    job.finish(|_| body.clone());
    Ok(json(StatusCode::OK, body))
}
