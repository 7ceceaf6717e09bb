//! What the likeliest tokens of a row tell of its distribution.

use crate::filter::{Candidate, finish, normalised, weigh};
use crate::logits::Candidates;
use crate::{Allowed, Change, Distribution, History, SamplingParams};

/// Relative error that a log-sum-exp may have, with room.
const SUM_ERROR: f64 = 1e-5;
/// Relative difference that the order of a sum in f64 makes, with room.
const ORDER_ERROR: f64 = 1e-9;

/// The distribution of a row, where its candidates decide it; `None` where they do not.
pub(crate) fn from_candidates(
    candidates: &Candidates<'_>,
    params: &SamplingParams,
    history: &History,
    allowed: usize,
    next: &Allowed,
) -> Option<Distribution> {
    let mut known = Known::new(candidates, params, history, allowed, next)?;
    let likeliest = known.ranked.first()?;
    if params.temperature == 0.0 {
        return Some(Distribution::one_hot(likeliest.token));
    }
    let largest = likeliest.logit;
    if params.top_k > 0 && params.top_k <= known.ranked.len() {
        known.ranked.truncate(params.top_k);
        known.complete = true;
    }
    weigh(&mut known.ranked, largest, params.temperature);
    if known.complete {
        known.ranked.sort_unstable_by_key(|c| c.token);
        return Some(finish(known.ranked, params));
    }
    let rest = known.rest(candidates, params, next);
    let end = known.end(rest, params, allowed)?;
    known.ranked.truncate(end);
    Some(normalised(known.ranked))
}

/// Tokens whose rank in the whole row, bias and penalties included, is certain.
struct Known {
    /// By rank.
    ranked: Vec<Candidate>,
    /// Whether no other token can be chosen.
    complete: bool,
    /// No other token has a greater logit.
    floor: f32,
}

impl Known {
    fn new(
        candidates: &Candidates<'_>,
        params: &SamplingParams,
        history: &History,
        allowed: usize,
        next: &Allowed,
    ) -> Option<Self> {
        if !candidates.log_sum_exp.is_finite() {
            return None;
        }
        let complete = candidates.complete || candidates.ids.len() >= allowed;
        let floor = candidates.logits.last().copied().unwrap_or(f32::INFINITY);
        let mut ranked: Vec<Candidate> = if params.leaves_logits() {
            let pairs = candidates.ids.iter().zip(candidates.logits);
            pairs.map(|(&t, &l)| Candidate::new(t, l)).collect()
        } else {
            if !complete && !others_only_fall(candidates.ids, params) {
                return None;
            }
            let mut ranked = changed(candidates, params, history);
            if ranked.iter().any(|c| !c.logit.is_finite()) {
                return None;
            }
            // What fell to the floor may stand behind a token that is not among the candidates.
            ranked.retain(|c| complete || c.logit > floor);
            ranked.sort_unstable_by(Candidate::by_rank);
            ranked
        };
        ranked.retain(|c| next.contains(c.token));
        Some(Self {
            ranked,
            complete,
            floor,
        })
    }

    /// Bounds of the sum of the exponentials of all other logits, less the largest of `ranked`.
    fn rest(
        &self,
        candidates: &Candidates<'_>,
        params: &SamplingParams,
        next: &Allowed,
    ) -> [f64; 2] {
        let ranked = &self.ranked;
        let largest = f64::from(ranked[0].logit);
        let all = ranked.len() == candidates.ids.len();
        let among = |token: u32| ranked.iter().any(|c| c.token == token);
        let certain = |token: u32| all || !next.contains(token) || among(token);
        let pairs = candidates.ids.iter().zip(candidates.logits);
        let known: f64 = pairs
            .filter(|&(&token, _)| certain(token))
            .map(|(_, &logit)| (f64::from(logit) - largest).exp())
            .sum();
        let all = (candidates.log_sum_exp - largest).exp();
        // Bias and penalties only lower the others, and some of them may not come at all.
        let least = match params.leaves_logits() && *next == Allowed::All {
            true => all * (1.0 - SUM_ERROR) - known,
            false => 0.0,
        };
        [least, all * (1.0 + SUM_ERROR) - known].map(|rest| rest.max(0.0))
    }

