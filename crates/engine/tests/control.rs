//! Constraints, thoughts under a budget, runaway repetition and logprobs: whatever the depth of
//! speculation, the same text.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;
#[path = "../../constrain/tests/common/mod.rs"]
mod schemas;

use std::sync::Arc;

use common::{FLAT, Outcome, dflash, greedy, options, prompt, run, sampled, start};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use volley_constrain::{CompileLimits, Compiler, Constraint, Rule, TokenText, Vocabulary};
use volley_engine::{
    ClosedBy, EngineHandle, EngineOptions, RepetitionRule, Request, Speculation, Stop, Thinking,
};

/// Ends the output; the tiny pair has 512 ids.
const END: u32 = 511;
const CLOSE: u32 = 510;
const PIECES: &[&str] = &[
    "{\"", "\": ", "\", \"", "\"}", "[", "]", ", ", "null", "true", "false", "\n", "abc", "ab",
];

/// All bytes, and some pieces of JSON.
fn texts() -> Vec<TokenText> {
    let mut texts: Vec<TokenText> = (0..=255).map(|byte| TokenText::Bytes(vec![byte])).collect();
    texts.extend(
        PIECES
            .iter()
            .map(|piece| TokenText::Bytes(piece.bytes().collect())),
    );
    texts.resize(CLOSE as usize, TokenText::Unused);
    texts.push(TokenText::Markup("</think>".into()));
    texts.push(TokenText::Markup("<|im_end|>".into()));
    texts
}

/// The longest token that fits, again and again.
fn encode(text: &str) -> Vec<u32> {
    let mut rest = text.as_bytes();
    let mut ids = Vec::new();
    while let Some(&byte) = rest.first() {
        let fits = (256..)
            .zip(PIECES)
            .filter(|(_, piece)| rest.starts_with(piece.as_bytes()));
        let longest = fits.max_by_key(|(_, piece)| piece.len());
        let (id, len) = longest.map_or((u32::from(byte), 1), |(id, piece)| (id, piece.len()));
        ids.push(id);
        rest = &rest[len..];
    }
    ids
}

fn decode(ids: &[u32]) -> String {
    let texts = texts();
    let mut bytes = Vec::new();
    for id in ids {
        if let TokenText::Bytes(more) = &texts[*id as usize] {
            bytes.extend(more);
        }
    }
    String::from_utf8(bytes).unwrap()
}

fn compiler() -> Compiler {
    let vocabulary = Vocabulary::new(&texts(), &[END], Arc::new(encode)).unwrap();
    Compiler::new(vocabulary, CompileLimits::default())
}

fn compile(compiler: &Compiler, schema: &Value) -> Constraint {
    let rule = Rule::JsonSchema {
        schema: schema.clone(),
        strict: true,
    };
    compiler.compile(&rule).unwrap()
}

fn random_schema(seed: u64) -> Value {
    schemas::schema(&mut ChaCha8Rng::seed_from_u64(seed))
}

/// A request held to a constraint.
fn held(mut request: Request, constraint: &Constraint) -> Request {
    request.stop_ids = vec![END];
    request.control.constraint = Some(constraint.clone());
    request
}

/// Engines of several depths of speculation, and one of two ranks.
fn engines() -> Vec<(&'static str, EngineHandle)> {
    let two_ranks = EngineOptions {
        ranks: 2,
        ..options(dflash(15))
    };
    vec![
        ("none", start(options(Speculation::none()))),
        ("1", start(options(dflash(1)))),
        ("4", start(options(dflash(4)))),
        ("15", start(options(dflash(15)))),
        ("two ranks", start(two_ranks)),
    ]
}

