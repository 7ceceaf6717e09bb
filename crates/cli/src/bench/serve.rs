//! `volley bench serve`: load on any OpenAI-compatible server, over HTTP.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use volley_engine::DeviceKind;

use super::{chats, progress, record};
use crate::args::values::{new_file, number_in, positive, rate};
use crate::error::{Error, Result};
use crate::terminal::outln;

/// `volley bench serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// Chats, one JSON object per line.
    pub chats: PathBuf,
    /// Base of the API, as in http://127.0.0.1:8000/v1; plain HTTP only.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8000/v1")]
    pub url: String,
    /// Model to name in requests [default: the first that the server lists].
    #[arg(long)]
    pub served_model_name: Option<String>,
    /// Sent as bearer token.
    #[arg(long)]
    pub api_key: Option<String>,
    /// Requests at once; of several numbers one after the other.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1", value_parser = positive)]
    pub concurrency: Vec<usize>,
    /// Requests per second to start at most [default: as fast as others end].
    #[arg(long, value_name = "PER_S", value_parser = rate)]
    pub rate: Option<f64>,
    /// Requests in total [default: every chat once].
    #[arg(long, value_name = "N", value_parser = positive)]
    pub requests: Option<usize>,
    /// Most tokens per answer.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = positive)]
    pub max_tokens: usize,
    /// 0 is greedy.
    #[arg(long, default_value_t = 0.0, value_parser = number_in::<0, 2>)]
    pub temperature: f32,
    /// More fields of the request body, as a JSON object.
    #[arg(long, value_name = "JSON")]
    pub extra_body: Option<String>,
    /// Where to write the record.
    #[arg(long, value_name = "PATH", value_parser = new_file)]
    pub json: Option<PathBuf>,
}

/// What was measured; times in milliseconds.
#[derive(Debug, Default, Serialize)]
struct Row {
    url: String,
    model: String,
    concurrency: usize,
    requests: usize,
    failed: usize,
    seconds: f64,
    prompt_tokens: u64,
    completion_tokens: u64,
    output_tokens_per_s: f64,
    requests_per_s: f64,
    first_token_ms_p50: f64,
    first_token_ms_p99: f64,
    /// Between one event with text and the next: a step of several tokens is one event.
    between_events_ms_p50: f64,
    between_events_ms_p99: f64,
    /// After the first event, per token that followed it.
    ms_per_token_p50: f64,
    ms_per_token_p99: f64,
}

/// What one request gave.
#[derive(Debug, Default)]
struct Sample {
    first_ms: f64,
    gaps_ms: Vec<f64>,
    last_ms: f64,
    prompt_tokens: u64,
    completion_tokens: u64,
}

/// Sends the chats and prints what came back.
pub fn run(args: &ServeArgs) -> Result<()> {
    let prompts = chats::read(&args.chats)?;
    if prompts.is_empty() {
        return Err(Error::Usage(format!(
            "{} holds no chats",
            args.chats.display()
        )));
    }
    let extra = extra_body(args.extra_body.as_deref())?;
    let client = Client::new(args);
    let model = match &args.served_model_name {
        Some(name) => name.clone(),
        None => client.first_model()?,
    };
    let count = args.requests.unwrap_or(prompts.len());
    let body = |index: usize| {
        let chat = &prompts[index % prompts.len()];
        let mut body = chats::body(chat, args.temperature, args.max_tokens);
        body["model"] = json!(model);
        body["stream"] = json!(true);
        body["stream_options"] = json!({"include_usage": true});
        for (key, value) in &extra {
            body[key] = value.clone();
        }
        body.to_string()
    };
    let load = Load {
        client: &client,
        body: &body,
        count,
        rate: args.rate,
    };
    let mut rows = Vec::new();
    let mut failures = Vec::new();
    for &concurrency in &args.concurrency {
        let (row, failed) = load.run(concurrency);
        let row = Row {
            url: args.url.clone(),
            model: model.clone(),
            ..row
        };
        print(&row);
        rows.push(row);
        failures.extend(failed);
    }
    if let Some(path) = &args.json {
        record::write(path, DeviceKind::Cpu, &rows)?;
    }
    match failures.first() {
        None => Ok(()),
        Some(first) => Err(Error::Failed(format!(
            "{} of {} requests failed, the first one: {first}",
            failures.len(),
            count * rows.len()
        ))),
    }
}

/// What is sent.
struct Load<'a> {
    client: &'a Client,
    body: &'a (dyn Fn(usize) -> String + Sync),
    /// Requests.
    count: usize,
    /// Starts per second at most.
    rate: Option<f64>,
}

