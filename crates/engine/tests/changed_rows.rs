//! Tokens behind rows that penalties, bias, a grammar or tokens that must not come yet change: the device
//! draws what the host would, and the host reads no row.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::sync::Arc;

use common::faulty::{Fault, FaultyOps, Switch};
use common::{
    FLAT, Outcome, by, dflash, every_method, options, prompt, run, sampled, sources, start,
};
use volley_constrain::{CompileLimits, Compiler, Constraint, Rule, TokenText, Vocabulary};
use volley_engine::{Engine, EngineHandle, EngineOptions, Request, Speculation};
use volley_model::{Limits, Target};
use volley_ops::{Batch, Ops, Segment, TOP_WIDTH};
use volley_ops_candle::CandleOps;
use volley_speculate::{Allowed, History, Method, WholeRows, constrained, logprob_of, sample};

/// Ids of the tiny pair.
const VOCAB: usize = 512;
/// Ends the output under a grammar.
const END: u32 = 511;
const TOKENS: usize = 18;

/// Lower-case letters, in threes.
fn grammar() -> Constraint {
    let mut texts: Vec<TokenText> = (0..=255).map(|byte| TokenText::Bytes(vec![byte])).collect();
    texts.extend((0..150u8).map(|i| TokenText::Bytes(vec![b'a' + i % 26, b'a' + i / 26])));
    texts.resize(END as usize, TokenText::Unused);
    texts.push(TokenText::Markup("<|im_end|>".into()));
    let bytes = |text: &str| text.bytes().map(u32::from).collect();
    let vocabulary = Vocabulary::new(&texts, &[END], Arc::new(bytes)).unwrap();
    let compiler = Compiler::new(vocabulary, CompileLimits::default());
    let rule = Rule::Regex("([a-m]{3} ){20}".to_string());
    compiler.compile(&rule).unwrap()
}

/// Requests of every kind of change, alone and together, greedy, warm and nearly flat.
fn requests() -> Vec<(&'static str, Request)> {
    let grammar = grammar();
    let request = |seed, temperature, change: &dyn Fn(&mut Request)| {
        let mut request = sampled(prompt(seed, 30), TOKENS, temperature, 100 + seed);
        request.control.logprobs = Some(2);
        change(&mut request);
        request
    };
    let held = |request: &mut Request| {
        request.stop_ids = vec![END];
        request.control.constraint = Some(grammar.clone());
    };
    let penalised = |request: &mut Request| {
        request.sampling.presence_penalty = 1.5 * request.sampling.temperature.max(1.0);
        request.sampling.repetition_penalty = 1.3;
        request.sampling.frequency_penalty = 0.5;
    };
    let biased = |request: &mut Request| {
        let scale = request.sampling.temperature.max(1.0);
        request.sampling.logit_bias = (0..40).map(|id| (7 * id, scale)).collect();
        request.sampling.logit_bias.insert(3, -100.0);
    };
    vec![
        ("nothing", request(0, FLAT, &|_| ())),
        (
            "presence",
            request(1, FLAT, &|r| r.sampling.presence_penalty = 60.0),
        ),
        ("penalties, warm", request(2, 1.0, &penalised)),
        ("penalties, greedy", request(3, 0.0, &penalised)),
        (
            "repetition that raises",
            request(4, FLAT, &|r| r.sampling.repetition_penalty = 0.5),
        ),
        (
            "presence that raises",
            request(5, FLAT, &|r| r.sampling.presence_penalty = -60.0),
        ),
        ("bias", request(6, FLAT, &biased)),
        ("bias, greedy", request(7, 0.0, &biased)),
        ("grammar", request(8, FLAT, &held)),
        ("grammar, warm", request(9, 1.0, &held)),
        ("grammar, greedy", request(10, 0.0, &held)),
        (
            "all of it",
            request(11, FLAT, &|r| {
                penalised(r);
                biased(r);
                held(r);
            }),
        ),
        (
            "tokens that must not come yet",
            request(12, FLAT, &|r| {
                r.stop_ids = (0..400).collect();
                r.min_tokens = 10;
            }),
        ),
        (
            "filters",
            request(13, FLAT, &|r| {
                penalised(r);
                r.sampling.top_k = 100;
                r.sampling.top_p = 0.7;
            }),
        ),
    ]
}

/// What the host chooses from whole rows, and the logprobs.
fn by_host(request: &Request) -> (Vec<u32>, Vec<f32>) {
    let ops = CandleOps::single(candle_core::Device::Cpu);
    let most = request.prompt.len() + request.max_tokens;
    let blocks = most.div_ceil(ops.block_size());
    let limits = Limits {
        max_rows: most,
        verify_rows: 1,
        slots: 1,
        blocks,
    };
    let mut target = Target::load(&ops, &sources().target, &[], limits).unwrap();
    let mut matcher = request.control.constraint.as_ref().map(|c| c.matcher());
    let mut history = History::new(&request.prompt);
    let mut logprobs = Vec::new();
    let (mut ids, mut past) = (request.prompt.clone(), 0);
    while history.output().len() < request.max_tokens {
        let batch = Batch {
            segments: vec![Segment {
                rows: 0..ids.len(),
                slot: 0,
                past,
                blocks: (0..blocks as u32).collect(),
                parents: None,
            }],
        };
        target.prefill(&ops, &ids, &batch).unwrap();
        past += ids.len();
        let logits = target.logits(&ops, &[ids.len() as u32 - 1]).unwrap();
        let output = history.output();
        let next = match &mut matcher {
            Some(matcher) => Allowed::Mask(matcher.mask().unwrap()),
            None if output.len() < request.min_tokens => Allowed::Except(request.stop_ids.clone()),
            None => Allowed::All,
        };
        let params = &request.sampling;
        let chosen = constrained(&logits, params, &history, VOCAB, &next).unwrap();
        let token = sample(&chosen, params.seed, past).unwrap();
        let rows = &mut WholeRows::new(&logits, VOCAB);
        logprobs.push(logprob_of(rows, 0, VOCAB, token, 0).unwrap().logprob);
        if let Some(matcher) = &mut matcher {
            matcher.take(token).unwrap();
        }
        history.push(token);
        ids = vec![token];
        if request.stop_ids.contains(&token) {
            break;
        }
    }
    (history.output().to_vec(), logprobs)
}

