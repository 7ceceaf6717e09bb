//! Many streams at once, some aborted at any time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use volley_engine::{EngineHandle, EngineOptions, Request, Stop};

use crate::demo::{Demo, Result, percentile, resident_mib, wait};

const STREAMS: u64 = 64;
const RUNNING: usize = 16;
const CHATS: usize = 40;
const ABORTED: f64 = 0.3;
const MAX_TOKENS: usize = 160;

/// A request and the text that it has alone, without cache.
struct Case {
    request: Request,
    text: Vec<u32>,
}

#[derive(Default)]
struct Counts {
    complete: AtomicU64,
    aborted: AtomicU64,
    lost: AtomicU64,
    mixed: AtomicU64,
    tokens: AtomicU64,
}

pub fn measure(demo: &Demo, time: Duration) -> Result<Value> {
    let cases = cases(demo)?;
    let engine = demo.start(EngineOptions {
        max_running: RUNNING,
        cache_blocks: Some(4 * 130),
        max_itl: Some(Duration::from_millis(150)),
        ..EngineOptions::default()
    })?;
    let counts = Counts::default();
    let gaps = Mutex::new(Vec::new());
    let end = Instant::now() + time;
    let mut memory = Vec::new();
    std::thread::scope(|scope| -> Result<()> {
        for stream in 0..STREAMS {
            let (engine, cases, counts, gaps) = (&engine, &cases, &counts, &gaps);
            scope.spawn(move || run(engine, cases, stream, end, counts, gaps));
        }
        while Instant::now() < end {
            std::thread::sleep(Duration::from_secs(5).min(end - Instant::now()));
            memory.push(resident_mib()?.round());
        }
        Ok(())
    })?;
    // Cancelled ones leave at the next step.
    std::thread::sleep(Duration::from_millis(500));
    let stats = engine.stats();
    let mut gaps = gaps.into_inner()?;
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    Ok(json!({
        "streams": STREAMS,
        "running_at_once": RUNNING,
        "seconds": time.as_secs(),
        "complete": of(&counts.complete),
        "aborted": of(&counts.aborted),
        "lost": of(&counts.lost),
        "mixed": of(&counts.mixed),
        "tokens_per_second": of(&counts.tokens) as f64 / time.as_secs_f64(),
        "update_gap_ms": {"p50": percentile(&mut gaps, 0.5), "p99": percentile(&mut gaps, 0.99)},
        "steps_with_streams": stats.gaps,
        "of_these_longer_than_150_ms": stats.late_gaps,
        "resident_mib_every_5_s": memory,
        "after": {
            "running": stats.running,
            "waiting": stats.waiting,
            "blocks_held": stats.total_blocks - stats.free_blocks,
            "cancelled": stats.cancelled,
            "cancelled_waiting": stats.cancelled_waiting,
            "cancelled_prefill": stats.cancelled_prefill,
            "cancelled_decode": stats.cancelled_decode,
            "failed": stats.failed,
            "preempted": stats.preempted,
            "cached_tokens": stats.cached_tokens,
            "computed_prompt_tokens": stats.computed_tokens,
            "acceptance_length": stats.acceptance_length(),
        },
    }))
}

/// Greedy and sampled chats with their texts.
fn cases(demo: &Demo) -> Result<Vec<Case>> {
    let alone = demo.start(EngineOptions {
        checkpoints: 0,
        ..EngineOptions::default()
    })?;
    let mut cases = Vec::new();
    for (seed, message) in (0..).zip(demo.messages.iter().take(CHATS)) {
        let mut request = demo.request(demo.turn(message)?, MAX_TOKENS);
        if seed % 2 == 1 {
            request.sampling.temperature = 1.0;
            request.sampling.seed = seed;
        }
        // Long prompts among short ones.
        if seed % 10 == 9 {
            let before: Vec<Vec<u32>> = demo
                .messages
                .iter()
                .take(30)
                .map(|m| demo.turn(m))
                .collect::<Result<_>>()?;
            request.prompt = [before.concat(), request.prompt].concat();
        }
        let (text, _) = wait(&alone.submit(request.clone())?)?;
        cases.push(Case { request, text });
    }
    Ok(cases)
}

fn run(
    engine: &EngineHandle,
    cases: &[Case],
    stream: u64,
    end: Instant,
    counts: &Counts,
    gaps: &Mutex<Vec<f64>>,
) {
    let add = |count: &AtomicU64, n: u64| count.fetch_add(n, Ordering::Relaxed);
    let mut rng = ChaCha8Rng::seed_from_u64(stream);
    let mut own_gaps = Vec::new();
    while Instant::now() < end
        && let Some(case) = cases.choose(&mut rng)
    {
        let Ok(updates) = engine.submit(case.request.clone()) else {
            add(&counts.lost, 1);
            continue;
        };
        let leave = rng.random_bool(ABORTED).then(|| rng.random_range(0..8));
        let (mut tokens, mut seen) = (Vec::new(), 0);
        let mut last: Option<Instant> = None;
        loop {
            if leave == Some(seen) {
                add(&counts.aborted, 1);
                break;
            }
            let Ok(update) = updates.recv_blocking() else {
                add(&counts.lost, 1);
                break;
            };
            own_gaps.extend(last.map(|last| last.elapsed().as_secs_f64() * 1e3));
            last = Some(Instant::now());
            seen += 1;
            add(&counts.tokens, update.tokens.len() as u64);
            tokens.extend(update.tokens);
            if let Some(terminal) = update.terminal {
                let good = matches!(terminal.stop, Stop::Token(_) | Stop::Length);
                add(if good { &counts.complete } else { &counts.lost }, 1);
                if good && tokens.len() != case.text.len() {
                    eprintln!(
                        "stream {stream}: {} tokens of {}",
                        tokens.len(),
                        case.text.len()
                    );
                }
                break;
            }
        }
        if !case.text.starts_with(&tokens) {
            add(&counts.mixed, 1);
            let same = tokens
                .iter()
                .zip(&case.text)
                .take_while(|(a, b)| a == b)
                .count();
            eprintln!(
                "stream {stream}: token {same} of {} differs",
                case.text.len()
            );
        }
    }
    if let Ok(mut gaps) = gaps.lock() {
        gaps.extend(own_gaps);
    }
}