    /// How many tokens survive top-p and min-p, when all others certainly do not.
    fn end(&self, rest: [f64; 2], params: &SamplingParams, allowed: usize) -> Option<usize> {
        let known: f64 = self.ranked.iter().map(|c| c.weight).sum();
        let [rest_least, rest_most] = self.rest_weights(rest, params, allowed);
        let least = (known + rest_least) * (1.0 - ORDER_ERROR);
        let most = (known + rest_most) * (1.0 + ORDER_ERROR);
        let mut before = 0.0;
        for (index, candidate) in self.ranked.iter().enumerate() {
            if (candidate.weight as f32) < params.min_p {
                return Some(index);
            }
            if params.top_p < 1.0 && index > 0 {
                // As `keep_nucleus` decides, for every total that is possible.
                let ends = |total: f64| (before / total) as f32 >= params.top_p;
                match (ends(most), ends(least)) {
                    (true, true) => return Some(index),
                    (false, false) => {}
                    _ => return None,
                }
            }
            before += candidate.weight;
        }
        None
    }

    /// Bounds of the summed weights of all other tokens that top-k leaves.
    fn rest_weights(
        &self,
        [least, most]: [f64; 2],
        params: &SamplingParams,
        allowed: usize,
    ) -> [f64; 2] {
        let power = 1.0 / f64::from(params.temperature);
        let largest = f64::from(self.ranked[0].logit);
        if power == 1.0 && params.top_k == 0 {
            [least, most]
        } else if power >= 1.0 {
            // exp(x / t) = exp(x) exp(x (1 / t - 1)), and no x is above the floor.
            let floor = f64::from(self.floor) - largest;
            [0.0, most * (floor * (power - 1.0)).exp()]
        } else {
            // Of all ways to share the sum among so many tokens, the even one gives most.
            [0.0, (allowed as f64).powf(1.0 - power) * most.powf(power)]
        }
    }
}

/// What the candidates alone tell of a row that they do not decide, as if there were no other tokens: good for
/// drafts. `None` where none of them may come.
pub(crate) fn among_candidates(
    candidates: &Candidates<'_>,
    params: &SamplingParams,
    history: &History,
) -> Option<Distribution> {
    let mut ranked = changed(candidates, params, history);
    ranked.retain(|c| c.logit.is_finite());
    ranked.sort_unstable_by(Candidate::by_rank);
    let likeliest = *ranked.first()?;
    if params.temperature == 0.0 {
        return Some(Distribution::one_hot(likeliest.token));
    }
    if params.top_k > 0 {
        ranked.truncate(params.top_k);
    }
    weigh(&mut ranked, likeliest.logit, params.temperature);
    ranked.sort_unstable_by_key(|c| c.token);
    Some(finish(ranked, params))
}

/// The candidates with their bias and penalties.
fn changed(
    candidates: &Candidates<'_>,
    params: &SamplingParams,
    history: &History,
) -> Vec<Candidate> {
    let pairs = candidates.ids.iter().zip(candidates.logits);
    let change = |(&token, &logit): (&u32, &f32)| {
        let change = Change::new(token, history.count(token), params);
        Candidate::new(token, change.of(logit))
    };
    pairs.map(change).collect()
}

/// Whether bias and penalties raise no token outside `ids`.
pub(crate) fn others_only_fall(ids: &[u32], params: &SamplingParams) -> bool {
    let mut biases = params.logit_bias.iter();
    params.only_lowers() && biases.all(|(token, &bias)| bias <= 0.0 || ids.contains(token))
}

#[cfg(test)]
mod tests;
