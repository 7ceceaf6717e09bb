//! Properties of the filters over random logits and parameters.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use volley_speculate::{Distribution, History, SamplingParams, argmax, distribution, sample};

fn logits() -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec(-20.0f32..20.0, 1..700)
}

prop_compose! {
    fn params()(
        temperature in 0.05f32..3.0,
        top_k in 0usize..80,
        top_p in prop_oneof![Just(1.0f32), 0.0f32..1.0],
        min_p in prop_oneof![Just(0.0f32), 0.0f32..0.5],
        seed: u64,
    ) -> SamplingParams {
        SamplingParams { temperature, top_k, top_p, min_p, seed, ..SamplingParams::default() }
    }
}

fn filtered(logits: &[f32], params: &SamplingParams) -> Distribution {
    distribution(logits, params, &History::default(), logits.len()).unwrap()
}

fn is_within(inner: &Distribution, outer: &Distribution) -> bool {
    inner
        .tokens
        .iter()
        .all(|&token| outer.probability(token) > 0.0)
}

/// The filters by their definitions, on a full sort.
fn reference(logits: &[f32], params: &SamplingParams) -> Distribution {
    let mut ranked: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    if params.top_k > 0 {
        ranked.truncate(params.top_k);
    }
    let largest = f64::from(ranked[0].1);
    let scale = |logit: f32| ((f64::from(logit) - largest) / f64::from(params.temperature)).exp();
    let total: f64 = ranked.iter().map(|&(_, logit)| scale(logit)).sum();
    let mut before = 0.0;
    let mut kept = Vec::new();
    for &(token, logit) in &ranked {
        let share = scale(logit) / total;
        let in_nucleus = kept.is_empty() || params.top_p >= 1.0 || (before as f32) < params.top_p;
        if in_nucleus && scale(logit) as f32 >= params.min_p {
            kept.push((token, share));
        }
        before += share;
    }
    kept.sort_by_key(|&(token, _)| token);
    let mass: f64 = kept.iter().map(|&(_, share)| share).sum();
    let (tokens, probs) = kept
        .iter()
        .map(|&(token, share)| (token, (share / mass) as f32))
        .filter(|&(_, prob)| prob > 0.0)
        .unzip();
    Distribution { tokens, probs }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn is_a_distribution(logits in logits(), params in params()) {
        let distribution = filtered(&logits, &params);
        let sum: f64 = distribution.probs.iter().map(|&prob| f64::from(prob)).sum();
        prop_assert!((sum - 1.0).abs() < 1e-6, "{sum}");
        prop_assert!(distribution.probs.iter().all(|&prob| prob > 0.0));
        prop_assert!(distribution.tokens.is_sorted_by(|a, b| a < b));
        prop_assert!(distribution.probability(argmax(&logits, logits.len()).unwrap()) > 0.0);
    }

    #[test]
    fn equals_the_definition(logits in logits(), params in params()) {
        let (fast, plain) = (filtered(&logits, &params), reference(&logits, &params));
        prop_assert_eq!(&fast.tokens, &plain.tokens);
        for (a, b) in fast.probs.iter().zip(&plain.probs) {
            prop_assert!((a - b).abs() <= 1e-6 * b.max(1e-6), "{} {}", a, b);
        }
    }

    /// Few distinct logits: the definition with ties everywhere.
    #[test]
    fn equals_the_definition_with_ties(
        steps in prop::collection::vec(0u8..6, 1..900),
        mut params in params(),
    ) {
        // Away from the edges of the nucleus, where the last bit of a sum decides.
        params.top_p = params.top_p.clamp(0.0, 1.0) * 0.999_37;
        let logits: Vec<f32> = steps.iter().map(|&step| f32::from(step)).collect();
        prop_assert_eq!(filtered(&logits, &params).tokens, reference(&logits, &params).tokens);
    }

    #[test]
    fn filters_nest(logits in logits(), params in params(), less in 0.0f32..1.0) {
        let outer = filtered(&logits, &params);
        let narrower = [
            SamplingParams { top_p: params.top_p * less, ..params.clone() },
            SamplingParams { min_p: params.min_p + less * (1.0 - params.min_p), ..params.clone() },
        ];
        for inner in narrower {
            prop_assert!(is_within(&filtered(&logits, &inner), &outer));
        }
        let top_k = |top_k| SamplingParams {
            temperature: params.temperature,
            top_k,
            ..SamplingParams::default()
        };
        for k in [1, 2, 17, 300] {
            let smaller = filtered(&logits, &top_k(k));
            prop_assert!(smaller.tokens.len() <= k);
            prop_assert!(is_within(&smaller, &filtered(&logits, &top_k(k + 1))));
        }
    }

    /// Renaming the tokens renames the result, nothing else.
    #[test]
    fn order_does_not_matter(logits in logits(), params in params(), by in 0usize..700) {
        // Ties are the exception, they go by id.
        let distinct: Vec<f32> =
            logits.iter().enumerate().map(|(id, logit)| logit + id as f32 * 1e-3).collect();
        let mut turned = distinct.clone();
        let by = by % distinct.len();
        turned.rotate_left(by);
        turned.reverse();
        let size = distinct.len();
        let (plain, turned) = (filtered(&distinct, &params), filtered(&turned, &params));
        prop_assert_eq!(plain.tokens.len(), turned.tokens.len());
        for (token, prob) in turned.iter() {
            let original = (size - 1 - token as usize + by) % size;
            let expected = plain.probability(original as u32);
            prop_assert!((prob - expected).abs() <= 1e-6, "{} {}", prob, expected);
        }
    }

    #[test]
    fn ids_out_of_reach_change_nothing(logits in logits(), params in params()) {
        let mut padded = logits.clone();
        padded.extend([f32::NAN, f32::INFINITY, 100.0]);
        let masked = distribution(&padded, &params, &History::default(), logits.len());
        prop_assert_eq!(masked.unwrap(), filtered(&logits, &params));
    }

    #[test]
    fn samples_come_from_the_distribution(logits in logits(), params in params(), at in 0usize..9000) {
        let distribution = filtered(&logits, &params);
        let token = sample(&distribution, params.seed, at).unwrap();
        prop_assert!(distribution.probability(token) > 0.0);
        prop_assert_eq!(sample(&distribution, params.seed, at), Ok(token));
    }

    /// Whatever the logits and parameters are, the answer is a value or an error.
    #[test]
    fn never_panics(
        logits in prop::collection::vec(any::<f32>(), 0..40),
        numbers in prop::array::uniform6(any::<f32>()),
        top_k: usize,
        allowed: usize,
        output in prop::collection::vec(any::<u32>(), 0..5),
    ) {
        let [temperature, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty] = numbers;
        let params = SamplingParams {
            temperature, top_k, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty,
            logit_bias: output.iter().map(|&token| (token % 40, min_p)).collect(),
            seed: 0,
        };
        let mut history = History::new(&output);
        for &token in &output {
            history.push(token % 40);
        }
        for params in [&params, &SamplingParams { top_p: 0.9, min_p: 0.1, ..params.clone() }] {
            if let Ok(distribution) = distribution(&logits, params, &history, allowed) {
                prop_assert!(sample(&distribution, 1, 2).is_ok());
            }
        }
        let _ = argmax(&logits, allowed);
    }
}
