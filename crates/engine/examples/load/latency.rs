//! What the cache saves a conversation, and how long streams wait for other's prompts.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use volley_engine::{EngineHandle, EngineOptions};

use crate::demo::{Demo, Result, percentile, wait};

const TURNS: usize = 10;
const CEILING: Duration = Duration::from_millis(150);
const LONG: usize = 3500;
const ROUNDS: usize = 20;

pub fn measure(demo: &Demo) -> Result<Value> {
    Ok(json!({
        "last_of_10_turns": follow_up(demo)?,
        "stream_beside_a_long_prompt": [
            gaps(demo, None, LONG)?,
            gaps(demo, Some(CEILING), LONG)?,
        ],
        "stream_alone": gaps(demo, None, 0)?,
    }))
}

/// The tenth turn of a conversation, after the nine before it and on an engine that never saw them.
fn follow_up(demo: &Demo) -> Result<Value> {
    let warm = demo.start(EngineOptions::default())?;
    let mut text = Vec::new();
    for message in demo.messages.iter().take(TURNS - 1) {
        text.extend(demo.turn(message)?);
        let (tokens, _) = wait(&warm.submit(demo.request(text.clone(), 160))?)?;
        text.extend(tokens);
        text.extend(demo.encode("\n")?);
    }
    let known = text.len();
    text.extend(demo.turn(&demo.messages[TURNS - 1])?);
    let cold = demo.start(EngineOptions::default())?;
    let turn = |engine: &EngineHandle| -> Result<Value> {
        let before = engine.stats().computed_tokens;
        let began = Instant::now();
        let updates = engine.submit(demo.request(text.clone(), 1))?;
        wait(&updates)?;
        Ok(json!({
            "computed_prompt_tokens": engine.stats().computed_tokens - before,
            "first_token_ms": began.elapsed().as_secs_f64() * 1e3,
        }))
    };
    Ok(json!({
        "prompt_tokens": text.len(),
        "new_tokens": text.len() - known,
        "warm": turn(&warm)?,
        "cold": turn(&cold)?,
    }))
}

/// Gaps between the updates of a stream while another prompt is read, several times over; without
/// one, for 100 updates each.
fn gaps(demo: &Demo, ceiling: Option<Duration>, tokens: usize) -> Result<Value> {
    let engine = demo.start(EngineOptions {
        max_running: 2,
        prefill_chunk: 1024,
        checkpoints: 0,
        max_itl: ceiling,
        ..EngineOptions::default()
    })?;
    let (mut gaps, mut read_ms) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        read_ms.push(beside(demo, &engine, tokens, &mut gaps)?);
    }
    Ok(json!({
        "ceiling_ms": ceiling.map(|ceiling| ceiling.as_millis() as u64),
        "long_prompt_tokens": tokens,
        "rounds": ROUNDS,
        "long_prompt_read_ms": percentile(&mut read_ms, 0.5),
        "updates": gaps.len(),
        "gap_ms": {
            "p50": percentile(&mut gaps, 0.5),
            "p99": percentile(&mut gaps, 0.99),
            "longest": percentile(&mut gaps, 1.0),
        },
    }))
}

/// One round: a stream runs, the prompt comes, and the gaps until its first token are added to
/// `gaps`. Milliseconds that it took.
fn beside(demo: &Demo, engine: &EngineHandle, tokens: usize, gaps: &mut Vec<f64>) -> Result<f64> {
    let mut stream = demo.request(demo.turn(&demo.messages[0])?, 3000);
    stream.stop_ids.clear();
    let updates = engine.submit(stream)?;
    for _ in 0..20 {
        updates.recv_blocking()?;
    }
    let mut long = Vec::new();
    for message in demo.messages.iter().cycle() {
        if long.len() >= tokens {
            break;
        }
        long.extend(demo.turn(message)?);
    }
    long.truncate(tokens);
    let began = Instant::now();
    let other = match tokens {
        0 => None,
        _ => Some(engine.submit(demo.request(long, 1))?),
    };
    let (mut last, before) = (began, gaps.len());
    let reading = |gaps: &[f64]| match &other {
        Some(other) => other.is_empty(),
        None => gaps.len() < before + 100,
    };
    while reading(gaps) {
        updates.recv_blocking()?;
        gaps.push(last.elapsed().as_secs_f64() * 1e3);
        last = Instant::now();
    }
    Ok(began.elapsed().as_secs_f64() * 1e3)
}
