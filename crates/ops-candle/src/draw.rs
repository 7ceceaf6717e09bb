//! Tokens drawn from candidates.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use volley_ops::{CANDIDATES, DRAWN, Draw, Result, TOP_WIDTH};

use crate::buf::{Buf, check_index};

/// As [`volley_ops::Ops::draw`] says, for this many ranks.
pub fn draw(ranks: usize, tops: &Buf, draws: &[Draw], out: &mut Buf) -> Result<()> {
    let (op, width) = ("draw", ranks * TOP_WIDTH);
    let tops = tops.view(op, "tops", draws.len(), width)?;
    let out = out.view_mut(op, "out", draws.len(), 1)?;
    for ((tops, draw), out) in tops.chunks_exact(width).zip(draws).zip(out) {
        *out = choose(&Candidates::new(tops), draw) as f32;
    }
    Ok(())
}

/// Ids with those that were drawn in their places.
pub fn known(ids: &[u32], drawn: &Buf) -> Result<Vec<u32>> {
    let op = "embed_drawn";
    let drawn = drawn.all(op, "drawn", 1)?;
    let known = |&id: &u32| match id & DRAWN {
        0 => Ok(id),
        _ => {
            let row = (id ^ DRAWN) as usize;
            check_index(op, "drawn row", row, drawn.len())?;
            Ok(drawn[row] as u32)
        }
    };
    ids.iter().map(known).collect()
}

/// The candidates of a row, all ranks together.
struct Candidates {
    /// Logits and ids by rank.
    ranked: Vec<(f32, u32)>,
    /// Sum of the exponentials of all logits, less the largest.
    all: f64,
}

impl Candidates {
    fn new(tops: &[f32]) -> Self {
        let mut ranked = Vec::new();
        let mut sums = Vec::new();
        for top in tops.chunks_exact(TOP_WIDTH) {
            let (logits, rest) = top.split_at(CANDIDATES);
            let pairs = logits.iter().zip(rest);
            let some = pairs.filter(|(logit, _)| **logit > f32::NEG_INFINITY);
            ranked.extend(some.map(|(&logit, &id)| (logit + 0.0, id as u32)));
            sums.push(f64::from(logits[0]) + f64::from(rest[CANDIDATES]));
        }
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        ranked.truncate(CANDIDATES);
        let largest = ranked.first().map_or(0.0, |&(logit, _)| f64::from(logit));
        let all = sums.iter().map(|sum| (sum - largest).exp()).sum();
        Self { ranked, all }
    }
}

fn choose(candidates: &Candidates, draw: &Draw) -> u32 {
    let ranked = &candidates.ranked;
    let Some(&(largest, likeliest)) = ranked.first() else {
        return 0;
    };
    if draw.temperature == 0.0 {
        return likeliest;
    }
    let power = 1.0 / f64::from(draw.temperature);
    let below = |logit: f32| f64::from(logit) - f64::from(largest);
    let weights: Vec<f64> = ranked.iter().map(|c| (below(c.0) * power).exp()).collect();
    let kept = kept(&weights, candidates, power, draw);
    let total: f64 = weights[..kept].iter().sum();
    let mut noise = Noise::new(draw);
    let arrivals = weights[..kept]
        .iter()
        .zip(ranked)
        .map(|(weight, &(_, id))| {
            let share = f64::from((weight / total) as f32);
            (-noise.uniform(id).ln() / share, id)
        });
    let first = arrivals.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    first.map_or(likeliest, |(_, id)| id)
}

/// How many of the likeliest the filters leave.
fn kept(weights: &[f64], candidates: &Candidates, power: f64, draw: &Draw) -> usize {
    let mut kept = weights.len();
    let mut rest = 0.0;
    if (1..=kept).contains(&(draw.top_k as usize)) {
        kept = draw.top_k as usize;
    } else if kept == CANDIDATES {
        // Of the others only the sum at temperature 1 is known; below it, at most this is left.
        let known = candidates.ranked.iter();
        let largest = f64::from(candidates.ranked[0].0);
        let known: f64 = known.map(|c| (f64::from(c.0) - largest).exp()).sum();
        let floor = f64::from(candidates.ranked[kept - 1].0) - largest;
        rest = (candidates.all - known).max(0.0) * (floor * (power - 1.0).max(0.0)).exp();
    }
    let total = weights[..kept].iter().sum::<f64>() + rest;
    let mut before = 0.0;
    for (rank, weight) in weights[..kept].iter().enumerate() {
        let ends = rank > 0 && draw.top_p < 1.0 && (before / total) as f32 >= draw.top_p;
        if ends || (*weight as f32) < draw.min_p {
            return rank.max(1);
        }
        before += weight;
    }
    kept
}

/// ChaCha with eight rounds: the seed is the key, the position the nonce, the token the counter.
struct Noise(ChaCha8Rng);

impl Noise {
    fn new(draw: &Draw) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&draw.seed.to_le_bytes());
        let mut generator = ChaCha8Rng::from_seed(key);
        generator.set_stream(draw.position);
        Self(generator)
    }

    /// In (0, 1).
    fn uniform(&mut self, token: u32) -> f64 {
        self.0.set_word_pos(2 * u128::from(token));
        ((self.0.next_u64() >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the numbers of sampling itself, which are part of its contract.
    #[test]
    fn noise_is_that_of_sampling() {
        let draw = Draw {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed: 42,
            position: 7,
        };
        let mut noise = Noise::new(&draw);
        let values = [noise.uniform(0), noise.uniform(1000)];
        assert_eq!(values, [0.18567938954440522, 0.16254615701137431]);
    }
}
