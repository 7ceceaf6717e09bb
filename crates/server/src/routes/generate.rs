//! The four surfaces that answer: chat completions, completions, responses, messages.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{MethodRouter, post};
use volley_protocol::{ApiError, Surface};

use crate::app::App;
use crate::http::{Caller, Failure, json};
use crate::job::Job;
use crate::sse;

/// The route of a surface.
pub fn route(surface: Surface) -> MethodRouter<Arc<App>> {
    post(
        async move |State(app): State<Arc<App>>,
                    Extension(caller): Extension<Caller>,
                    request: Request| {
            let job = Job::admit(&app, surface, caller, request).await?;
            match job.streams {
                true => Ok(sse::stream(job, app.options.heartbeat)),
                false => whole(job).await.map_err(Failure),
            }
        },
    )
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
