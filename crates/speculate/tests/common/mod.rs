//! A toy language to sample from, and the chi-square test.
#![allow(dead_code, clippy::unwrap_used)] // Each test crate uses its own part.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use statrs::distribution::{ChiSquared, ContinuousCDF};

/// Tokens of the toy language.
pub const VOCAB: usize = 7;

/// Random numbers of a test.
pub fn random(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// Uniform in [0, 1).
pub fn uniform(random: &mut ChaCha8Rng) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Logits from about -3 to 3, single-peaked at 0.
pub fn random_logits(random: &mut ChaCha8Rng, count: usize) -> Vec<f32> {
    (0..count)
        .map(|_| (0..4).map(|_| uniform(random) - 0.5).sum::<f64>() as f32 * 2.5)
        .collect()
}

/// Target logits after `path`: random, but fixed by its last three tokens.
pub fn target_logits(path: &[u32]) -> Vec<f32> {
    let recent = &path[path.len().saturating_sub(3)..];
    let key = recent
        .iter()
        .fold(1, |key, &token| 31 * key + u64::from(token));
    random_logits(&mut random(key), VOCAB)
}

/// Drafter logits of block index `index` after `path`: the target's along its greedy
/// continuation, with an error. As in block diffusion they know nothing of the other drafts.
pub fn drafter_logits(path: &[u32], index: usize) -> Vec<f32> {
    let mut path = path.to_vec();
    for _ in 0..index {
        let logits = target_logits(&path);
        path.push(volley_speculate::argmax(&logits, VOCAB).unwrap());
    }
    let error = random_logits(&mut random(7000 + index as u64), VOCAB);
    let pairs = target_logits(&path).into_iter().zip(error);
    pairs.map(|(logit, error)| logit + 0.6 * error).collect()
}

/// Probability of counts at least this far from `probabilities` (which sum to one). Cells that
/// expect fewer than five are pooled.
pub fn chi_square_p(counts: &[u64], probabilities: &[f64]) -> f64 {
    assert_eq!(counts.len(), probabilities.len());
    let total = counts.iter().sum::<u64>() as f64;
    let (mut statistic, mut cells) = (0.0, 0);
    let (mut rare_count, mut rare_expected) = (0.0, 0.0);
    let mut add = |count: f64, expected: f64| {
        statistic += (count - expected).powi(2) / expected;
        cells += 1;
    };
    for (&count, &probability) in counts.iter().zip(probabilities) {
        let expected = probability * total;
        if probability == 0.0 {
            if count > 0 {
                return 0.0;
            }
        } else if expected < 5.0 {
            rare_count += count as f64;
            rare_expected += expected;
        } else {
            add(count as f64, expected);
        }
    }
    if rare_expected > 0.0 {
        add(rare_count, rare_expected);
    }
    assert!(cells > 1, "one cell tells nothing");
    ChiSquared::new(f64::from(cells - 1)).unwrap().sf(statistic)
}
