use pulp::{Simd, WithSimd};

use crate::math::exp;
use crate::simd::dispatch;

/// Weights below this become zero: they change no sum, but would lead to denormal products.
const NOTHING: f32 = 1e-30;

/// Scores of one query over all tokens become weights that sum to one. Tokens before `first`, and
/// rows (tokens from `past` on) that are not `seen`, get weight zero.
pub fn softmax(scores: &mut [f32], first: usize, past: usize, seen: &[bool]) {
    scores[..first].fill(0.0);
    let mut highest = scores[first..past]
        .iter()
        .copied()
        .fold(f32::NEG_INFINITY, f32::max);
    for (&score, _) in scores[past..].iter().zip(seen).filter(|(_, seen)| **seen) {
        highest = highest.max(score);
    }
    dispatch(Exponentials {
        scores: &mut scores[first..],
        highest,
    });
    for (weight, _) in scores[past..]
        .iter_mut()
        .zip(seen)
        .filter(|(_, seen)| !**seen)
    {
        *weight = 0.0;
    }
    let sum: f32 = scores[first..].iter().sum();
    scores[first..].iter_mut().for_each(|weight| *weight /= sum);
}

/// `e^(score - highest)`, for tokens that are seen at most one.
struct Exponentials<'a> {
    scores: &'a mut [f32],
    highest: f32,
}

impl WithSimd for Exponentials<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for score in self.scores {
            let weight = exp(*score - self.highest);
            *score = if weight < NOTHING { 0.0 } else { weight };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::softmax;

    #[test]
    fn what_is_not_seen_weighs_nothing_however_high_its_score() {
        let mut scores = [9.0, 1.0, 2.0, 500.0, 1.0, -200.0];
        softmax(&mut scores, 1, 3, &[false, true, true]);
        let e = std::f32::consts::E;
        let sum = e + 2.0;
        let want = [0.0, 1.0 / sum, e / sum, 0.0, 1.0 / sum, 0.0];
        for (got, want) in scores.iter().zip(want) {
            assert!((got - want).abs() < 1e-6, "{scores:?}");
        }
        assert_eq!([scores[0], scores[3], scores[5]], [0.0; 3]);
    }

    #[test]
    fn large_scores_do_not_overflow() {
        let mut scores = [3e38, 3e38];
        softmax(&mut scores, 0, 2, &[]);
        assert_eq!(scores, [0.5, 0.5]);
    }
}