fn logprobs(outcome: &Outcome) -> Vec<f32> {
    let updates = outcome.updates.iter();
    let all = updates.flat_map(|update| update.logprobs.iter().map(|l| l.logprob));
    all.collect()
}

fn assert_as_by_host(engine: &EngineHandle, methods: &[Method], what: &str) {
    for (kind, request) in requests() {
        let (tokens, expected) = by_host(&request);
        for &method in methods {
            let mut request = request.clone();
            request.speculate = by(method);
            let outcome = run(engine, request);
            assert_eq!(outcome.tokens, tokens, "{kind}, {}, {what}", method.name());
            for (one, other) in logprobs(&outcome).iter().zip(&expected) {
                assert!((one - other).abs() < 1e-4, "{kind}: {one} and {other}");
            }
        }
    }
}

const METHODS: [Method; 5] = [
    Method::None,
    Method::Dflash,
    Method::Ddtree,
    Method::Mtp,
    Method::Ngram,
];

/// An engine whose waits and reads are counted.
fn counted(speculation: Speculation) -> (EngineHandle, Switch) {
    let switch = Switch::new(Fault::Error);
    let ops = FaultyOps {
        inner: CandleOps::single(candle_core::Device::Cpu).ahead(),
        switch: switch.clone(),
    };
    let engine = Engine::start_on(vec![ops], options(speculation), sources()).unwrap();
    (engine, switch)
}

#[test]
fn the_device_draws_what_the_host_would_and_no_row_is_read() {
    let (engine, switch) = counted(every_method());
    assert_as_by_host(&engine, &METHODS, "one rank");
    assert!(switch.widest() <= TOP_WIDTH, "{} wide", switch.widest());
    let accepted = engine.stats().speculation.accepted.iter().sum::<u64>();
    assert!(accepted > 100, "{accepted}");
}

#[test]
fn two_ranks_draw_what_the_host_would() {
    let engine = start(EngineOptions {
        ranks: 2,
        ..options(every_method())
    });
    assert_as_by_host(&engine, &METHODS[..3], "two ranks");
}

/// Beside the wait for the drafts, which penalties have to know, a step waits once.
#[test]
fn penalised_steps_do_not_wait_for_every_row() {
    let (engine, switch) = counted(dflash(15));
    let (_, request) = requests().swap_remove(1);
    let before = switch.waits();
    let outcome = run(&engine, request);
    let waits = switch.waits() - before;
    let steps = outcome.terminal.usage.steps;
    // A draft that repeats another of its block is asked for again, by itself.
    let most = 1 + 3 * steps;
    assert!(waits <= most, "{waits} waits in {steps} steps");
}

/// The residual rule knows a row that its candidates do not decide by the token that was drawn.
#[test]
fn the_residual_rule_reads_no_row() {
    let (engine, switch) = counted(Speculation {
        rule: volley_speculate::Rule::Residual,
        ..dflash(15)
    });
    for (kind, request) in requests() {
        let first = run(&engine, request.clone());
        assert_eq!(first.tokens, run(&engine, request.clone()).tokens, "{kind}");
        if request.sampling.temperature == 0.0 {
            assert_eq!(first.tokens, by_host(&request).0, "{kind}");
        }
    }
    assert!(switch.widest() <= TOP_WIDTH, "{} wide", switch.widest());
    assert!(engine.stats().speculation.accepted[0] > 0);
}

/// A grammar that leaves no token of the vocabulary, and a bias beyond all numbers, end the request only.
#[test]
fn what_leaves_no_token_is_an_error_of_the_request() {
    let engine = start(options(dflash(15)));
    let mut request = sampled(prompt(1, 20), 8, FLAT, 3);
    request.stop_ids = (0..VOCAB as u32).collect();
    request.min_tokens = 4;
    let ended = format!("{:?}", run(&engine, request).terminal);
    assert!(ended.contains("none of 512 allowed tokens"), "{ended}");
    let mut request = sampled(prompt(1, 20), 8, FLAT, 3);
    request.sampling.repetition_penalty = 1e-44;
    let ended = format!("{:?}", run(&engine, request).terminal);
    assert!(ended.contains("is inf"), "{ended}");
    let plain = sampled(prompt(1, 20), 8, FLAT, 3);
    assert_eq!(run(&engine, plain).tokens.len(), 8);
}
