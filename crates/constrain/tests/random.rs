//! Random outputs under random rules: whatever ends keeps to its rule.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::{Demo, ids, schema, validate};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use volley_constrain::{CompileLimits, Compiler, Matcher, Rule, TokenText};

/// Most tokens of an output.
const MOST: usize = 600;

/// A random output that ends; None if it does not come to an end.
fn output(demo: &Demo, matcher: &mut Matcher, rng: &mut StdRng) -> Option<Vec<u32>> {
    let mut output = Vec::new();
    while output.len() < MOST {
        let allowed = ids(&matcher.mask().unwrap());
        let closes = |id: &&u32| match &demo.tokens[**id as usize] {
            TokenText::Bytes(bytes) => matches!(bytes[0], b'"' | b'}' | b']' | b','),
            _ => demo.end_ids.contains(id),
        };
        let closing: Vec<&u32> = allowed.iter().filter(closes).collect();
        let token = match closing.choose(rng) {
            Some(token) if rng.random_bool(0.5) => **token,
            _ => *allowed.choose(rng).unwrap(),
        };
        output.push(token);
        if demo.end_ids.contains(&token) {
            return Some(output);
        }
        assert_eq!(matcher.count_valid(&[token]).unwrap(), 1);
        matcher.take(token).unwrap();
    }
    None
}

fn outputs_validate(seeds: std::ops::Range<u64>) {
    let demo = Demo::new();
    let compiler = Compiler::new(demo.vocabulary(), CompileLimits::default());
    let (mut ended, count) = (0, seeds.end - seeds.start);
    for seed in seeds {
        let mut rng = StdRng::seed_from_u64(seed);
        let schema = schema(&mut rng);
        let strict = true;
        let rule = Rule::JsonSchema {
            schema: schema.clone(),
            strict,
        };
        let constraint = compiler.compile(&rule);
        let constraint = constraint.unwrap_or_else(|error| panic!("{seed}: {error}: {schema}"));
        let mut matcher = constraint.matcher();
        let Some(output) = output(&demo, &mut matcher, &mut rng) else {
            continue;
        };
        let text = demo.text(&output);
        validate(&schema, &text)
            .unwrap_or_else(|error| panic!("{seed}: {error}\n{text}\n{schema}"));
        ended += 1;
    }
    eprintln!("{ended} of {count} outputs ended and are valid");
    assert!(ended * 10 >= count * 9, "{ended} of {count} outputs ended");
}

#[test]
fn random_outputs_of_random_schemas_validate() {
    outputs_validate(0..60);
}

#[test]
#[ignore = "a minute; the subset above runs always"]
fn random_outputs_of_a_thousand_random_schemas_validate() {
    outputs_validate(0..1000);
}
