//! Tokens that the likeliest candidates of a row do not decide: the device draws them from all of the row.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::faulty::{Fault, FaultyOps, Switch};
use common::{
    FLAT, Outcome, by, by_host, every_method, options, prompt, run, sampled, sources, start, wait,
};
use volley_engine::{Engine, EngineHandle, EngineOptions, Request, Speculation};
use volley_ops::TOP_WIDTH;
use volley_ops_candle::CandleOps;
use volley_speculate::Method;

/// Temperature, top_k, top_p, min_p.
const FILTERS: [(f32, usize, f32, f32); 6] = [
    (1.0, 0, 1.0, 0.0),
    (FLAT, 0, 1.0, 0.0),
    (FLAT, 0, 0.9, 0.0),
    (FLAT, 200, 1.0, 0.0),
    (FLAT, 100, 0.7, 0.0),
    (FLAT, 0, 0.95, 0.9),
];

/// The texts as they were when the host chose every token.
const TEXTS: [[u32; 20]; 6] = [
    [
        492, 156, 56, 456, 292, 96, 103, 214, 67, 19, 133, 239, 153, 114, 330, 393, 473, 60, 139,
        35,
    ],
    [
        467, 460, 182, 10, 11, 497, 240, 356, 382, 173, 40, 160, 33, 111, 81, 156, 476, 235, 470,
        119,
    ],
    [
        377, 264, 101, 240, 151, 294, 488, 218, 103, 486, 217, 105, 42, 379, 298, 84, 164, 351,
        418, 225,
    ],
    [
        141, 47, 11, 251, 10, 470, 272, 344, 236, 28, 439, 446, 438, 203, 191, 416, 92, 30, 49, 347,
    ],
    [
        76, 150, 129, 434, 442, 411, 312, 473, 44, 52, 209, 309, 421, 384, 142, 313, 94, 273, 184,
        273,
    ],
    [
        207, 99, 157, 385, 325, 237, 146, 244, 79, 165, 505, 386, 306, 360, 91, 138, 3, 88, 265,
        260,
    ],
];

fn requests() -> Vec<Request> {
    let filtered = |(seed, (temperature, top_k, top_p, min_p))| {
        let mut request = sampled(prompt(seed, 30), 20, temperature, 100 + seed);
        request.sampling.top_k = top_k;
        request.sampling.top_p = top_p;
        request.sampling.min_p = min_p;
        request.control.logprobs = Some(2);
        request
    };
    (0..).zip(FILTERS).map(filtered).collect()
}

/// The same with a bias that changes nothing, as if it could.
fn biased(mut request: Request) -> Request {
    request.sampling.logit_bias = [(0, 0.0)].into();
    request
}

fn logprobs(outcome: &Outcome) -> Vec<f32> {
    let updates = outcome.updates.iter();
    let all = updates.flat_map(|update| update.logprobs.iter().map(|l| l.logprob));
    all.collect()
}

fn assert_texts(engine: &EngineHandle, change: impl Fn(Request) -> Request, what: &str) {
    for (request, text) in requests().into_iter().zip(TEXTS) {
        let sampling = request.sampling.clone();
        let outcome = run(engine, change(request));
        assert_eq!(outcome.tokens, text, "{what}: {sampling:?}");
        assert_eq!(logprobs(&outcome).len(), text.len());
    }
}

#[test]
fn texts_are_as_they_were() {
    let engine = start(by_host());
    assert_texts(&engine, |request| request, "one token per step");
    assert_texts(&engine, biased, "biased by nothing");
}

#[test]
fn texts_do_not_depend_on_drafts() {
    let engine = start(options(every_method()));
    for method in [
        Method::Dflash,
        Method::Ddtree,
        Method::Mtp,
        Method::Ngram,
        Method::Auto,
    ] {
        let drafted = |mut request: Request| {
            request.speculate = by(method);
            request
        };
        assert_texts(&engine, drafted, method.name());
    }
    let accepted = engine.stats().speculation.accepted.iter().sum::<u64>();
    assert!(accepted > 100, "{accepted}");
}