impl Load<'_> {
    /// Sends all requests, so many at a time; with what failed.
    fn run(&self, concurrency: usize) -> (Row, Vec<String>) {
        let next = AtomicUsize::new(0);
        let samples = Mutex::new(Vec::new());
        let failures = Mutex::new(Vec::new());
        let bar = progress::bar(self.count as u64, "requests");
        let start = Instant::now();
        let send = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= self.count {
                    return;
                }
                if let Some(rate) = self.rate {
                    let due = Duration::from_secs_f64(index as f64 / rate);
                    std::thread::sleep(due.saturating_sub(start.elapsed()));
                }
                match self.client.stream(&(self.body)(index)) {
                    Ok(sample) => push(&samples, sample),
                    Err(error) => push(&failures, error),
                }
                bar.inc(1);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..concurrency {
                scope.spawn(send);
            }
        });
        let seconds = start.elapsed().as_secs_f64();
        bar.finish_and_clear();
        let failures = failures.into_inner().unwrap_or_else(|e| e.into_inner());
        let samples = samples.into_inner().unwrap_or_else(|e| e.into_inner());
        let row = Row {
            concurrency,
            failed: failures.len(),
            ..summary(&samples, seconds)
        };
        (row, failures)
    }
}

fn push<T>(to: &Mutex<Vec<T>>, value: T) {
    to.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .push(value);
}

fn extra_body(json: Option<&str>) -> Result<serde_json::Map<String, Value>> {
    match json.map(serde_json::from_str) {
        None => Ok(serde_json::Map::new()),
        Some(Ok(Value::Object(fields))) => Ok(fields),
        Some(_) => Err(Error::Usage("--extra-body must be a JSON object".into())),
    }
}

fn summary(samples: &[Sample], seconds: f64) -> Row {
    let mut first: Vec<f64> = samples.iter().map(|s| s.first_ms).collect();
    let mut gaps: Vec<f64> = samples.iter().flat_map(|s| s.gaps_ms.clone()).collect();
    let several = samples.iter().filter(|s| s.completion_tokens > 1);
    let mut per_token: Vec<f64> = several
        .map(|s| (s.last_ms - s.first_ms) / (s.completion_tokens - 1) as f64)
        .collect();
    let completion_tokens = samples.iter().map(|s| s.completion_tokens).sum();
    Row {
        requests: samples.len(),
        seconds,
        prompt_tokens: samples.iter().map(|s| s.prompt_tokens).sum(),
        completion_tokens,
        output_tokens_per_s: completion_tokens as f64 / seconds,
        requests_per_s: samples.len() as f64 / seconds,
        first_token_ms_p50: record::quantile(&mut first, 0.5),
        first_token_ms_p99: record::quantile(&mut first, 0.99),
        between_events_ms_p50: record::quantile(&mut gaps, 0.5),
        between_events_ms_p99: record::quantile(&mut gaps, 0.99),
        ms_per_token_p50: record::quantile(&mut per_token, 0.5),
        ms_per_token_p99: record::quantile(&mut per_token, 0.99),
        ..Row::default()
    }
}

struct Client {
    agent: ureq::Agent,
    base: String,
    key: Option<String>,
}

impl Client {
    fn new(args: &ServeArgs) -> Self {
        let config = ureq::Agent::config_builder().http_status_as_error(false);
        Self {
            agent: config.build().new_agent(),
            base: args.url.trim_end_matches('/').to_string(),
            key: args.api_key.as_ref().map(|key| format!("Bearer {key}")),
        }
    }

    fn first_model(&self) -> Result<String> {
        let url = format!("{}/models", self.base);
        let mut request = self.agent.get(&url);
        if let Some(key) = &self.key {
            request = request.header("authorization", key);
        }
        let failed = |message: String| Error::Failed(format!("{url}: {message}"));
        let mut response = request.call().map_err(|error| failed(error.to_string()))?;
        let text = response.body_mut().read_to_string();
        let text = text.map_err(|error| failed(error.to_string()))?;
        let models: Value = serde_json::from_str(&text).unwrap_or_default();
        match models["data"][0]["id"].as_str() {
            Some(id) => Ok(id.to_string()),
            None => Err(failed(format!("{} lists no model", response.status()))),
        }
    }

