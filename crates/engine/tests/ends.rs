//! How requests end: stop tokens and limits anywhere in a block, cancellation, refusals.
#![allow(missing_docs)]

mod common;

use std::time::Duration;

use common::{FLAT, dflash, greedy, options, prompt, run, sampled, start, wait};
use volley_engine::{EngineError, EngineHandle, EngineOptions, Speculation, Stop};

/// Whoever has read the last terminal finds everything free again.
fn assert_idle(engine: &EngineHandle) {
    let stats = engine.stats();
    assert_eq!((stats.running, stats.waiting), (0, 0));
    assert_eq!(stats.free_blocks, stats.total_blocks);
}

#[test]
fn a_stop_id_ends_the_text_at_every_index_of_a_block() {
    let engine = start(options(dflash(15)));
    let request = sampled(prompt(3, 10), 40, FLAT, 8);
    let whole = run(&engine, request.clone());
    let mut inside = 0;
    for (index, &id) in whole.tokens.iter().enumerate() {
        // Before that it would not be sampled.
        if whole.tokens[..index].contains(&id) {
            continue;
        }
        let mut request = request.clone();
        request.stop_ids = vec![id];
        request.min_tokens = index;
        let outcome = run(&engine, request);
        assert_eq!(outcome.tokens, whole.tokens[..=index]);
        assert_eq!(outcome.terminal.stop, Stop::Token(id));
        let usage = outcome.terminal.usage;
        assert_eq!(usage.completion_tokens, index + 1);
        let last = outcome.updates.last().unwrap();
        assert!(last.tokens.len() <= last.accepted + 1);
        inside += usize::from(last.tokens.len() <= last.accepted);
    }
    assert!(inside > 10, "{inside} stops were inside an accepted block");
    assert_idle(&engine);
}

#[test]
fn max_tokens_ends_the_text_at_every_offset() {
    for speculation in [Speculation::none(), dflash(15)] {
        let engine = start(options(speculation));
        let request = sampled(prompt(4, 10), 40, FLAT, 9);
        let whole = run(&engine, request.clone());
        for max_tokens in 0..=40 {
            let mut request = request.clone();
            request.max_tokens = max_tokens;
            let outcome = run(&engine, request);
            assert_eq!(outcome.tokens, whole.tokens[..max_tokens]);
            assert_eq!(outcome.terminal.stop, Stop::Length);
        }
        assert_idle(&engine);
    }
}

#[test]
fn the_context_limit_ends_the_text() {
    let limited = |speculation| {
        start(EngineOptions {
            max_model_len: Some(64),
            ..options(speculation)
        })
    };
    let (plain, speculating) = (limited(Speculation::none()), limited(dflash(15)));
    for len in [1, 32, 47, 48, 49, 62, 63] {
        let request = sampled(prompt(5, len), usize::MAX, FLAT, 5);
        let a = run(&plain, request.clone());
        let b = run(&speculating, request);
        assert_eq!(a.tokens.len(), 64 - len);
        assert_eq!(a.tokens, b.tokens);
        assert_eq!(b.terminal.stop, Stop::Length);
    }
    assert_idle(&speculating);
}

#[test]
fn masked_ids_never_come_out() {
    let engine = start(EngineOptions {
        token_count: Some(100),
        ..options(dflash(15))
    });
    for seed in 0..5 {
        let outcome = run(&engine, sampled(prompt(seed, 5), 60, FLAT, seed));
        assert!(outcome.tokens.iter().all(|&id| id < 100));
    }
}

#[test]
fn usage_counts_what_happened() {
    let engine = start(options(dflash(15)));
    let outcome = run(&engine, sampled(prompt(6, 33), 50, FLAT, 1));
    let usage = outcome.terminal.usage;
    assert_eq!((usage.prompt_tokens, usage.completion_tokens), (33, 50));
    assert_eq!(usage.cached_tokens, 0);
    assert_eq!(usage.steps, outcome.updates.len() - 1);
    let sum = |of: fn(&volley_engine::RequestUpdate) -> usize| {
        outcome.updates.iter().map(of).sum::<usize>()
    };
    assert_eq!(usage.drafted_tokens, sum(|update| update.drafted));
    assert_eq!(usage.accepted_tokens, sum(|update| update.accepted));
    assert_eq!(
        usage.completion_tokens,
        1 + usage.steps + usage.accepted_tokens
    );
    assert!(usage.prefill_ms > 0.0 && usage.decode_ms > 0.0);
    let stats = engine.stats();
    assert_eq!(stats.finished, 1);
    assert_eq!(
        stats.speculation.accepted.iter().sum::<u64>(),
        usage.accepted_tokens as u64
    );
    assert_eq!((stats.prompt_tokens, stats.completion_tokens), (33, 50));
}

