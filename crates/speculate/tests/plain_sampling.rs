//! Plain sampling against draws of candle-transformers' sampler, recorded by `oracle/`: its draws
//! and ours follow our probabilities.
#![allow(clippy::unwrap_used)]

mod common;

use common::chi_square_p;
use serde::Deserialize;
use volley_speculate::{History, SamplingParams, distribution, sample};

#[derive(Deserialize)]
struct Record {
    draws: u64,
    logits: Vec<f32>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    params: Params,
    counts: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Params {
    temperature: f32,
    top_k: Option<usize>,
    top_p: Option<f32>,
}

fn record() -> Record {
    serde_json::from_str(include_str!("plain_sampling.json")).unwrap()
}

impl Params {
    fn ours(self) -> SamplingParams {
        let plain = SamplingParams::default();
        SamplingParams {
            temperature: self.temperature,
            top_k: self.top_k.unwrap_or(plain.top_k),
            top_p: self.top_p.unwrap_or(plain.top_p),
            ..plain
        }
    }
}

/// Probability of candle's draws and of as many of ours under our law.
fn compare(record: &Record, counts: &[u64], params: Params) -> (f64, f64) {
    let vocab = record.logits.len();
    let ours = distribution(&record.logits, &params.ours(), &History::default(), vocab).unwrap();
    let law: Vec<f64> = (0..vocab as u32)
        .map(|token| f64::from(ours.probability(token)))
        .collect();
    let mut own = vec![0; vocab];
    for draw in 0..record.draws {
        own[sample(&ours, draw, 3).unwrap() as usize] += 1;
    }
    (chi_square_p(counts, &law), chi_square_p(&own, &law))
}

#[test]
fn candles_draws_and_ours_follow_one_law() {
    let record = record();
    assert_eq!(record.cases.len(), 12);
    for Case { params, counts } in &record.cases {
        assert_eq!(counts.iter().sum::<u64>(), record.draws);
        let (theirs, own) = compare(&record, counts, *params);
        println!("{params:?}: candle p = {theirs:.4}, own p = {own:.4}");
        assert!(theirs > 0.01, "{params:?}: candle's draws: p = {theirs}");
        assert!(own > 0.01, "{params:?}: our draws: p = {own}");
    }
}

/// The comparison has power: another temperature fails it. (The two likeliest tokens alone are too
/// near each other to tell.)
#[test]
fn another_law_is_noticed() {
    let record = record();
    let telling = |case: &&Case| case.params.top_k != Some(2);
    for Case { params, counts } in record.cases.iter().filter(telling) {
        let warmer = Params {
            temperature: params.temperature * 1.2,
            ..*params
        };
        let (theirs, own) = compare(&record, counts, warmer);
        assert!(theirs < 1e-4, "{warmer:?}: p = {theirs}");
        assert!(own > 0.001, "{warmer:?}: our draws: p = {own}");
    }
}
