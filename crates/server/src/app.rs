//! The application: state and routes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderName, Method, Uri};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};
use volley_protocol::responses::ResponsesRequest;
use volley_protocol::{ApiError, Surface, openapi};

use crate::http::{Caller, Failure, authorize, frame};
use crate::metrics::Metrics;
use crate::options::ServerOptions;
use crate::routes::{generate, models, page, service, stored, tokens};
use crate::served::{FEATURES, ServedModel};
use crate::store::{Kept, ResponseStore};

/// Seconds after which a client may ask a busy or ending server again.
pub const RETRY_AFTER_S: u32 = 2;

/// Most bytes of JSON that kept responses hold together: a single conversation may be as large as a
/// request's body.
const MOST_STORED_BYTES: usize = 256 << 20;

/// What the routes share.
pub struct App {
    /// The one model.
    pub model: ServedModel,
    /// Limits and switches.
    pub options: ServerOptions,
    /// Counts and times.
    pub metrics: Arc<Metrics>,
    /// Kept responses.
    pub responses: ResponseStore,
    /// The OpenAPI document.
    pub openapi: String,
    /// Start of the server, Unix seconds.
    pub started: u64,
    draining: AtomicBool,
}

impl App {
    /// An application that takes requests.
    pub fn new(model: ServedModel, options: ServerOptions) -> Self {
        Self {
            model,
            responses: ResponseStore::new(options.max_stored_responses, MOST_STORED_BYTES),
            options,
            metrics: Arc::new(Metrics::new()),
            openapi: openapi::document(&FEATURES, env!("CARGO_PKG_VERSION")).to_string(),
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

    /// Puts the conversation that a request goes on with before it, and gives it back.
    pub fn go_on(
        &self,
        request: &mut ResponsesRequest,
        caller: &Caller,
    ) -> Result<Option<Arc<Kept>>, ApiError> {
        let Some(id) = &request.previous_response_id else {
            return Ok(None);
        };
        let kept = self.responses.get(id, caller.key_name());
        let kept = kept.ok_or_else(|| ApiError::previous_response_not_found(id))?;
        request.continue_from(&kept.conversation)?;
        Ok(Some(kept))
    }

    /// Why a request had better go elsewhere now.
    pub fn not_ready(&self) -> Option<&'static str> {
        if self.draining.load(Ordering::Acquire) {
            return Some("shutting down");
        }
        if !self.model.engine.alive() {
            return Some("engine stopped or stalled");
        }
        let full = self.model.engine.stats().waiting >= self.options.max_waiting;
        full.then_some("queue full")
    }
}

/// Unix time in seconds.
pub fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_secs())
}

/// All routes. All but the page's exist with and without `/v1`, and with a slash at the end.
pub fn router(app: Arc<App>) -> Router {
    let kept = get(stored::get).delete(stored::delete);
    let mut router = Router::new()
        .route("/", get(page::html))
        .route("/page.css", get(page::css))
        .route("/page.js", get(page::js));
    for (path, methods) in [
        ("/health", get(service::health)),
        ("/health/ready", get(service::ready)),
        ("/ping", get(service::health).post(service::health)),
        ("/load", get(service::load)),
        ("/ready", get(service::ready)),
        ("/version", get(service::version)),
        ("/metrics", get(service::metrics)),
        ("/openapi.json", get(service::openapi)),
        ("/chat/completions", generate::route(Surface::Chat)),
        ("/completions", generate::route(Surface::Completions)),
        ("/responses", generate::route(Surface::Responses)),
        ("/responses/input_tokens", post(tokens::input_tokens)),
        ("/responses/{id}", kept),
        ("/invocations", post(generate::invocations)),
        ("/messages", generate::route(Surface::Messages)),
        ("/messages/count_tokens", post(tokens::count)),
        ("/tokenize", post(tokens::tokenize)),
        ("/detokenize", post(tokens::detokenize)),
        ("/tokenizer_info", get(service::tokenizer_info)),
        ("/models", get(models::list)),
    ] {
        router = api(router, path, methods);
    }
    router
        .route("/v1/models/{*id}", get(models::one))
        .route("/models/{*id}", get(models::one))
        .fallback(unknown_path)
        .method_not_allowed_fallback(method_not_allowed)
        // The limit is in the options, and its error has the API's shape.
        .layer(DefaultBodyLimit::disable())
        .layer(map_response(shaped))
        .layer(from_fn_with_state(Arc::clone(&app), authorize))
        .layer(from_fn_with_state(Arc::clone(&app), frame))
        .layer(cors(&app.options))
        .with_state(app)
}

fn api(router: Router<Arc<App>>, path: &str, methods: MethodRouter<Arc<App>>) -> Router<Arc<App>> {
    ["/v1", ""].iter().fold(router, |router, prefix| {
        router
            .route(&format!("{prefix}{path}"), methods.clone())
            .route(&format!("{prefix}{path}/"), methods.clone())
    })
}

fn cors(options: &ServerOptions) -> CorsLayer {
    let origins = options.allowed_origins.clone();
    let all = origins.iter().any(|origin| origin == "*");
    CorsLayer::new()
        .allow_origin(match all {
            true => AllowOrigin::any(),
            false => AllowOrigin::list(origins),
        })
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        .allow_headers(match all {
            true => AllowHeaders::any(),
            false => AllowHeaders::mirror_request(),
        })
        .expose_headers([
            HeaderName::from_static("x-request-id"),
            HeaderName::from_static("request-id"),
        ])
        .max_age(Duration::from_secs(600))
}

async fn unknown_path(uri: Uri) -> Failure {
    let shown: String = uri.path().chars().take(200).collect();
    Failure(ApiError::unknown_path(&shown))
}

async fn method_not_allowed(method: Method, uri: Uri) -> Failure {
    Failure(ApiError::method_not_allowed(method.as_str(), uri.path()))
}

/// Errors of the framework, such as a path that is no UTF-8, get the shape of the API's.
async fn shaped(response: Response) -> Response {
    let status = response.status();
    let ours = response.extensions().get::<ApiError>().is_some();
    let headers = response.headers();
    let is_json = headers
        .get("content-type")
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if ours || is_json || !status.is_client_error() {
        return response;
    }
    let mut error = ApiError::malformed_body("it cannot be read");
    error.status = status.as_u16();
    error.message = format!("The request is not valid: {status}.");
    Failure(error).into_response()
}
