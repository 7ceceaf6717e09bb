//! What is kept of earlier texts saves work and changes nothing.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::time::Duration;

use common::faulty::{Fault, FaultyOps, Switch};
use common::{FLAT, by, dflash, greedy, options, prompt, run, sampled, sources, start, wait};
use volley_engine::{Engine, EngineHandle, EngineOptions, Miss, Request, Speculation};
use volley_ops_candle::CandleOps;
use volley_speculate::Method;

fn cold(speculation: Speculation) -> EngineHandle {
    start(EngineOptions {
        checkpoints: 0,
        ..options(speculation)
    })
}

/// The text is that of an engine without cache; returns the prompt tokens that were not computed.
fn check(warm: &EngineHandle, cold: &EngineHandle, request: Request, what: &str) -> usize {
    let expected = run(cold, request.clone());
    assert_eq!(expected.terminal.usage.cached_tokens, 0);
    assert_eq!(cold.stats().queried_tokens, 0);
    let before = warm.stats();
    let outcome = run(warm, request.clone());
    let target = sources().target;
    let (a, b) = (&expected.tokens, &outcome.tokens);
    common::assert_same_text(&target, &request.prompt, a, b, what);
    let cached = outcome.terminal.usage.cached_tokens;
    let computed = warm.stats().computed_tokens - before.computed_tokens;
    assert_eq!(computed as usize, request.prompt.len() - cached, "{what}");
    let stats = warm.stats();
    let whole = [
        stats.prompt_tokens - before.prompt_tokens,
        stats.queried_tokens - before.queried_tokens,
    ];
    assert_eq!(whole, [request.prompt.len() as u64; 2], "{what}");
    let found = [
        stats.cached_prompt_tokens - before.cached_prompt_tokens,
        stats.cached_tokens - before.cached_tokens,
    ];
    assert_eq!(found, [cached as u64; 2], "{what}");
    cached
}

/// A text that went through the engine, all but its last token computed.
fn said(engine: &EngineHandle, request: &Request) -> Vec<u32> {
    let outcome = run(engine, request.clone());
    [&request.prompt[..], &outcome.tokens].concat()
}

#[test]
fn a_text_goes_on_where_the_last_turn_ended() {
    for speculation in [Speculation::none(), dflash(15)] {
        let (warm, cold) = (start(options(speculation)), cold(speculation));
        let mut text = prompt(1, 20);
        for turn in 0..8 {
            let request = sampled(text.clone(), 25, FLAT, turn);
            let known = text.len();
            let cached = check(&warm, &cold, request.clone(), &format!("turn {turn}"));
            if turn > 0 {
                // The last token of the turn before came out but was not computed, and 3 are new.
                assert_eq!(cached, known - 4);
            }
            text = said(&cold, &request);
            text.extend(prompt(100 + turn, 3));
        }
        assert_eq!(
            warm.stats().cached_blocks,
            warm.stats().free_blocks.min(warm.stats().cached_blocks)
        );
        assert!(warm.stats().checkpoints > 0);
    }
}

/// Every length of the shared beginning, around the borders of blocks and chunks.
#[test]
fn any_beginning_can_be_shared() {
    let cold = cold(dflash(15));
    for chunk in [7, 256] {
        let warm = start(EngineOptions {
            prefill_chunk: chunk,
            ..options(dflash(15))
        });
        let text = prompt(2, 140);
        for shared in (1..140)
            .step_by(if chunk == 7 { 23 } else { 5 })
            .chain([31, 32, 33, 63, 64, 65])
        {
            let mut first = greedy(prompt(3 + shared as u64, 3), 6);
            first.prompt.extend(&text);
            first.checkpoints = vec![3 + shared];
            let mut second = first.clone();
            second.prompt.truncate(3 + shared);
            second.prompt.extend(prompt(4, 30));
            check(&warm, &cold, first.clone(), "first");
            let what = format!("{shared} tokens, chunks of {chunk}");
            assert_eq!(check(&warm, &cold, second, &what), 3 + shared, "{what}");
            // The same again: all but the last token of the prompt.
            let end = first.prompt.len() - 1;
            first.checkpoints.push(end);
            check(&warm, &cold, first.clone(), "marked");
            assert_eq!(check(&warm, &cold, first, "again"), end);
        }
    }
}

#[test]
fn a_shared_beginning_is_found_at_the_third_text() {
    let (warm, cold) = (start(options(dflash(15))), cold(dflash(15)));
    let system = prompt(5, 100);
    let request = |seed| greedy([&system[..], &prompt(seed, 40)].concat(), 10);
    let cached: Vec<usize> = (10..14)
        .map(|seed| check(&warm, &cold, request(seed), "text"))
        .collect();
    // Nobody said where the system prompt ends: the second text shows it, to the block.
    assert_eq!(cached, [0, 0, 96, 96]);
}