fn same_everywhere(engines: &[(&str, EngineHandle)], request: &Request) -> Outcome {
    let outcomes: Vec<Outcome> = engines
        .iter()
        .map(|(_, engine)| run(engine, request.clone()))
        .collect();
    for ((name, _), outcome) in engines.iter().zip(&outcomes) {
        assert_eq!(outcome.tokens, outcomes[0].tokens, "{name}");
        assert_eq!(outcome.terminal.stop, outcomes[0].terminal.stop, "{name}");
        let closed = |outcome: &Outcome| -> Vec<ClosedBy> {
            outcome
                .updates
                .iter()
                .filter_map(|update| update.closed_by)
                .collect()
        };
        assert_eq!(closed(outcome), closed(&outcomes[0]), "{name}");
    }
    outcomes.into_iter().next_back().unwrap()
}

#[test]
fn a_constrained_text_is_the_same_at_every_depth() {
    let (engines, compiler) = (engines(), compiler());
    let mut accepted = 0;
    for seed in 0..6 {
        let constraint = compile(&compiler, &random_schema(seed));
        for request in [
            greedy(prompt(seed, 12), 60),
            sampled(prompt(seed, 12), 60, FLAT, seed),
        ] {
            let outcome = same_everywhere(&engines, &held(request, &constraint));
            accepted += outcome.terminal.usage.accepted_tokens;
        }
    }
    assert!(accepted > 50, "{accepted} drafts were accepted");
}

/// Texts of many schemas, as they come out with drafts of 15; those that end are valid.
fn outputs_validate(seeds: std::ops::Range<u64>) {
    let (engine, compiler) = (start(options(dflash(15))), compiler());
    let (count, mut ended) = (seeds.end - seeds.start, 0);
    let (mut drafted, mut accepted) = (0, 0);
    for seed in seeds {
        let schema = random_schema(seed);
        let constraint = compile(&compiler, &schema);
        let request = held(sampled(prompt(seed, 8), 400, FLAT, seed), &constraint);
        let outcome = run(&engine, request);
        drafted += outcome.terminal.usage.drafted_tokens;
        accepted += outcome.terminal.usage.accepted_tokens;
        match outcome.terminal.stop {
            Stop::Token(END) => {
                let text = decode(&outcome.tokens);
                schemas::validate(&schema, &text)
                    .unwrap_or_else(|error| panic!("{seed}: {error}\n{text}\n{schema}"));
                ended += 1;
            }
            Stop::Length => {}
            other => panic!("{seed}: {other:?}\n{schema}"),
        }
    }
    eprintln!("{ended} of {count} texts ended; {accepted} of {drafted} drafts accepted");
    assert!(ended * 10 >= count * 9, "{ended} of {count} texts ended");
    assert!(accepted > 0);
}

#[test]
fn texts_of_random_schemas_validate() {
    outputs_validate(0..20);
}

#[test]
#[ignore = "minutes; the subset above runs always"]
fn texts_of_a_thousand_random_schemas_validate() {
    outputs_validate(0..1000);
}

fn thinking(budget: Option<usize>) -> Thinking {
    Thinking {
        close_id: CLOSE,
        budget,
        closing: vec![10, CLOSE, 10, 10],
        opening: vec![10, 10],
    }
}

#[test]
fn a_budget_closes_the_thoughts_and_the_constraint_wakes_behind_them() {
    let (engines, compiler) = (engines(), compiler());
    let schema = json!({"type": "object", "properties": {"answer": {"type": "boolean"}},
        "required": ["answer"], "additionalProperties": false});
    let constraint = compile(&compiler, &schema);
    for budget in [1, 2, 15, 16, 17, 40] {
        let mut request = sampled(prompt(budget as u64, 8), 120, FLAT, 3);
        // The model itself does not close them.
        request.sampling.logit_bias.insert(CLOSE, -100.0);
        request.control.thinking = Some(thinking(Some(budget)));
        // Nor does it end.
        request.stop_ids = vec![END];
        request.min_tokens = request.max_tokens;
        let free = same_everywhere(&engines, &request);
        assert_eq!(free.tokens[budget..budget + 4], [10, CLOSE, 10, 10]);
        assert!(!free.tokens[budget + 4..].contains(&CLOSE));
        let closed: Vec<_> = free.updates.iter().filter_map(|u| u.closed_by).collect();
        assert_eq!(closed, [ClosedBy::Budget]);
        let forced = free.updates.iter().map(|update| update.forced.len());
        assert_eq!(forced.sum::<usize>(), 4);

        let held = same_everywhere(&engines, &held(request, &constraint));
        assert_eq!(held.tokens[..budget + 4], free.tokens[..budget + 4]);
        assert_eq!(held.terminal.stop, Stop::Token(END));
        let answer = decode(&held.tokens[budget + 4..]);
        schemas::validate(&schema, &answer).unwrap();
    }
}

