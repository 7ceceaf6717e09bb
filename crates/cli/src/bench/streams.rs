//! `volley bench streams`: many requests at once on one engine, and a stream beside a long prompt.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use volley_engine::{Engine, EngineHandle, EngineOptions, Request, Stop};
use volley_speculate::Method;

use super::picture::PictureArgs;
use super::svg::{Group, bars};
use super::{progress, record};
use crate::args::ModelArgs;
use crate::args::values::{new_file, positive};
use crate::error::{Error, Result};
use crate::load::{self, Scheduling};
use crate::terminal::outln;

/// `volley bench streams`.
#[derive(Args, Clone, Debug)]
pub struct StreamsArgs {
    /// Model and drafting.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Methods of drafting, all on one engine [default: none, and the engine's own].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub methods: Vec<Method>,
    /// Requests at once.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,4,8,16,32,64", value_parser = positive)]
    pub streams: Vec<usize>,
    /// Prompt tokens of each request, random and shared by none.
    #[arg(long, value_name = "TOKENS", default_value_t = 512, value_parser = positive)]
    pub context: usize,
    /// Tokens of each answer.
    #[arg(long, value_name = "TOKENS", default_value_t = 64, value_parser = positive)]
    pub tokens: usize,
    /// Prompt tokens of one more request, which is sent beside a running stream.
    #[arg(long, value_name = "TOKENS", value_parser = positive)]
    pub beside: Option<usize>,
    /// How often that is done.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = positive)]
    pub rounds: usize,
    /// Ceiling for the time between two updates of a stream, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 150, value_parser = positive)]
    pub max_itl_ms: usize,
    /// Most prompt tokens computed in one step [default: 256, on GPUs 2048].
    #[arg(long, value_name = "TOKENS", value_parser = positive)]
    pub max_num_batched_tokens: Option<usize>,
    /// Where to write the record.
    #[arg(long, value_name = "PATH", value_parser = new_file)]
    pub json: Option<PathBuf>,
    #[command(flatten)]
    picture: PictureArgs,
}

/// One case; times in milliseconds.
#[derive(Debug, Default, Serialize)]
struct Row {
    method: &'static str,
    streams: usize,
    /// Prompt tokens of each stream.
    context: usize,
    /// Prompt tokens of the request beside them; 0 without one.
    beside: usize,
    tokens: usize,
    /// From the first submission to the last token.
    seconds: f64,
    /// All tokens over all of that time, prompts included.
    tokens_per_s: f64,
    /// Tokens that came while every stream ran, over that time.
    together_tokens_per_s: Option<f64>,
    acceptance_length: f64,
    first_token_ms_mean: f64,
    first_token_ms_p50: f64,
    first_token_ms_p99: f64,
    /// Between two updates of a stream; an update is a step.
    gap_ms_p50: f64,
    gap_ms_p99: f64,
    gap_ms_longest: f64,
    max_itl_ms: usize,
    /// Until the first token of the request beside the streams, median of the rounds.
    beside_first_token_ms: Option<f64>,
}

/// When what came of one request.
struct Heard {
    sent: Instant,
    /// With the tokens of each.
    updates: Vec<(Instant, usize)>,
    steps: usize,
    accepted: usize,
}

impl Heard {
    fn first_ms(&self) -> f64 {
        let first = self.updates.first().map_or(self.sent, |update| update.0);
        (first - self.sent).as_secs_f64() * 1e3
    }

    fn gaps_ms(&self) -> impl Iterator<Item = f64> {
        let pairs = self.updates.windows(2);
        pairs.map(|pair| (pair[1].0 - pair[0].0).as_secs_f64() * 1e3)
    }
}