#[test]
fn a_miss_is_explained() {
    let warm = start(options(dflash(15)));
    let miss = |prompt: &[u32]| {
        let outcome = run(&warm, greedy(prompt.to_vec(), 2));
        let miss = outcome.terminal.usage.cache_miss.unwrap();
        (miss.at, miss.why)
    };
    let text = prompt(5, 100);
    assert_eq!(miss(&text), (0, Miss::NothingKept));
    // The prompt and its first output token are kept, the states behind both.
    let outcome = run(&warm, greedy(text.clone(), 2));
    let longer = [&text[..], &outcome.tokens[..1], &prompt(6, 20)].concat();
    assert_eq!(miss(&longer), (101, Miss::Ends));
    assert_eq!(
        miss(&[&text[..70], &prompt(7, 20)].concat()),
        (70, Miss::NoStates)
    );
    assert_eq!(
        miss(&[&text[..70], &prompt(8, 20)].concat()),
        (70, Miss::Differs)
    );
    assert_eq!(miss(&text[..90]), (90, Miss::NoStates));
    assert_eq!(miss(&longer[..102]), (102, Miss::None));
    let without = cold(Speculation::none());
    let outcome = run(&without, greedy(text, 2));
    assert_eq!(outcome.terminal.usage.cache_miss, None);
}

/// Neither what is cached nor how long a prompt takes tells of texts under another salt.
#[test]
fn salts_share_nothing() {
    let (warm, cold) = (start(options(dflash(15))), cold(dflash(15)));
    let salted = |salt: &str| {
        let mut request = greedy(prompt(5, 100), 10);
        request.cache_salt = salt.into();
        request.checkpoints = vec![99];
        request
    };
    for (salt, cached) in [("a", 0), ("b", 0), ("", 0), ("a", 99), ("b", 99), ("", 99)] {
        assert_eq!(check(&warm, &cold, salted(salt), salt), cached, "{salt}");
    }
    let other = run(&warm, salted("c"));
    let miss = other
        .terminal
        .usage
        .cache_miss
        .map(|miss| (miss.at, miss.why));
    assert_eq!(miss, Some((0, Miss::NothingKept)));
    let stats = warm.stats();
    assert_eq!(
        (stats.cached_tokens, stats.free_blocks),
        (3 * 99, stats.total_blocks)
    );
}

/// An MTP head beside a drafter follows those alone that chose it: each side goes on with its own texts.
#[test]
fn a_head_beside_a_drafter_shares_nothing_with_it() {
    let speculation = Speculation {
        mtp: true,
        ..dflash(15)
    };
    let (warm, cold) = (start(options(speculation)), cold(speculation));
    let by = |method: Method| {
        let mut request = greedy(prompt(5, 100), 30);
        request.speculate = by(method);
        request.checkpoints = vec![99];
        request
    };
    for (method, cached) in [
        (Method::Dflash, 0),
        (Method::Mtp, 0),
        (Method::Dflash, 99),
        (Method::Mtp, 99),
        (Method::None, 99),
        (Method::Auto, 99),
    ] {
        let request = by(method);
        assert_eq!(check(&warm, &cold, request.clone(), method.name()), cached);
        let (kept, new) = (run(&warm, request.clone()), run(&cold, request));
        let drafts = |outcome: &common::Outcome| {
            let usage = &outcome.terminal.usage;
            (usage.steps, usage.drafted_tokens, usage.accepted_tokens)
        };
        // What is kept is as good to draft from; only `auto` learns from one request to the next.
        if method != Method::Auto {
            assert_eq!(drafts(&kept), drafts(&new), "{method}");
        }
        assert_eq!(drafts(&kept).1 > 0, method != Method::None, "{method}");
    }
}

#[test]
fn branches_live_side_by_side() {
    let warm = start(EngineOptions {
        max_running: 3,
        ..options(dflash(15))
    });
    let cold = cold(dflash(15));
    let mut texts: Vec<Vec<u32>> = (0..3).map(|branch| prompt(20 + branch, 50)).collect();
    for turn in 0..4 {
        let requests: Vec<_> = texts
            .iter()
            .map(|text| sampled(text.clone(), 20, FLAT, turn))
            .collect();
        let running: Vec<_> = requests
            .iter()
            .map(|r| warm.submit(r.clone()).unwrap())
            .collect();
        for ((text, request), running) in texts.iter_mut().zip(&requests).zip(&running) {
            let outcome = wait(running);
            assert_eq!(outcome.tokens, run(&cold, request.clone()).tokens);
            let expected = if turn == 0 { 0 } else { text.len() - 6 };
            assert_eq!(outcome.terminal.usage.cached_tokens, expected);
            text.extend(&outcome.tokens);
            text.extend(prompt(40 + turn, 5));
        }
    }
}

