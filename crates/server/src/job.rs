//! A request on its way: admission, its steps, and what is left to do at its end.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use volley_protocol::parser::Delta;
use volley_protocol::reply::{Reply, Step};
use volley_protocol::request::RawPrompt;
use volley_protocol::responses::{ResponsesRequest, StoredResponse};
use volley_protocol::stream::ResponseMeta;
use volley_protocol::{ApiError, Incoming, Surface};

use crate::answer::{Answer, Progress};
use crate::app::{App, RETRY_AFTER_S, unix_seconds};
use crate::body::read_json;
use crate::http::{Caller, random_id};
use crate::keys::Place;
use crate::observe::Observer;
use crate::served::{FEATURES, Prepared};
use crate::store::Kept;

/// A response under way.
pub struct Job {
    /// Writer of the response.
    pub reply: Reply,
    /// A stream is wanted.
    pub streams: bool,
    app: Arc<App>,
    caller: Caller,
    answer: Answer,
    /// Echoed prompts, by choice.
    echo: Vec<Step>,
    deadline: Option<(Instant, Duration)>,
    keep: Option<Keep>,
    observer: Observer,
    _place: Option<Place>,
}

/// A response to be kept at its end.
struct Keep {
    id: String,
    request: ResponsesRequest,
    previous: Option<Arc<Kept>>,
}

/// A request that has been read, rendered and encoded.
struct Ready {
    incoming: Incoming,
    previous: Option<Arc<Kept>>,
    prepared: Vec<Prepared>,
    echo: Vec<Step>,
    /// The body, if it is to be recorded.
    body: Option<Value>,
}

impl Job {
    /// Takes a request in, and hands it to the engine. Everything that can be wrong with it is
    /// found here, before a status goes out.
    pub async fn admit(
        app: &Arc<App>,
        surface: Surface,
        caller: Caller,
        request: Request,
    ) -> Result<Self, ApiError> {
        let mut observer = Observer::new(caller.clone(), Arc::clone(&app.metrics));
        let job = async {
            app.check_open()?;
            let place = place(app, &caller)?;
            let deadline = app.options.request_timeout;
            let deadline = deadline.map(|limit| (Instant::now() + limit, limit));
            let body = read_json(request, app.options.body_limits()).await?;
            let ready = prepare(Arc::clone(app), surface, caller.clone(), body).await?;
            let mut answer = Answer::start(&app.model, ready.prepared)?;
            observer.starts(answer.choices().len());
            let generation = ready.incoming.generation();
            if generation.stream_options.include_token_origins {
                answer.tell_origins();
            }
            if generation.include_cache_details {
                answer.tell_cache();
            }
            if let Some(body) = &ready.body {
                answer.record(body);
            }
            Ok((
                answer,
                ready.incoming,
                ready.previous,
                ready.echo,
                deadline,
                place,
            ))
        };
        let (answer, incoming, previous, echo, deadline, place) =
            job.await.inspect_err(|error| observer.refused(error))?;
        let id = random_id(surface.id_prefix());
        let reply = incoming.reply(meta(app, id.clone()));
        let streams = incoming.generation().stream;
        let keep = match incoming {
            Incoming::Responses(request) if request.store => Some(Keep {
                id,
                request,
                previous,
            }),
            _ => None,
        };
        Ok(Self {
            reply,
            streams,
            app: Arc::clone(app),
            caller,
            answer,
            echo,
            deadline,
            keep,
            observer,
            _place: place,
        })
    }

    /// Token counts so far.
    pub fn usage(&self) -> volley_protocol::openai::Usage {
        self.answer.usage()
    }

    /// Prompts that the response begins with, as steps of their choices.
    pub fn take_echo(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.echo)
    }

    /// The next step of a choice; `None` at the end. An error is the last. May be dropped while it
    /// waits.
    pub async fn next(&mut self) -> Option<Result<Progress, ApiError>> {
        let next = match self.deadline {
            None => self.answer.next().await,
            Some((deadline, limit)) => match timeout_at(deadline, self.answer.next()).await {
                Ok(next) => next,
                Err(_) => Some(Err(ApiError::timeout(limit.as_secs_f64()))),
            },
        };
        match &next {
            Some(Ok(progress)) => self.observer.step(progress, &self.answer),
            Some(Err(error)) => self.observer.failed(error),
            None => self.observer.finished(&self.answer),
        }
        next
    }

    /// The response is complete: keeps and records what is wanted. `body` is its JSON.
    pub fn finish(&mut self, body: impl FnOnce(&Self) -> String) {
        if let Some(keep) = self.keep.take() {
            let body = body(self);
            let value = serde_json::from_str(&body).unwrap_or_default();
            let previous = keep.previous.as_ref().map(|kept| &kept.conversation);
            let conversation: StoredResponse = keep.request.to_stored(previous, &value);
            let kept = Kept {
                body,
                conversation,
                owner: self.caller.key_name().map(str::to_owned),
            };
            self.app.responses.put(keep.id, kept);
        }
        if let Some(records) = self.app.options.records.clone() {
            let files = self.answer.recorded();
            let id = self.caller.id.clone();
            tokio::task::spawn_blocking(move || records.save(&id, &files));
        }
    }
}

