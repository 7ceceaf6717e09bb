use std::borrow::Cow;
use std::cmp::Ordering;

use crate::{Allowed, Change, Distribution, Error, History, SamplingParams};

/// What a token is sampled from, given its row of logits: logit bias, penalties, temperature,
/// top-k, softmax, top-p on the renormalised rest, min-p (spec/dflash.md 5.4), accumulated in f64.
///
/// Ids from `allowed` on are out. `history` ends with the token before the one to sample. Ties
/// go to the lowest id. Temperature 0 puts all mass on the likeliest token.
///
/// # Errors
/// Parameters out of range, a logit that is NaN or positive infinity, no finite logit.
pub fn distribution(
    logits: &[f32],
    params: &SamplingParams,
    history: &History,
    allowed: usize,
) -> Result<Distribution, Error> {
    constrained(logits, params, history, allowed, &Allowed::All)
}

/// As [`distribution`], of the tokens that may come next only. A single one needs no logits.
///
/// # Errors
/// As [`distribution`].
pub fn constrained(
    logits: &[f32],
    params: &SamplingParams,
    history: &History,
    allowed: usize,
    next: &Allowed,
) -> Result<Distribution, Error> {
    params.validate()?;
    if let Allowed::Token(token) = next {
        return Ok(Distribution::one_hot(*token));
    }
    let logits = adjusted(within(logits, allowed), params, history);
    let logits = next.apply(logits);
    let (likeliest, largest) = maximum(&logits, allowed)?;
    if params.temperature == 0.0 {
        return Ok(Distribution::one_hot(likeliest));
    }

    let top_k = if params.top_k == 0 {
        usize::MAX
    } else {
        params.top_k
    };
    let mut candidates: Vec<Candidate> = likeliest_k(&logits, top_k);
    weigh(&mut candidates, largest, params.temperature);
    Ok(finish(candidates, params))
}

/// Sets the weights, relative to that of `largest`.
pub(crate) fn weigh(candidates: &mut [Candidate], largest: f32, temperature: f32) {
    for candidate in candidates {
        let below_largest = f64::from(candidate.logit) - f64::from(largest);
        candidate.weight = (below_largest / f64::from(temperature)).exp();
    }
}

/// Top-p and min-p over tokens by ascending id, which are all that top-k leaves.
pub(crate) fn finish(mut candidates: Vec<Candidate>, params: &SamplingParams) -> Distribution {
    if params.top_p < 1.0 {
        keep_nucleus(&mut candidates, params.top_p);
    }
    // The largest weight is exp(0) = 1, so weights are already relative to it.
    candidates.retain(|candidate| candidate.weight as f32 >= params.min_p);
    normalised(candidates)
}

/// Id of the largest logit below `allowed`; ties go to the lowest id.
///
/// # Errors
/// A logit that is NaN or positive infinity, no finite logit.
pub fn argmax(logits: &[f32], allowed: usize) -> Result<u32, Error> {
    maximum(within(logits, allowed), allowed).map(|(token, _)| token)
}

/// A token that may still be chosen.
#[derive(Clone, Copy)]
pub(crate) struct Candidate {
    pub token: u32,
    pub logit: f32,
    /// Probability up to a common factor; the largest is 1.
    pub weight: f64,
}

impl Candidate {
    pub fn new(token: u32, logit: f32) -> Self {
        Self {
            token,
            logit,
            weight: 0.0,
        }
    }

    /// Likeliest first, ties by lowest id; both zeros are a tie.
    pub fn by_rank(&self, other: &Self) -> Ordering {
        let by_logit = (other.logit + 0.0).total_cmp(&(self.logit + 0.0));
        by_logit.then(self.token.cmp(&other.token))
    }
}

fn within(logits: &[f32], allowed: usize) -> &[f32] {
    &logits[..allowed.min(logits.len())]
}