#[test]
fn a_dropped_receiver_frees_the_engine() {
    let engine = start(EngineOptions {
        max_model_len: Some(4096),
        prefill_chunk: 8,
        ..options(dflash(15))
    });
    let expected = run(&engine, greedy(prompt(1, 5), 5)).tokens;
    // During the prompt, while decoding, while waiting.
    let long_prompt = engine.submit(greedy(prompt(1, 4000), 5)).unwrap();
    let waiting = engine.submit(greedy(prompt(2, 5), 3000)).unwrap();
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!((engine.stats().running, engine.stats().waiting), (1, 1));
    drop(waiting);
    drop(long_prompt);
    assert_eq!(run(&engine, greedy(prompt(1, 5), 5)).tokens, expected);
    let stats = engine.stats();
    assert_eq!((stats.cancelled, stats.finished), (2, 2));
    assert_eq!((stats.cancelled_waiting, stats.cancelled_prefill), (1, 1));
    assert!(stats.computed_tokens < 2000, "{}", stats.computed_tokens);
    assert_eq!(stats.prompt_tokens, 2 * 5);

    let decoding = engine.submit(greedy(prompt(3, 5), 4000)).unwrap();
    decoding.recv_blocking().unwrap();
    decoding.recv_blocking().unwrap();
    drop(decoding);
    assert_eq!(run(&engine, greedy(prompt(1, 5), 5)).tokens, expected);
    let stats = engine.stats();
    assert_eq!((stats.cancelled, stats.cancelled_decode), (3, 1));
    assert!(engine.stats().completion_tokens < 2000);
    assert_idle(&engine);
}

#[test]
fn fifty_requests_from_eight_threads_all_complete() {
    let engine = start(options(dflash(15)));
    let request = |seed: u64| sampled(prompt(seed, 1 + seed as usize), 12, 1.0, seed);
    let expected: Vec<_> = (0..50)
        .map(|seed| run(&engine, request(seed)).tokens)
        .collect();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let (engine, expected) = (&engine, &expected);
            scope.spawn(move || {
                for seed in (thread..50).step_by(8) {
                    let outcome = run(engine, request(seed));
                    assert_eq!(outcome.tokens, expected[seed as usize]);
                }
            });
        }
    });
    assert_eq!(engine.stats().finished, 100);
    assert_idle(&engine);
}

#[test]
fn impossible_requests_are_refused() {
    let engine = start(EngineOptions {
        max_model_len: Some(64),
        ..options(Speculation::none())
    });
    let refusal = |request| engine.submit(request).map(|_| ()).unwrap_err();
    assert!(matches!(
        refusal(greedy(vec![], 5)),
        EngineError::EmptyPrompt
    ));
    assert!(matches!(
        refusal(greedy(prompt(0, 64), 5)),
        EngineError::PromptTooLong {
            prompt: 64,
            limit: 64
        }
    ));
    let unknown = refusal(greedy(vec![3, 512], 5));
    assert!(matches!(
        unknown,
        EngineError::UnknownToken {
            id: 512,
            vocab_size: 512
        }
    ));
    let cold = refusal(sampled(vec![3], 5, -1.0, 0));
    assert!(matches!(cold, EngineError::Speculate(_)), "{cold}");
    let mut biased = greedy(vec![3], 5);
    biased.sampling.logit_bias.insert(600, 1.0);
    assert!(matches!(
        refusal(biased),
        EngineError::UnknownToken { id: 600, .. }
    ));
    assert_eq!(run(&engine, greedy(prompt(0, 63), 5)).tokens.len(), 1);
}

#[test]
fn the_queue_is_bounded() {
    let engine = start(EngineOptions {
        max_model_len: Some(4096),
        max_waiting: 2,
        ..options(Speculation::none())
    });
    let long = engine.submit(greedy(prompt(0, 5), 4000)).unwrap();
    long.recv_blocking().unwrap();
    let waiting: Vec<_> = (0..2)
        .map(|seed| engine.submit(greedy(prompt(seed, 5), 3)).unwrap())
        .collect();
    let full = engine.submit(greedy(prompt(7, 5), 3)).unwrap_err();
    assert!(matches!(full, EngineError::QueueFull { limit: 2 }));
    drop(long);
    for updates in &waiting {
        assert_eq!(wait(updates).tokens.len(), 3);
    }
    assert_eq!(run(&engine, greedy(prompt(7, 5), 3)).tokens.len(), 3);
}

#[test]
fn a_shut_down_engine_cancels_and_refuses() {
    let engine = start(EngineOptions {
        max_model_len: Some(4096),
        ..options(dflash(15))
    });
    let running = engine.submit(greedy(prompt(0, 5), 4000)).unwrap();
    let waiting = engine.submit(greedy(prompt(1, 5), 4000)).unwrap();
    running.recv_blocking().unwrap();
    assert!(engine.alive());
    engine.shutdown();
    assert_eq!(wait(&running).terminal.stop, Stop::Cancelled);
    assert_eq!(wait(&waiting).terminal.stop, Stop::Cancelled);
    assert!(!engine.alive());
    assert_eq!(engine.failure(), None);
    let refused = engine.submit(greedy(prompt(0, 5), 5)).unwrap_err();
    assert!(matches!(refused, EngineError::Stopped(_)), "{refused}");
    engine.shutdown();
}
