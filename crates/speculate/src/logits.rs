use std::borrow::Cow;

use crate::candidates::from_candidates;
use crate::{Allowed, Distribution, Error, History, SamplingParams, constrained};

/// The likeliest allowed tokens of a row of logits, by rank: logit descending, ties by lowest id.
#[derive(Clone, Copy, Debug)]
pub struct Candidates<'a> {
    /// Token ids by rank.
    pub ids: &'a [u32],
    /// Their logits, finite.
    pub logits: &'a [f32],
    /// Log of the summed exponentials of all allowed logits, to about 1e-6; not finite when one of
    /// them is NaN or positive infinity, or when there is none.
    pub log_sum_exp: f64,
    /// Whether no other allowed token has a logit above negative infinity.
    pub complete: bool,
}

/// Rows of logits as a device leaves them: the likeliest tokens are at hand, a whole row costs a
/// copy, and with several ranks an exchange that all of them take part in.
pub trait Logits {
    /// Likeliest tokens of a row; `None` where only whole rows are known.
    fn candidates(&self, row: usize) -> Option<Candidates<'_>>;

    /// All logits of a row.
    ///
    /// # Errors
    /// [`Error::Unread`] when the device fails.
    fn whole(&mut self, row: usize) -> Result<Cow<'_, [f32]>, Error>;
}

/// Rows of logits in host memory.
#[derive(Clone, Copy, Debug)]
pub struct WholeRows<'a> {
    logits: &'a [f32],
    width: usize,
}

impl<'a> WholeRows<'a> {
    /// Rows of `width` logits, one behind the other.
    pub fn new(logits: &'a [f32], width: usize) -> Self {
        Self { logits, width }
    }
}

impl Logits for WholeRows<'_> {
    fn candidates(&self, _: usize) -> Option<Candidates<'_>> {
        None
    }

    fn whole(&mut self, row: usize) -> Result<Cow<'_, [f32]>, Error> {
        let range = row * self.width..(row + 1) * self.width;
        let logits = self.logits.get(range).ok_or_else(|| Error::Unread {
            row,
            reason: format!("there are {} values", self.logits.len()),
        })?;
        Ok(Cow::Borrowed(logits))
    }
}

/// [`crate::distribution`] of a row, from its candidates where they decide it and from all its logits
/// where they do not: the result is the same, bit by bit.
///
/// # Errors
/// As [`crate::distribution`], and of the device.
pub fn distribution_of(
    logits: &mut dyn Logits,
    row: usize,
    params: &SamplingParams,
    history: &History,
    allowed: usize,
) -> Result<Distribution, Error> {
    constrained_of(logits, row, params, history, allowed, &Allowed::All)
}

/// [`constrained`] of a row, read as [`distribution_of`] reads it.
///
/// # Errors
/// As [`distribution_of`].
pub fn constrained_of(
    logits: &mut dyn Logits,
    row: usize,
    params: &SamplingParams,
    history: &History,
    allowed: usize,
    next: &Allowed,
) -> Result<Distribution, Error> {
    params.validate()?;
    if let Allowed::Token(token) = next {
        return Ok(Distribution::one_hot(*token));
    }
    let known = logits
        .candidates(row)
        .and_then(|candidates| from_candidates(&candidates, params, history, allowed, next));
    match known {
        Some(distribution) => Ok(distribution),
        None => constrained(&logits.whole(row)?, params, history, allowed, next),
    }
}