/// Logits with bias and penalties.
fn adjusted<'a>(logits: &'a [f32], params: &SamplingParams, history: &History) -> Cow<'a, [f32]> {
    if params.leaves_logits() {
        return Cow::Borrowed(logits);
    }
    let mut changed = logits.to_vec();
    let biased = params.logit_bias.keys().copied();
    let seen = history.occurrences().map(|(token, _)| token);
    for token in biased.chain(seen) {
        if let Some(&logit) = logits.get(token as usize) {
            let change = Change::new(token, history.count(token), params);
            changed[token as usize] = change.of(logit);
        }
    }
    Cow::Owned(changed)
}

/// Largest logit and the lowest id that has it.
fn maximum(logits: &[f32], allowed: usize) -> Result<(u32, f32), Error> {
    let mut best = None;
    let mut largest = f32::NEG_INFINITY;
    for (token, &logit) in (0..).zip(logits) {
        if logit > largest {
            (best, largest) = (Some(token), logit);
        } else if logit.is_nan() {
            return Err(Error::Logit {
                token,
                value: logit,
            });
        }
    }
    match best {
        Some(token) if largest == f32::INFINITY => Err(Error::Logit {
            token,
            value: largest,
        }),
        Some(token) => Ok((token, largest)),
        None => Err(Error::NoCandidate {
            allowed,
            logits: logits.len(),
        }),
    }
}

/// The `k` likeliest tokens, by ascending id, in one pass over the logits.
fn likeliest_k(logits: &[f32], k: usize) -> Vec<Candidate> {
    let k = k.min(logits.len());
    let full = (2 * k).max(256);
    let mut kept: Vec<Candidate> = Vec::with_capacity(full.min(logits.len()));
    let mut floor = f32::NEG_INFINITY;
    for (token, &logit) in (0..).zip(logits) {
        // A tie with the k-th likeliest so far loses to it: its id is higher.
        if logit > floor {
            kept.push(Candidate::new(token, logit));
            if kept.len() == full {
                keep_first(&mut kept, k);
                floor = kept[k - 1].logit;
            }
        }
    }
    if kept.len() > k {
        keep_first(&mut kept, k);
    }
    kept.sort_unstable_by_key(|candidate| candidate.token);
    kept
}

/// Keeps the first `k` by rank, the last of them at the end.
fn keep_first(candidates: &mut Vec<Candidate>, k: usize) {
    candidates.select_nth_unstable_by(k - 1, Candidate::by_rank);
    candidates.truncate(k);
}

/// Keeps tokens, likeliest first, while the share of the mass before them is below `top_p`; the
/// likeliest always stays. Sorts no further than it has to.
fn keep_nucleus(candidates: &mut Vec<Candidate>, top_p: f32) {
    let total: f64 = candidates.iter().map(|candidate| candidate.weight).sum();
    let mut sorted = 0;
    let mut before = 0.0;
    let mut chunk = 64;
    while sorted < candidates.len() {
        let rest = &mut candidates[sorted..];
        let ranked = chunk.min(rest.len());
        if ranked < rest.len() {
            rest.select_nth_unstable_by(ranked - 1, Candidate::by_rank);
        }
        rest[..ranked].sort_unstable_by(Candidate::by_rank);
        for index in sorted..sorted + ranked {
            // In f32, the precision of the parameter, so that 0.8 of the mass is not below 0.8.
            if index > 0 && (before / total) as f32 >= top_p {
                candidates.truncate(index);
                return;
            }
            before += candidates[index].weight;
        }
        sorted += ranked;
        chunk *= 4;
    }
}

pub(crate) fn normalised(mut candidates: Vec<Candidate>) -> Distribution {
    candidates.sort_unstable_by_key(|candidate| candidate.token);
    let total: f64 = candidates.iter().map(|candidate| candidate.weight).sum();
    let (tokens, probs) = candidates
        .iter()
        .map(|candidate| (candidate.token, (candidate.weight / total) as f32))
        .filter(|&(_, prob)| prob > 0.0)
        .unzip();
    Distribution { tokens, probs }
}

#[cfg(test)]
mod tests;