/// A place among the requests of the caller's key.
fn place(app: &App, caller: &Caller) -> Result<Option<Place>, ApiError> {
    let (Some(key), Some(limit)) = (&caller.key, app.options.max_per_key) else {
        return Ok(None);
    };
    let place = key.enter(limit);
    place
        .map(Some)
        .ok_or_else(|| ApiError::too_many_of_key(limit, RETRY_AFTER_S))
}

/// Reads and encodes a request on a thread where it may take its time.
async fn prepare(
    app: Arc<App>,
    surface: Surface,
    caller: Caller,
    body: Vec<u8>,
) -> Result<Ready, ApiError> {
    let task = tokio::task::spawn_blocking(move || read(&app, surface, &caller, &body));
    task.await
        .unwrap_or_else(|error| Err(ApiError::engine_failure(&error.to_string())))
}

fn read(app: &App, surface: Surface, caller: &Caller, body: &[u8]) -> Result<Ready, ApiError> {
    let mut incoming = surface.read(body, &FEATURES)?;
    if app.options.force_usage {
        incoming.tell_usage();
    }
    let mut previous = None;
    if let Incoming::Responses(request) = &mut incoming {
        previous = app.go_on(request, caller)?;
    }
    let generation = incoming.generation();
    for notice in &generation.notices {
        tracing::debug!(id = caller.id, "{notice}");
    }
    let messages = generation.messages.len();
    let limit = app.options.max_messages;
    if messages > limit {
        let param = prompt_param(surface);
        let message = format!("{param} has {messages} messages; the limit is {limit}");
        return Err(ApiError::invalid_value(param, message));
    }
    let call_id_prefix = random_id(surface.call_id_prefix()) + "_";
    let prepared = app.model.prepare_all(generation, &call_id_prefix);
    let prepared = prepared.map_err(|mut error| {
        if error.code == Some("context_length_exceeded") {
            error.param = Some(prompt_param(surface).to_owned());
        }
        error
    })?;
    Ok(Ready {
        echo: echo(app, &incoming)?,
        previous,
        prepared,
        body: match &app.options.records {
            Some(_) => serde_json::from_slice(body).ok(),
            None => None,
        },
        incoming,
    })
}

/// Where a surface has its prompt.
fn prompt_param(surface: Surface) -> &'static str {
    match surface {
        Surface::Chat | Surface::Messages => "messages",
        Surface::Completions => "prompt",
        Surface::Responses => "input",
    }
}

/// One step with the text of the prompt for each choice, if the request wants its prompt back.
fn echo(app: &App, incoming: &Incoming) -> Result<Vec<Step>, ApiError> {
    let Incoming::Completions(request) = incoming else {
        return Ok(Vec::new());
    };
    if !request.echo {
        return Ok(Vec::new());
    }
    let generation = &request.generation;
    if generation.logprobs.is_some() {
        let message = "echo with logprobs is not supported: there are none of the prompt";
        return Err(ApiError::unsupported_parameter("echo", message));
    }
    let steps = generation.raw_prompts.iter().flat_map(|prompt| {
        let text = match prompt {
            RawPrompt::Text(text) => text.clone(),
            RawPrompt::Tokens(ids) => app.model.tokenizer.text(ids),
        };
        let step = Step::from(vec![Delta::Content(text)]);
        std::iter::repeat_n(step, generation.n)
    });
    Ok(steps.collect())
}

fn meta(app: &App, id: String) -> ResponseMeta {
    ResponseMeta {
        id,
        created: unix_seconds(),
        model: app.model.name().to_owned(),
        system_fingerprint: concat!("volley-", env!("CARGO_PKG_VERSION")).to_owned(),
        reasoning_field: app.options.reasoning_field,
    }
}
