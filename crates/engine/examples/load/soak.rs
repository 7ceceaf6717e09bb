//! Conversations of several turns, one beside the other.

use std::time::Duration;

use serde_json::{Value, json};
use volley_engine::EngineOptions;

use crate::demo::{Demo, Result, resident_mib, wait};

const SESSIONS: usize = 20;
const TURNS: usize = 5;
const ROUNDS: usize = 4;

/// Every session says its turns in step with the others; the whole several times over, to see
/// whether memory grows.
pub fn measure(demo: &Demo) -> Result<Value> {
    let engine = demo.start(EngineOptions {
        max_running: 8,
        checkpoints: 64,
        max_itl: Some(Duration::from_millis(150)),
        ..EngineOptions::default()
    })?;
    let (mut empty, mut prompt, mut cached) = (0, 0, 0);
    let mut memory = Vec::new();
    for round in 0..ROUNDS {
        let mut texts: Vec<Vec<u32>> = (0..SESSIONS)
            .map(|session| {
                demo.encode(&format!(
                    "<|im_start|>system\nSession {round}.{session}.<|im_end|>\n"
                ))
            })
            .collect::<Result<_>>()?;
        for turn in 0..TURNS {
            let mut running = Vec::new();
            for (session, text) in texts.iter_mut().enumerate() {
                let message = &demo.messages[(session * TURNS + turn) % demo.messages.len()];
                text.extend(demo.turn(message)?);
                running.push(engine.submit(demo.request(text.clone(), 160))?);
            }
            for (text, running) in texts.iter_mut().zip(&running) {
                let (tokens, terminal) = wait(running)?;
                empty += usize::from(tokens.len() < 2);
                prompt += terminal.usage.prompt_tokens;
                cached += terminal.usage.cached_tokens;
                text.extend(tokens);
                text.extend(demo.encode("\n")?);
            }
        }
        memory.push(resident_mib()?.round());
    }
    let stats = engine.stats();
    Ok(json!({
        "sessions": SESSIONS,
        "turns": TURNS,
        "rounds": ROUNDS,
        "empty_answers": empty,
        "prompt_tokens": prompt,
        "cached_tokens": cached,
        "resident_mib_after_each_round": memory,
        "blocks_held_after": stats.total_blocks - stats.free_blocks,
    }))
}