#[test]
fn thoughts_that_end_by_themselves_are_closed_once() {
    let (engines, compiler) = (engines(), compiler());
    let constraint = compile(&compiler, &json!({"const": "yes"}));
    let mut at = Vec::new();
    for seed in 0..6 {
        let mut request = sampled(prompt(seed, 8), 200, FLAT, seed);
        // Often, but not at once.
        request.sampling.logit_bias.insert(CLOSE, 100.0);
        request.control.thinking = Some(thinking(Some(150)));
        let outcome = same_everywhere(&engines, &held(request, &constraint));
        let close = outcome.tokens.iter().position(|id| *id == CLOSE).unwrap();
        let closed: Vec<_> = outcome.updates.iter().filter_map(|u| u.closed_by).collect();
        if closed == [ClosedBy::Model] {
            let opening = &outcome.tokens[close + 1..close + 3];
            assert_eq!(opening, [10, 10]);
            assert_eq!(decode(&outcome.tokens[close + 3..]), "\"yes\"");
            at.push(close);
        }
    }
    assert!(at.iter().any(|close| *close > 0), "closed at {at:?}");
}

#[test]
fn an_output_under_a_constraint_does_not_end_in_its_thoughts() {
    let (engines, compiler) = (engines(), compiler());
    let constraint = compile(&compiler, &json!({"const": 1}));
    let mut request = sampled(prompt(1, 8), 60, FLAT, 1);
    request.sampling.logit_bias.insert(END, 100.0);
    request.control.thinking = Some(thinking(Some(20)));
    let held = held(request, &constraint);
    let outcome = same_everywhere(&engines, &held);
    let close = outcome.tokens.iter().position(|id| *id == CLOSE).unwrap();
    assert!(!outcome.tokens[..close].contains(&END));
    assert_eq!(outcome.tokens.last(), Some(&END));
}

#[test]
fn stop_ids_are_not_sampled_before_min_tokens() {
    let engines = engines();
    for min_tokens in [0, 1, 7, 16, 30] {
        let mut request = greedy(prompt(9, 8), 60);
        request.sampling.logit_bias.insert(END, 100.0);
        request.stop_ids = vec![END];
        request.min_tokens = min_tokens;
        let outcome = same_everywhere(&engines, &request);
        let end = outcome.tokens.iter().position(|id| *id == END);
        assert_eq!(end, Some(min_tokens));
        assert_eq!(outcome.terminal.stop, Stop::Token(END));
    }
}

#[test]
fn runaway_repetition_ends_answers_and_closes_thoughts() {
    let engines = engines();
    let mut request = greedy(prompt(4, 8), 300);
    request.sampling.logit_bias.insert(7, 100.0);
    let mut whole = request.clone();
    whole.max_tokens = 100;
    assert_eq!(
        same_everywhere(&engines, &whole).terminal.stop,
        Stop::Length
    );

    request.control.repetition = Some(RepetitionRule {
        max_period: 8,
        min_repeats: 4,
        min_tokens: 70,
    });
    let outcome = same_everywhere(&engines, &request);
    assert_eq!(outcome.terminal.stop, Stop::Repetition);
    assert_eq!(outcome.tokens, vec![7; 96]);

    request.control.thinking = Some(thinking(None));
    let outcome = same_everywhere(&engines, &request);
    assert_eq!(outcome.tokens[..96], [7; 96]);
    assert_eq!(outcome.tokens[96..100], [10, CLOSE, 10, 10]);
    let closed: Vec<_> = outcome.updates.iter().filter_map(|u| u.closed_by).collect();
    assert_eq!(closed, [ClosedBy::Repetition]);
    assert_eq!(outcome.terminal.stop, Stop::Repetition);
}

