//! What must not change the text: speculation, its depth, prefill chunks, ranks, company.
#![allow(missing_docs)]

mod common;

use common::{
    FLAT, Outcome, by_host, dflash, greedy, options, prompt, run, sampled, sources, start,
};
use volley_engine::{EngineHandle, EngineOptions, Speculation};
use volley_speculate::Rule;

/// Greedy outcomes of prompts of many lengths.
fn greedy_texts(engine: &EngineHandle, prompts: &[Vec<u32>]) -> Vec<Outcome> {
    let requests = prompts.iter().map(|prompt| greedy(prompt.clone(), 24));
    requests.map(|request| run(engine, request)).collect()
}

fn prompts(count: u64) -> Vec<Vec<u32>> {
    (0..count)
        .map(|seed| prompt(seed, 1 + 7 * seed as usize % 101))
        .collect()
}

fn assert_same(prompts: &[Vec<u32>], a: &[Outcome], b: &[Outcome], what: &str) {
    let target = sources().target;
    for ((prompt, a), b) in prompts.iter().zip(a).zip(b) {
        common::assert_same_text(&target, prompt, &a.tokens, &b.tokens, what);
    }
}

#[test]
fn greedy_text_does_not_depend_on_speculation() {
    let prompts = prompts(60);
    let plain = greedy_texts(&start(by_host()), &prompts);
    let engine = start(options(dflash(usize::MAX)));
    let speculated = greedy_texts(&engine, &prompts);
    assert_same(&prompts, &plain, &speculated, "speculation");
    assert!(plain.iter().all(|outcome| outcome.tokens.len() == 24));
    assert!(
        plain
            .iter()
            .all(|outcome| outcome.terminal.usage.drafted_tokens == 0)
    );
    let stats = engine.stats();
    assert_eq!(stats.speculation.drafted.len(), 15);
    assert!(
        stats.speculation.drafted[0] > 1000,
        "{:?}",
        stats.speculation.drafted
    );
}

#[test]
fn sampled_text_does_not_depend_on_speculation() {
    let plain = start(by_host());
    let speculating = start(options(dflash(15)));
    for (seed, temperature) in (0..30).zip([0.7, 1.0, FLAT].into_iter().cycle()) {
        let mut request = sampled(prompt(seed, 20), 40, temperature, seed);
        if seed % 2 == 1 {
            request.sampling.top_k = 50;
            request.sampling.top_p = 0.95;
            request.sampling.repetition_penalty = 1.2;
            request.sampling.presence_penalty = 0.5;
            request.sampling.frequency_penalty = 0.3;
        }
        let a = run(&plain, request.clone());
        let b = run(&speculating, request);
        assert_eq!(a.tokens, b.tokens, "seed {seed}, temperature {temperature}");
    }
    // The test means little unless drafts of every position were accepted.
    let stats = speculating.stats();
    assert!(
        stats.speculation.accepted.iter().all(|&n| n > 0),
        "{:?}",
        stats.speculation.accepted
    );
    assert!(stats.acceptance_length() > Some(1.3), "{stats:?}");
}

#[test]
fn text_does_not_depend_on_the_depth() {
    let requests: Vec<_> = (0..6)
        .map(|s| sampled(prompt(s, 30), 50, FLAT, s))
        .collect();
    let plain = start(by_host());
    let expected: Vec<_> = requests
        .iter()
        .map(|r| run(&plain, r.clone()).tokens)
        .collect();
    for depth in [0, 1, 2, 5, 14, 15, usize::MAX] {
        let engine = start(options(dflash(depth)));
        for (request, expected) in requests.iter().zip(&expected) {
            assert_eq!(
                run(&engine, request.clone()).tokens,
                *expected,
                "depth {depth}"
            );
        }
        assert_eq!(engine.info().max_drafts, depth.min(15));
        assert_eq!(engine.stats().speculation.drafted.len(), depth.min(15));
    }
    // The same by request, on one engine, whose drafter must keep up with all of them.
    let engine = start(options(dflash(15)));
    for depth in [0, 1, 7, 15] {
        for (request, expected) in requests.iter().zip(&expected) {
            let mut request = request.clone();
            request.speculate.max_drafts = depth;
            let outcome = run(&engine, request);
            assert_eq!(outcome.tokens, *expected, "depth {depth}");
            assert!(outcome.updates.iter().all(|update| update.drafted <= depth));
        }
    }
}

#[test]
fn text_does_not_depend_on_the_prefill_chunk() {
    let prompts = prompts(25);
    for speculation in [Speculation::none(), dflash(15)] {
        let texts = |prefill_chunk| {
            let options = EngineOptions {
                prefill_chunk,
                ..options(speculation)
            };
            greedy_texts(&start(options), &prompts)
        };
        let whole = texts(usize::MAX);
        for chunk in [1, 7, 64] {
            assert_same(
                &prompts,
                &whole,
                &texts(chunk),
                &format!("chunks of {chunk}"),
            );
        }
    }
}

#[test]
fn two_ranks_say_what_one_says() {
    let prompts = prompts(12);
    for speculation in [Speculation::none(), dflash(15)] {
        let two = start(EngineOptions {
            ranks: 2,
            ..options(speculation)
        });
        let one = start(options(speculation));
        let texts = [&one, &two].map(|engine| greedy_texts(engine, &prompts));
        assert_same(&prompts, &texts[0], &texts[1], "two ranks");
        for seed in 0..6 {
            let request = sampled(prompt(seed, 9), 30, FLAT, seed);
            let a = run(&one, request.clone());
            assert_eq!(a.tokens, run(&two, request).tokens, "seed {seed}");
        }
    }
}

#[test]
fn text_does_not_depend_on_company() {
    let alone = start(options(dflash(15)));
    let together = start(EngineOptions {
        max_running: 4,
        prefill_chunk: 16,
        ..options(dflash(15))
    });
    let requests: Vec<_> = (0..16)
        .map(|seed| {
            let len = 1 + 13 * seed as usize % 70;
            let mut request = sampled(prompt(seed, len), 10 + 3 * len % 40, FLAT, seed);
            request.speculate.max_drafts = [15, 0, 3][seed as usize % 3];
            request
        })
        .collect();
    let running: Vec<_> = requests
        .iter()
        .map(|r| together.submit(r.clone()).unwrap())
        .collect();
    for (request, running) in requests.into_iter().zip(running) {
        assert_eq!(run(&alone, request).tokens, common::wait(&running).tokens);
    }
}

#[test]
fn the_residual_rule_repeats_itself_and_is_greedy_at_temperature_zero() {
    let residual = |max_drafts| Speculation {
        rule: Rule::Residual,
        ..Speculation::dflash(max_drafts)
    };
    let engine = start(options(residual(15)));
    for seed in 0..5 {
        let request = sampled(prompt(seed, 12), 30, FLAT, seed);
        let first = run(&engine, request.clone());
        assert_eq!(first.tokens, run(&engine, request).tokens);
        assert!(first.terminal.usage.accepted_tokens > 0, "seed {seed}");
    }
    let prompts = prompts(10);
    let plain = greedy_texts(&start(by_host()), &prompts);
    assert_same(
        &prompts,
        &plain,
        &greedy_texts(&engine, &prompts),
        "residual rule",
    );
}
