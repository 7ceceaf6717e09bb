//! Random lives of an engine with too few blocks: nothing is lost, mixed up, starved or leaked.
//! Tests are built with the ledger checked after every step.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::{FLAT, dflash, every_method, greedy, options, prompt, run, sampled, start};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use volley_engine::{EngineOptions, Request, Speculation};
use volley_speculate::Method;

/// Texts that begin alike, of many lengths, each with its marks, depth and priority. Some answers are one
/// word over and over, which lookup foresees.
fn requests() -> Vec<Request> {
    let stem = prompt(1, 120);
    (0..24usize)
        .map(|i| {
            let seed = i as u64;
            let shared = [0, 31, 32, 33, 70, 120][i % 6];
            let text = [&stem[..shared], &prompt(seed, 1 + 5 * i)].concat();
            let len = text.len();
            let mut request = sampled(text, 5 + 7 * i % 60, FLAT, seed);
            request.checkpoints = vec![shared, len / 2, len - 1];
            request.speculate.max_drafts = [15, 0, 3][i % 3];
            request.priority = (i % 4) as i32 - 1;
            if i % 6 == 3 {
                request.sampling.logit_bias.insert(7, 1e3);
            }
            request
        })
        .collect()
}

fn live(seed: u64, speculation: Speculation, ranks: usize, count: usize) {
    let requests = requests();
    let cold = start(EngineOptions {
        checkpoints: 0,
        ..options(speculation)
    });
    let expected: Vec<_> = requests
        .iter()
        .map(|r| run(&cold, r.clone()).tokens)
        .collect();
    let engine = start(EngineOptions {
        max_model_len: Some(320),
        cache_blocks: Some(16),
        checkpoints: 5,
        checkpoint_interval: 64,
        max_running: 4,
        prefill_chunk: 48,
        ranks,
        ..options(speculation)
    });
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut running = Vec::new();
    let mut left = 0;
    for _ in 0..count {
        let which = rng.random_range(0..requests.len());
        running.push((which, engine.submit(requests[which].clone()).unwrap()));
        while running.len() > rng.random_range(0..10) {
            let (which, updates) = running.swap_remove(rng.random_range(0..running.len()));
            if rng.random_bool(0.3) {
                for _ in 0..rng.random_range(0..3) {
                    let _ = updates.recv_blocking();
                }
                left += 1;
            } else {
                let outcome = common::wait(&updates);
                assert_eq!(outcome.tokens, expected[which], "seed {seed}, text {which}");
            }
        }
    }
    left += running.len();
    drop(running);
    // Whoever is answered now comes after all cancelled ones were seen.
    let mut last = requests[0].clone();
    last.priority = i32::MAX;
    assert_eq!(run(&engine, last).tokens, expected[0]);
    let stats = engine.stats();
    assert_eq!((stats.running, stats.waiting, stats.failed), (0, 0, 0));
    assert_eq!(stats.finished + stats.cancelled, count as u64 + 1);
    assert!(stats.cancelled <= left as u64);
    assert_eq!(stats.free_blocks, stats.total_blocks);
    assert!(stats.preempted > 0 && stats.cached_tokens > 0, "{stats:?}");
    let copied = stats.speculation.methods.of(Method::Ngram);
    assert_eq!(copied > 0, speculation.method == Method::Auto, "{copied}");
    assert!(engine.alive());
}

#[test]
fn random_lives() {
    live(1, dflash(15), 1, 120);
    live(2, Speculation::none(), 1, 60);
    live(3, dflash(15), 2, 60);
    live(4, every_method(), 1, 60);
    live(5, every_method(), 2, 40);
}

/// A long prompt does not hold short ones up, and short ones do not keep it from getting on.
#[test]
fn short_prompts_pass_a_long_one() {
    let engine = start(EngineOptions {
        max_model_len: Some(4096),
        max_running: 3,
        prefill_chunk: 64,
        ..options(Speculation::none())
    });
    let long = engine.submit(greedy(prompt(1, 3500), 2)).unwrap();
    let mut passed = 0;
    while long.is_empty() && passed < 200 {
        run(&engine, greedy(prompt(100 + passed, 20), 5));
        passed += 1;
    }
    assert!((6..100).contains(&passed), "{passed} short ones");
    assert_eq!(common::wait(&long).tokens.len(), 2);
}

#[test]
#[ignore = "takes minutes"]
fn long_random_lives() {
    for seed in 10..30 {
        live(seed, dflash(15), 1, 1000);
    }
}
