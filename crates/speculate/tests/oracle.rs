//! Plain sampling against candle-transformers: its draws follow our probabilities.
#![allow(clippy::unwrap_used)]

mod common;

use candle_core::{Device, Tensor};
use candle_transformers::generation::{LogitsProcessor, Sampling};
use common::{chi_square_p, random, random_logits};
use volley_speculate::{History, SamplingParams, distribution, sample};

const VOCAB: usize = 40;
const DRAWS: u64 = 100_000;

/// Counts of candle's draws and of ours, each against our probabilities.
#[track_caller]
fn assert_same_law(name: &str, logits: &[f32], params: &SamplingParams, sampling: Sampling) {
    let ours = distribution(logits, params, &History::default(), VOCAB).unwrap();
    let law: Vec<f64> = (0..VOCAB as u32)
        .map(|token| f64::from(ours.probability(token)))
        .collect();

    let tensor = Tensor::new(logits, &Device::Cpu).unwrap();
    let mut oracle = LogitsProcessor::from_sampling(299_792, sampling);
    let (mut theirs, mut counts) = (vec![0; VOCAB], vec![0; VOCAB]);
    for draw in 0..DRAWS {
        theirs[oracle.sample(&tensor).unwrap() as usize] += 1;
        counts[sample(&ours, draw, 3).unwrap() as usize] += 1;
    }
    let (theirs, own) = (chi_square_p(&theirs, &law), chi_square_p(&counts, &law));
    println!("{name}: candle p = {theirs:.4}, own p = {own:.4}");
    assert!(theirs > 0.01, "{name}: candle's draws: p = {theirs}");
    assert!(own > 0.01, "{name}: our draws: p = {own}");
}

fn logits() -> Vec<f32> {
    random_logits(&mut random(5), VOCAB)
}

#[test]
fn temperature() {
    for temperature in [0.7, 1.0, 1.6] {
        let params = SamplingParams {
            temperature,
            ..SamplingParams::default()
        };
        let temperature = f64::from(temperature);
        assert_same_law(
            "temperature",
            &logits(),
            &params,
            Sampling::All { temperature },
        );
    }
}

#[test]
fn top_k() {
    for k in [2, 5, 20] {
        let params = SamplingParams {
            temperature: 0.7,
            top_k: k,
            ..SamplingParams::default()
        };
        let temperature = 0.7;
        assert_same_law(
            "top-k",
            &logits(),
            &params,
            Sampling::TopK { k, temperature },
        );
    }
}

#[test]
fn top_p() {
    for top_p in [0.3, 0.8, 0.95] {
        let params = SamplingParams {
            temperature: 1.0,
            top_p,
            ..SamplingParams::default()
        };
        let sampling = Sampling::TopP {
            p: f64::from(top_p),
            temperature: 1.0,
        };
        assert_same_law("top-p", &logits(), &params, sampling);
    }
}

/// Candle takes top-p of the whole mass, we (as vLLM) of what top-k has left: its `p` is ours
/// times the mass of the `k` likeliest.
#[test]
fn top_k_then_top_p() {
    for (k, top_p) in [(5, 0.8), (20, 0.9), (10, 0.5)] {
        let logits = logits();
        let mut weights: Vec<f64> = logits.iter().map(|&logit| f64::from(logit).exp()).collect();
        weights.sort_by(|a, b| b.total_cmp(a));
        let kept = weights[..k].iter().sum::<f64>() / weights.iter().sum::<f64>();
        let params = SamplingParams {
            temperature: 1.0,
            top_k: k,
            top_p,
            ..SamplingParams::default()
        };
        let sampling = Sampling::TopKThenTopP {
            k,
            p: f64::from(top_p) * kept,
            temperature: 1.0,
        };
        assert_same_law("top-k then top-p", &logits, &params, sampling);
    }
}

#[test]
fn greedy() {
    for seed in 0..100 {
        let logits = random_logits(&mut random(seed), VOCAB);
        let tensor = Tensor::new(logits.as_slice(), &Device::Cpu).unwrap();
        let theirs = LogitsProcessor::from_sampling(0, Sampling::ArgMax).sample(&tensor);
        let params = SamplingParams::default();
        let ours = distribution(&logits, &params, &History::default(), VOCAB).unwrap();
        assert_eq!(sample(&ours, seed, 0), Ok(theirs.unwrap()));
    }
}

/// The comparison has power: another temperature or another k fails it.
#[test]
#[should_panic(expected = "candle's draws")]
fn another_law_is_noticed() {
    let params = SamplingParams {
        temperature: 0.7,
        ..SamplingParams::default()
    };
    assert_same_law(
        "wrong",
        &logits(),
        &params,
        Sampling::All { temperature: 0.75 },
    );
}