#[test]
fn texts_do_not_depend_on_company_or_ranks() {
    for ranks in [1, 2] {
        let engine = start(EngineOptions {
            max_running: 6,
            ranks,
            ..options(common::dflash(15))
        });
        let mut company = requests();
        // Greedy, penalised and ruled ones among them.
        company[0].sampling.temperature = 0.0;
        company[1].sampling.presence_penalty = 0.5;
        company[2].min_tokens = 5;
        let all = requests().into_iter().chain(company);
        let running: Vec<_> = all.map(|request| engine.submit(request).unwrap()).collect();
        let outcomes: Vec<Outcome> = running.iter().map(wait).collect();
        for (outcome, text) in outcomes.iter().zip(TEXTS) {
            assert_eq!(outcome.tokens, text, "{ranks} ranks");
        }
        assert_eq!(outcomes.len(), 12);
    }
}

/// The host waits for the device once a step, and reads no row.
#[test]
fn a_step_waits_once() {
    let switch = Switch::new(Fault::Error);
    let ops = FaultyOps {
        inner: CandleOps::single(candle_core::Device::Cpu).ahead(),
        switch: switch.clone(),
    };
    let engine = Engine::start_on(vec![ops], options(every_method()), sources()).unwrap();
    for method in [Method::None, Method::Dflash, Method::Mtp] {
        for mut request in requests().into_iter().skip(2) {
            request.speculate = by(method);
            let before = switch.waits();
            let outcome = run(&engine, request.clone());
            let waits = switch.waits() - before;
            assert_eq!(waits, 1 + outcome.terminal.usage.steps, "{}", method.name());
            // Drafts that a bias may heed are seen before they are verified.
            let seen = match method {
                Method::None => 0,
                Method::Dflash => 2,
                // Every pass of the head.
                _ => Speculation::MOST_MTP_DRAFTS,
            };
            let before = switch.waits();
            let outcome = run(&engine, biased(request));
            let waits = switch.waits() - before;
            let most = 1 + (1 + seen) * outcome.terminal.usage.steps;
            assert!(waits <= most, "{} waits, {}", waits, method.name());
        }
    }
    // Trees are grown and verified unseen, greedy and at a temperature, also where tokens are drawn from
    // whole rows of depths that only the device knows.
    for (temperature, top_k) in [(0.0, 0), (FLAT, 64), (FLAT, 0), (1.0, 200)] {
        let mut request = sampled(prompt(3, 30), 40, temperature, 9);
        request.sampling.top_k = top_k;
        request.speculate = by(Method::Ddtree);
        let before = switch.waits();
        let outcome = run(&engine, request.clone());
        let waits = switch.waits() - before;
        assert_eq!(
            waits,
            1 + outcome.terminal.usage.steps,
            "{temperature} {top_k}"
        );
        let biased = run(&engine, biased(request));
        assert_eq!(
            outcome.tokens, biased.tokens,
            "grown, and built by the host"
        );
    }
    assert!(switch.widest() <= TOP_WIDTH, "{} wide", switch.widest());
}

/// Trees that the device grows change no text, whatever their size, beside others, on one rank and on two.
#[test]
fn grown_trees_change_no_text() {
    let request = |seed: u64, temperature| {
        let mut request = sampled(prompt(seed, 30), 30, temperature, seed);
        request.sampling.top_k = [40, 0, 0][seed as usize % 3];
        // Some of whose rows are changed until then.
        request.min_tokens = if seed == 5 { 9 } else { 0 };
        request
    };
    let requests = || (0..6).map(|seed| request(seed, if seed % 2 == 0 { 0.0 } else { FLAT }));
    let alone = start(by_host());
    let texts: Vec<_> = requests().map(|r| run(&alone, r).tokens).collect();
    for (ranks, tree_budget) in [(1, 63), (1, 17), (2, 31)] {
        let engine = start(EngineOptions {
            max_running: 4,
            ranks,
            ..options(Speculation {
                tree_budget,
                ..every_method()
            })
        });
        let methods = [Method::Ddtree, Method::Dflash, Method::Ddtree];
        let drafted = requests().zip(methods.into_iter().cycle());
        let running: Vec<_> = drafted
            .map(|(request, method)| {
                let speculate = by(method);
                engine
                    .submit(Request {
                        speculate,
                        ..request
                    })
                    .unwrap()
            })
            .collect();
        for (i, (running, text)) in running.iter().zip(&texts).enumerate() {
            assert_eq!(
                wait(running).tokens,
                *text,
                "{ranks} ranks, {tree_budget} nodes, text {i}"
            );
        }
    }
}
