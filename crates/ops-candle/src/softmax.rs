use pulp::{Simd, WithSimd};

use crate::math::exp;
use crate::simd::dispatch;

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
            *score = exp(*score - self.highest);
        }
    }
}