/// Few checkpoints and few blocks: what was used longest ago goes, and comes back by computing.
#[test]
fn what_does_not_fit_is_forgotten() {
    let warm = start(EngineOptions {
        max_model_len: Some(200),
        cache_blocks: Some(8),
        checkpoints: 3,
        max_running: 2,
        ..options(dflash(15))
    });
    let cold = cold(dflash(15));
    for round in 0..3 {
        for seed in 0..6 {
            let len = 20 + 25 * seed as usize;
            let request = sampled(prompt(60 + seed, len), 20, FLAT, seed);
            check(
                &warm,
                &cold,
                request,
                &format!("round {round}, text {seed}"),
            );
            assert!(warm.stats().checkpoints <= 3);
        }
    }
    let stats = warm.stats();
    assert_eq!(stats.free_blocks, stats.total_blocks);
}

/// More running texts than blocks: those that came last give way and compute again.
#[test]
fn requests_without_blocks_wait_or_compute_again() {
    for (checkpoints, speculation) in [(0, dflash(15)), (4, dflash(15)), (4, Speculation::none())] {
        let tight = start(EngineOptions {
            max_model_len: Some(300),
            cache_blocks: Some(12),
            checkpoints,
            max_running: 4,
            prefill_chunk: 64,
            ..options(speculation)
        });
        let requests: Vec<_> = (0..8)
            .map(|seed| sampled(prompt(80 + seed, 30 + 9 * seed as usize), 120, FLAT, seed))
            .collect();
        let running: Vec<_> = requests
            .iter()
            .map(|r| tight.submit(r.clone()).unwrap())
            .collect();
        let cold = cold(speculation);
        for (request, running) in requests.into_iter().zip(&running) {
            let outcome = wait(running);
            assert_eq!(outcome.tokens, run(&cold, request).tokens);
        }
        let stats = tight.stats();
        assert!(stats.preempted > 0, "{stats:?}");
        assert_eq!((stats.finished, stats.free_blocks), (8, stats.total_blocks));
    }
}

#[test]
fn lower_priority_values_go_first() {
    let engine = start(EngineOptions {
        max_model_len: Some(2048),
        ..options(dflash(15))
    });
    let long = engine.submit(greedy(prompt(1, 5), 1500)).unwrap();
    long.recv_blocking().unwrap();
    let submit = |seed, priority| {
        let mut request = greedy(prompt(seed, 5), 30);
        request.priority = priority;
        engine.submit(request).unwrap()
    };
    let (late, early) = (submit(2, 1), submit(3, -1));
    drop(long);
    wait(&early);
    assert!(late.is_empty(), "the later one has not begun");
    assert_eq!(wait(&late).tokens.len(), 30);
}

/// An abort in the middle of a block leaves nothing behind that the next text could trip over.
#[test]
fn aborts_leave_no_trace() {
    let (warm, cold) = (start(options(dflash(15))), cold(dflash(15)));
    let text = prompt(7, 70);
    for updates in 0..6 {
        let mut request = sampled(text.clone(), 400, FLAT, updates);
        request.checkpoints = vec![66];
        let ended = || warm.stats().cancelled + warm.stats().finished;
        let before = ended();
        let running = warm.submit(request).unwrap();
        for _ in 0..updates {
            running.recv_blocking().unwrap();
        }
        drop(running);
        // What it computed is counted by then.
        while ended() == before {
            std::thread::sleep(Duration::from_millis(1));
        }
        let next = sampled([&text[..], &prompt(updates, 9)].concat(), 30, FLAT, 3);
        check(&warm, &cold, next, &format!("after {updates} updates"));
    }
    assert!(warm.stats().cached_tokens > 0);
}

/// After a failed step nothing that was kept is trusted.
#[test]
fn a_failed_step_empties_the_cache() {
    let switch = Switch::new(Fault::Error);
    let inner = CandleOps::single(candle_core::Device::Cpu).ahead();
    let ops = FaultyOps {
        inner,
        switch: switch.clone(),
    };
    let engine = Engine::start_on(vec![ops], options(dflash(15)), sources()).unwrap();
    let request = greedy(prompt(9, 60), 10);
    let expected = run(&engine, request.clone()).tokens;
    assert!(engine.stats().checkpoints > 0);
    switch.arm(20);
    run(&engine, greedy(prompt(10, 60), 10));
    assert_eq!((engine.stats().failed, engine.stats().checkpoints), (1, 0));
    let again = run(&engine, request);
    assert_eq!(
        (again.tokens, again.terminal.usage.cached_tokens),
        (expected, 0)
    );
}

#[test]
fn two_ranks_keep_the_same() {
    let warm = start(EngineOptions {
        ranks: 2,
        ..options(dflash(15))
    });
    let cold = cold(dflash(15));
    let first = sampled(prompt(11, 90), 20, FLAT, 1);
    let text = said(&cold, &first);
    check(&warm, &cold, first, "first turn");
    let next = sampled([&text[..], &prompt(12, 10)].concat(), 20, FLAT, 1);
    assert_eq!(check(&warm, &cold, next, "second turn"), text.len() - 1);
}