/// Measures every method and number of streams.
pub fn run(args: &StreamsArgs) -> Result<()> {
    let most = args.streams.iter().copied().max().unwrap_or(1);
    let scheduling = Scheduling {
        max_running: most.max(2),
        prefill_chunk: args.max_num_batched_tokens,
        checkpoints: 0,
        max_itl: Some(Duration::from_millis(args.max_itl_ms as u64)),
        max_waiting: most.max(2),
        ..Scheduling::ALONE
    };
    let (options, sources) = load::unloaded(&args.model, scheduling)?;
    let longest = args.context.max(args.beside.unwrap_or(0)) + 2 * args.tokens.max(1024);
    let max_model_len = args.model.max_model_len.unwrap_or(longest);
    let options = EngineOptions {
        max_model_len: Some(max_model_len),
        // So much is what all of them take: nobody gives way. A GPU gives all of its memory.
        cache_blocks: Some(most * ((args.context + args.tokens) / 16 + 8) + max_model_len / 16 + 8),
        ..options
    };
    let device = options.device;
    let engine = Engine::start(options, sources)?;
    let methods = match &args.methods[..] {
        [] if engine.info().method == Method::None => vec![Method::None],
        [] => vec![Method::None, engine.info().method],
        methods => methods.to_vec(),
    };
    let bench = Bench { args, engine };
    // Shapes are run, recorded and repeated before anything counts.
    bench.together(methods[0], 2)?;
    let mut rows = Vec::new();
    let cases = methods.len() * (args.streams.len() + usize::from(args.beside.is_some()));
    let bar = progress::bar(cases as u64, "cases");
    for &method in &methods {
        for &streams in &args.streams {
            bench.together(method, streams)?;
            rows.push(bench.together(method, streams)?);
            bar.inc(1);
        }
        if let Some(beside) = args.beside {
            rows.push(bench.beside(method, beside)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    print(&rows);
    if let Some(path) = &args.json {
        record::write(path, device, &rows)?;
    }
    args.picture.write(|| picture(&methods, &rows))
}

struct Bench<'a> {
    args: &'a StreamsArgs,
    engine: EngineHandle,
}

impl Bench<'_> {
    fn request(&self, method: Method, prompt_tokens: usize, max_tokens: usize) -> Request {
        let vocab = self.engine.info().vocab_size as u32;
        let prompt = (0..prompt_tokens).map(|_| rand::random_range(0..vocab));
        let mut request = Request::new(prompt.collect(), max_tokens);
        request.speculate.method = Some(method);
        request
    }

    /// Sends requests at the same time and hears all of them out.
    fn together(&self, method: Method, streams: usize) -> Result<Row> {
        let requests: Vec<Request> = (0..streams)
            .map(|_| self.request(method, self.args.context, self.args.tokens))
            .collect();
        let began = Instant::now();
        let heard = std::thread::scope(|scope| {
            let hear = |request| scope.spawn(move || self.hear(request));
            let threads: Vec<_> = requests.into_iter().map(hear).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Heard>>| {
                thread
                    .join()
                    .expect("hearing does not panic: this is a bug")
            };
            threads.into_iter().map(join).collect::<Result<Vec<_>>>()
        })?;
        let seconds = began.elapsed().as_secs_f64();
        Ok(Row {
            streams,
            context: self.args.context,
            together_tokens_per_s: while_all_run(&heard),
            ..self.row(method, &heard, seconds)
        })
    }

    fn hear(&self, request: Request) -> Result<Heard> {
        let sent = Instant::now();
        let updates = self.engine.submit(request)?;
        let mut heard = Heard {
            sent,
            updates: Vec::new(),
            steps: 0,
            accepted: 0,
        };
        while let Ok(update) = updates.recv_blocking() {
            if !update.tokens.is_empty() {
                heard.updates.push((Instant::now(), update.tokens.len()));
            }
            let Some(terminal) = update.terminal else {
                continue;
            };
            heard.steps = terminal.usage.steps;
            heard.accepted = terminal.usage.accepted_tokens;
            return match terminal.stop {
                Stop::Failed(reason) => Err(Error::Failed(reason)),
                _ => Ok(heard),
            };
        }
        Err(Error::Failed(
            "the engine ended in the middle of an answer".into(),
        ))
    }

    fn row(&self, method: Method, heard: &[Heard], seconds: f64) -> Row {
        let tokens = heard.iter().flat_map(|h| &h.updates).map(|(_, n)| n).sum();
        let steps: usize = heard.iter().map(|h| h.steps).sum();
        let accepted: usize = heard.iter().map(|h| h.accepted).sum();
        let mut first: Vec<f64> = heard.iter().map(Heard::first_ms).collect();
        let mut gaps: Vec<f64> = heard.iter().flat_map(Heard::gaps_ms).collect();
        Row {
            method: method.name(),
            tokens,
            seconds,
            tokens_per_s: tokens as f64 / seconds,
            acceptance_length: 1.0 + accepted as f64 / steps.max(1) as f64,
            first_token_ms_mean: first.iter().sum::<f64>() / first.len().max(1) as f64,
            first_token_ms_p50: record::quantile(&mut first, 0.5),
            first_token_ms_p99: record::quantile(&mut first, 0.99),
            gap_ms_p50: record::quantile(&mut gaps, 0.5),
            gap_ms_p99: record::quantile(&mut gaps, 0.99),
            gap_ms_longest: record::quantile(&mut gaps, 1.0),
            max_itl_ms: self.args.max_itl_ms,
            ..Row::default()
        }
    }

    /// A stream runs, a long prompt comes, and the stream is heard until that has its first token.
    fn beside(&self, method: Method, beside: usize) -> Result<Row> {
        let (mut rounds, mut heard, mut seconds) = (Vec::new(), Vec::new(), 0.0);
        for _ in 0..self.args.rounds {
            let most = self.engine.info().max_model_len;
            let stream = self.request(method, self.args.context, most);
            let stream = self.engine.submit(stream)?;
            let gone = |_| Error::Failed("the stream ended before the prompt was read".into());
            for _ in 0..10 {
                stream.recv_blocking().map_err(gone)?;
            }
            let long = self.request(method, beside, 1);
            let mut round = Heard {
                sent: Instant::now(),
                updates: vec![(Instant::now(), 0)],
                steps: 0,
                accepted: 0,
            };
            let long = self.engine.submit(long)?;
            while long.is_empty() {
                let update = stream.recv_blocking().map_err(gone)?;
                round.updates.push((Instant::now(), update.tokens.len()));
                round.steps += 1;
                round.accepted += update.accepted;
            }
            let took = round.sent.elapsed().as_secs_f64();
            rounds.push(took * 1e3);
            seconds += took;
            heard.push(round);
        }
        Ok(Row {
            streams: 1,
            context: self.args.context,
            beside,
            first_token_ms_mean: 0.0,
            first_token_ms_p50: 0.0,
            first_token_ms_p99: 0.0,
            beside_first_token_ms: Some(record::median(&mut rounds)),
            ..self.row(method, &heard, seconds)
        })
    }
}

/// Tokens per second from the last first token to the first last one; `None` if there is no such
/// time.
fn while_all_run(heard: &[Heard]) -> Option<f64> {
    let first = heard
        .iter()
        .map(|h| h.updates.first())
        .collect::<Option<Vec<_>>>()?;
    let last = heard
        .iter()
        .map(|h| h.updates.last())
        .collect::<Option<Vec<_>>>()?;
    let from = first.iter().map(|update| update.0).max()?;
    let to = last.iter().map(|update| update.0).min()?;
    let seconds = to.checked_duration_since(from)?.as_secs_f64();
    let within = heard.iter().flat_map(|h| &h.updates);
    let within = within.filter(|(at, _)| *at > from && *at <= to);
    let tokens: usize = within.map(|(_, tokens)| tokens).sum();
    (seconds > 0.0).then(|| tokens as f64 / seconds)
}

fn print(rows: &[Row]) {
    outln!(
        "{:8}{:>8}{:>10}{:>10}{:>10}{:>8}{:>10}{:>10}{:>10}{:>12}{:>10}{:>10}{:>12}",
        "method",
        "streams",
        "tokens/s",
        "together",
        "per step",
        "beside",
        "gap p50",
        "p99",
        "longest",
        "first mean",
        "p50",
        "p99",
        "beside first"
    );
    for row in rows {
        outln!(
            "{:8}{:>8}{:>10.1}{:>10.1}{:>10.2}{:>8}{:>10.2}{:>10.2}{:>10.2}{:>12.1}{:>10.1}{:>10.1}{:>12.1}",
            row.method,
            row.streams,
            row.tokens_per_s,
            row.together_tokens_per_s.unwrap_or(0.0),
            row.acceptance_length,
            row.beside,
            row.gap_ms_p50,
            row.gap_ms_p99,
            row.gap_ms_longest,
            row.first_token_ms_mean,
            row.first_token_ms_p50,
            row.first_token_ms_p99,
            row.beside_first_token_ms.unwrap_or(0.0),
        );
    }
}

/// Tokens per second of all streams together, a group for each number of streams.
fn picture(methods: &[Method], rows: &[Row]) -> String {
    let of = |method: &Method, streams: usize, value: fn(&Row) -> f64| {
        let mut rows = rows.iter();
        let row = rows
            .find(|row| row.method == method.name() && row.streams == streams && row.beside == 0);
        row.map_or(0.0, value)
    };
    let mut counts: Vec<usize> = rows
        .iter()
        .filter(|r| r.beside == 0)
        .map(|r| r.streams)
        .collect();
    counts.sort_unstable();
    counts.dedup();
    let group = |&streams: &usize| Group {
        name: streams.to_string(),
        bars: methods
            .iter()
            .flat_map(|method| {
                [
                    of(method, streams, |row| {
                        row.together_tokens_per_s.unwrap_or(0.0)
                    }),
                    of(method, streams, |row| 10.0 * row.gap_ms_p50),
                    of(method, streams, |row| 10.0 * row.gap_ms_p99),
                ]
            })
            .collect(),
    };
    let names: Vec<String> = methods
        .iter()
        .flat_map(|method| {
            ["tokens/s", "p50 gap", "p99 gap"].map(|what| format!("{method}, {what}"))
        })
        .collect();
    let groups: Vec<Group> = counts.iter().map(group).collect();
    bars(
        "Streams at once",
        "tokens/s; gaps in 0.1 ms",
        &names,
        &groups,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_time_in_which_all_run_counts() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let heard = |updates: &[(u64, usize)]| Heard {
            sent: start,
            updates: updates.iter().map(|&(ms, n)| (at(ms), n)).collect(),
            steps: updates.len(),
            accepted: 0,
        };
        let one = heard(&[(10, 1), (20, 1), (30, 2), (40, 1)]);
        let two = heard(&[(20, 1), (40, 3), (90, 5)]);
        assert_eq!(one.first_ms(), 10.0);
        assert_eq!(two.gaps_ms().collect::<Vec<_>>(), [20.0, 50.0]);
        let together = while_all_run(&[one, two]).unwrap();
        assert!((together - 6.0 / 0.02).abs() < 1e-6, "{together}");
        assert_eq!(while_all_run(&[heard(&[(1, 1)]), heard(&[(5, 1)])]), None);
        assert_eq!(while_all_run(&[heard(&[])]), None);
    }
}