#[test]
fn a_script_is_the_output_whatever_the_model_would_say() {
    let script: Vec<u32> = (0..70).map(|n| n * 37 % 500).chain([END]).collect();
    for request in [
        greedy(prompt(3, 8), 200),
        sampled(prompt(3, 8), 200, FLAT, 1),
    ] {
        let mut request = request;
        request.stop_ids = vec![END];
        request.control.script = script.clone().into();
        let outcome = same_everywhere(&engines(), &request);
        assert_eq!(outcome.tokens, script);
        assert_eq!(outcome.terminal.stop, Stop::Token(END));
        // Its tokens are free drafts: 16 a step.
        let outcome = run(&start(options(dflash(15))), request.clone());
        assert!(outcome.updates.len() <= 6, "{}", outcome.updates.len());

        request.max_tokens = 30;
        let outcome = run(&start(options(dflash(15))), request.clone());
        assert_eq!(outcome.tokens, script[..30]);
        assert_eq!(outcome.terminal.stop, Stop::Length);

        // Behind its end the model goes on by itself.
        request.control.script = script[..20].into();
        let outcome = run(&start(options(dflash(15))), request);
        assert_eq!(outcome.tokens[..20], script[..20]);
        assert_eq!(outcome.tokens.len(), 30);
    }
}

#[test]
fn logprobs_are_the_targets_own_at_every_depth() {
    let engines = engines();
    for request in [
        greedy(prompt(11, 8), 40),
        sampled(prompt(11, 8), 40, FLAT, 6),
    ] {
        let mut request = request;
        request.sampling.logit_bias.insert(3, 2.0);
        request.control.logprobs = Some(4);
        let mut all = Vec::new();
        for (name, engine) in &engines {
            let outcome = run(engine, request.clone());
            let logprobs: Vec<_> = outcome
                .updates
                .iter()
                .flat_map(|u| u.logprobs.clone())
                .collect();
            assert_eq!(logprobs.len(), outcome.tokens.len(), "{name}");
            for (token, logprob) in outcome.tokens.iter().zip(&logprobs) {
                assert_eq!(logprob.top.len(), 4);
                assert!(logprob.top.is_sorted_by(|a, b| a.1 >= b.1));
                assert!(logprob.logprob <= logprob.top[0].1);
                let of_token = logprob.top.iter().find(|(id, _)| id == token);
                assert!(of_token.is_none_or(|(_, top)| *top == logprob.logprob));
            }
            all.push((outcome.tokens, logprobs));
        }
        for (tokens, logprobs) in &all {
            assert_eq!(tokens, &all[0].0);
            for (one, other) in logprobs.iter().zip(&all[0].1) {
                assert!((one.logprob - other.logprob).abs() < 1e-3);
            }
        }
    }
    let plain = run(&engines[3].1, greedy(prompt(11, 8), 10));
    assert!(
        plain
            .updates
            .iter()
            .all(|update| update.logprobs.is_empty())
    );
}

#[test]
fn control_of_one_request_is_not_that_of_another() {
    let (engine, compiler) = (start(options(dflash(15))), compiler());
    let plain = greedy(prompt(2, 8), 40);
    let before = run(&engine, plain.clone());
    let constraint = compile(&compiler, &json!({"type": "object"}));
    let receivers: Vec<_> = (0..3)
        .map(|seed| held(sampled(prompt(seed, 8), 50, FLAT, seed), &constraint))
        .map(|request| engine.submit(request).unwrap())
        .collect();
    assert_eq!(run(&engine, plain.clone()).tokens, before.tokens);
    for receiver in &receivers {
        let first = common::wait(receiver).tokens[0];
        assert!(decode(&[first]).starts_with('{'));
    }
    assert_eq!(run(&engine, plain).tokens, before.tokens);
}
