//! Every way to draft gives the text of none.
#![allow(missing_docs)]

mod common;

use common::{
    FLAT, by, by_host, every_method, greedy, options, prompt, run, sampled, sources, start,
};
use volley_engine::{EngineError, EngineOptions, Request, SpeculateOptions, Speculation};
use volley_speculate::{Method, TreeOrder};

const DRAFTING: [Method; 5] = [
    Method::Ngram,
    Method::Mtp,
    Method::Dflash,
    Method::Ddtree,
    Method::Auto,
];

/// A prompt that repeats itself, so that lookup has something to find.
fn repeating(seed: u64, len: usize) -> Vec<u32> {
    prompt(seed, 1 + len / 3)
        .into_iter()
        .cycle()
        .take(len)
        .collect()
}

fn requests() -> Vec<Request> {
    let mut requests = Vec::new();
    for seed in 0..8 {
        let prompt = repeating(seed, 2 + 11 * seed as usize);
        requests.push(greedy(prompt.clone(), 30));
        let mut request = sampled(prompt, 40, [FLAT, 0.8][seed as usize % 2], seed);
        if seed % 3 == 0 {
            request.sampling.top_k = 200;
            request.sampling.repetition_penalty = 1.1;
        }
        requests.push(request);
    }
    requests.push(one_word(60));
    requests
}

/// A request whose answer is one token over and over.
fn one_word(max_tokens: usize) -> Request {
    let mut request = greedy(prompt(3, 20), max_tokens);
    request.sampling.logit_bias.insert(7, 1e3);
    request
}

fn assert_same(request: &Request, a: &[u32], b: &[u32], what: &str) {
    if request.sampling.temperature == 0.0 {
        common::assert_same_text(&sources().target, &request.prompt, a, b, what);
    } else {
        assert_eq!(a, b, "{what}, seed {}", request.sampling.seed);
    }
}

#[test]
fn every_method_gives_the_text_of_none() {
    let engine = start(options(every_method()));
    assert_eq!(engine.info().methods, Method::ALL);
    let mut accepted = [0; DRAFTING.len()];
    for request in requests() {
        let mut plain = request.clone();
        plain.speculate = by(Method::None);
        let plain = run(&engine, plain);
        assert_eq!(plain.terminal.usage.drafted_tokens, 0);
        for (method, accepted) in DRAFTING.into_iter().zip(&mut accepted) {
            let mut request = request.clone();
            request.speculate = by(method);
            let outcome = run(&engine, request.clone());
            assert_same(&request, &outcome.tokens, &plain.tokens, method.name());
            *accepted += outcome.terminal.usage.accepted_tokens;
        }
    }
    // The test means little unless drafts of every method were accepted.
    eprintln!("accepted {accepted:?} by {DRAFTING:?}");
    assert!(accepted.iter().all(|&n| n > 15), "{accepted:?}");
}

/// A tree keeps what its chain would, so no budget takes more steps than the chain. At a
/// temperature that is so where both look at the noise.
#[test]
fn trees_of_every_budget_give_the_text_of_none_in_no_more_steps_than_chains() {
    let plain = start(by_host());
    for seeded in [true, false] {
        let engine = start(options(Speculation {
            seeded,
            tree_order: TreeOrder::Perturbed,
            ..every_method()
        }));
        for request in requests() {
            let expected = run(&plain, request.clone()).tokens;
            let of = |method, tree_budget| {
                let mut request = request.clone();
                request.speculate = SpeculateOptions {
                    tree_budget,
                    ..by(method)
                };
                let outcome = run(&engine, request.clone());
                let what = format!("{method}, budget {tree_budget}");
                assert_same(&request, &outcome.tokens, &expected, &what);
                outcome.terminal.usage
            };
            let chain = of(Method::Dflash, 0);
            for budget in [1, 4, 15, 22, 63] {
                let tree = of(Method::Ddtree, budget);
                if seeded && budget >= 15 {
                    assert!(tree.steps <= chain.steps, "{tree:?} {chain:?}");
                }
            }
        }
    }
}

#[test]
fn chains_of_the_head_of_every_depth_give_the_text_of_none() {
    let plain = start(by_host());
    for depth in 1..=7 {
        let engine = start(options(Speculation {
            max_drafts: depth,
            ..Speculation::of(Method::Mtp)
        }));
        assert_eq!(engine.info().max_drafts, depth);
        for request in requests().into_iter().step_by(3) {
            let expected = run(&plain, request.clone()).tokens;
            let outcome = run(&engine, request.clone());
            assert_same(
                &request,
                &outcome.tokens,
                &expected,
                &format!("depth {depth}"),
            );
            let drafted = outcome.updates.iter().map(|update| update.drafted).max();
            assert_eq!(drafted, Some(depth));
        }
    }
}

/// One rank or two, alone or in company of all methods, short chunks: the same text.
#[test]
fn methods_side_by_side_give_what_they_give_alone() {
    let plain = start(by_host());
    let requests = requests();
    let expected: Vec<_> = requests
        .iter()
        .map(|request| run(&plain, request.clone()).tokens)
        .collect();
    for ranks in [1, 2] {
        let engine = start(EngineOptions {
            ranks,
            max_running: 5,
            prefill_chunk: 16,
            ..options(every_method())
        });
        let running: Vec<_> = (0..)
            .zip(&requests)
            .map(|(index, request)| {
                let mut request = request.clone();
                request.speculate = by(DRAFTING[index % DRAFTING.len()]);
                engine.submit(request).expect("a good request")
            })
            .collect();
        for ((request, running), expected) in requests.iter().zip(running).zip(&expected) {
            let tokens = common::wait(&running).tokens;
            assert_same(request, &tokens, expected, &format!("{ranks} ranks"));
        }
    }
}

#[test]
fn lookup_copies_what_repeats() {
    let engine = start(options(Speculation::of(Method::Ngram)));
    let outcome = run(&engine, one_word(200));
    assert_eq!(outcome.tokens, [7; 200]);
    let usage = outcome.terminal.usage;
    assert!(usage.steps < 25, "{usage:?}");
    // Whole chains were accepted.
    assert_eq!(usage.speculation.accepted.len(), 15);
    assert!(usage.speculation.accepted[14] > 5, "{usage:?}");
    assert_eq!(usage.speculation.methods.most(), Method::Ngram);
}

#[test]
fn lookup_goes_before_a_model_when_told_to() {
    let plain = start(by_host());
    let engine = start(options(Speculation {
        lookup_min: Some(4),
        ..Speculation::dflash(15)
    }));
    let mut methods = std::collections::BTreeSet::new();
    for request in requests() {
        let expected = run(&plain, request.clone()).tokens;
        let outcome = run(&engine, request.clone());
        assert_same(&request, &outcome.tokens, &expected, "lookup before dflash");
        methods.extend(outcome.updates.iter().map(|update| update.method));
    }
    assert!(methods.contains(&Method::Ngram) && methods.contains(&Method::Dflash));
}

#[test]
fn a_method_that_is_not_there_is_refused() {
    let engine = start(options(Speculation::dflash(15)));
    let mut request = greedy(vec![1, 2, 3], 5);
    request.speculate = by(Method::Mtp);
    match engine.submit(request) {
        Err(error @ EngineError::Method { .. }) => assert_eq!(
            error.to_string(),
            "speculation by mtp is not offered here; there are none, ngram, dflash, auto"
        ),
        other => panic!("{other:?}"),
    }
}