    /// Streams one answer.
    fn stream(&self, body: &str) -> Result<Sample, String> {
        let url = format!("{}/chat/completions", self.base);
        let mut request = self
            .agent
            .post(&url)
            .header("content-type", "application/json");
        if let Some(key) = &self.key {
            request = request.header("authorization", key);
        }
        let start = Instant::now();
        let mut response = request.send(body).map_err(|error| error.to_string())?;
        if response.status() != 200 {
            let text = response.body_mut().read_to_string().unwrap_or_default();
            return Err(format!("{}: {text}", response.status()));
        }
        let reader = BufReader::new(response.body_mut().as_reader());
        read_events(reader, || start.elapsed().as_secs_f64() * 1e3)
    }
}

/// Reads server-sent events up to `[DONE]`; `now_ms` is the time since the request was sent.
fn read_events(reader: impl BufRead, mut now_ms: impl FnMut() -> f64) -> Result<Sample, String> {
    let mut sample = Sample::default();
    let mut events = 0u64;
    for line in reader.lines() {
        let line = line.map_err(|error| error.to_string())?;
        let Some(data) = line.strip_prefix("data:") else {
            continue;
        };
        let data = data.trim();
        if data == "[DONE]" {
            if sample.completion_tokens == 0 {
                // A server that tells no usage: an event is a token at least.
                sample.completion_tokens = events;
            }
            return Ok(sample);
        }
        let event: Value =
            serde_json::from_str(data).map_err(|error| format!("event {data:?}: {error}"))?;
        if !event["error"].is_null() {
            return Err(event["error"].to_string());
        }
        if let Some(tokens) = event["usage"]["completion_tokens"].as_u64() {
            sample.completion_tokens = tokens;
            sample.prompt_tokens = event["usage"]["prompt_tokens"].as_u64().unwrap_or(0);
        }
        if has_text(&event["choices"][0]["delta"]) {
            let now = now_ms();
            match events {
                0 => sample.first_ms = now,
                _ => sample.gaps_ms.push(now - sample.last_ms),
            }
            sample.last_ms = now;
            events += 1;
        }
    }
    Err("the stream ended without [DONE]".into())
}

/// Whether a delta carries anything generated.
fn has_text(delta: &Value) -> bool {
    let text = |key: &str| delta[key].as_str().is_some_and(|text| !text.is_empty());
    let calls = delta["tool_calls"].as_array();
    text("content")
        || text("reasoning_content")
        || text("reasoning")
        || calls.is_some_and(|calls| !calls.is_empty())
}

fn print(row: &Row) {
    outln!("{} ({}), {} at a time", row.url, row.model, row.concurrency);
    outln!(
        "{} requests in {:.1} s, {} failed; {:.1} requests/s, {:.1} output tokens/s ({} tokens)",
        row.requests,
        row.seconds,
        row.failed,
        row.requests_per_s,
        row.output_tokens_per_s,
        row.completion_tokens
    );
    outln!("{:20}{:>12}{:>12}", "milliseconds", "p50", "p99");
    for (name, p50, p99) in [
        (
            "first token",
            row.first_token_ms_p50,
            row.first_token_ms_p99,
        ),
        (
            "between events",
            row.between_events_ms_p50,
            row.between_events_ms_p99,
        ),
        ("per token", row.ms_per_token_p50, row.ms_per_token_p99),
    ] {
        outln!("{name:20}{p50:>12.2}{p99:>12.2}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Sample, String> {
        let mut clock = 0.0;
        read_events(text.as_bytes(), || {
            clock += 10.0;
            clock
        })
    }

    #[test]
    fn events_are_timed_and_counted() {
        let sample = read(
            "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n\
             data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"a\"}}]}\n\n\
             : a comment\n\n\
             data: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\n\
             data: {\"choices\":[{\"delta\":{\"tool_calls\":[{}]}}]}\n\n\
             data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":12}}\n\n\
             data: [DONE]\n\n",
        )
        .unwrap();
        assert_eq!((sample.first_ms, sample.last_ms), (10.0, 30.0));
        assert_eq!(sample.gaps_ms, [10.0, 10.0]);
        assert_eq!((sample.prompt_tokens, sample.completion_tokens), (7, 12));
        let row = summary(&[sample], 2.0);
        assert_eq!(row.output_tokens_per_s, 6.0);
        assert!((row.ms_per_token_p50 - 20.0 / 11.0).abs() < 1e-9);
    }

    #[test]
    fn broken_streams_are_failures() {
        assert!(read("data: {\"choices\":[]}\n\n").is_err());
        assert!(read("data: {\"error\":{\"message\":\"no\"}}\n\ndata: [DONE]\n\n").is_err());
        assert!(read("data: nonsense\n\n").is_err());
    }
}
