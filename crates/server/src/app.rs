//! The application: state and routes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::http::{Method, Uri};
use axum::middleware;
use axum::routing::{MethodRouter, get, post};
use volley_protocol::ApiError;

use crate::http::{Failure, with_request_id};
use crate::routes;
use crate::served::ServedModel;

/// Seconds after which a client may ask a busy or ending server again.
pub const RETRY_AFTER_S: u32 = 2;

/// What the routes share.
pub struct App {
    /// The one model.
    pub model: ServedModel,
    /// Largest request body.
    pub max_body_bytes: usize,
    /// Start of the server, Unix seconds.
    pub started: u64,
    draining: AtomicBool,
}

impl App {
    /// An application that takes requests.
    pub fn new(model: ServedModel, max_body_bytes: usize) -> Self {
        Self {
            model,
            max_body_bytes,
            started: unix_seconds(),
            draining: AtomicBool::new(false),
        }
    }

    /// From now on new requests are refused.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// 503 if the server is ending or the engine is gone.
    pub fn check_open(&self) -> Result<(), ApiError> {
        if self.draining.load(Ordering::Acquire) || !self.model.engine.alive() {
            return Err(ApiError::shutting_down(RETRY_AFTER_S));
        }
        Ok(())
    }
}

/// Unix time in seconds.
pub fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_secs())
}

/// All routes. Those of the API exist with and without `/v1`, and with a slash at the end.
pub fn router(app: Arc<App>) -> Router {
    let router = Router::new()
        .route("/", get(routes::service::root))
        .route("/health", get(routes::service::health))
        .route("/version", get(routes::service::version));
    let router = api(router, "/chat/completions", post(routes::chat::complete));
    let router = api(router, "/models", get(routes::models::list));
    router
        .route("/v1/models/{*id}", get(routes::models::one))
        .route("/models/{*id}", get(routes::models::one))
        .fallback(unknown_path)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn(with_request_id))
        .with_state(app)
}

fn api(router: Router<Arc<App>>, path: &str, methods: MethodRouter<Arc<App>>) -> Router<Arc<App>> {
    ["/v1", ""].iter().fold(router, |router, prefix| {
        router
            .route(&format!("{prefix}{path}"), methods.clone())
            .route(&format!("{prefix}{path}/"), methods.clone())
    })
}

async fn unknown_path(uri: Uri) -> Failure {
    let shown: String = uri.path().chars().take(200).collect();
    Failure(ApiError::unknown_path(&shown))
}

async fn method_not_allowed(method: Method, uri: Uri) -> Failure {
    Failure(ApiError::method_not_allowed(method.as_str(), uri.path()))
}
