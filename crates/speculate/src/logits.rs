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

impl Candidates<'_> {
    /// Logit of a token, if it is among them.
    pub(crate) fn logit_of(&self, token: u32) -> Option<f32> {
        let rank = self.ids.iter().position(|id| *id == token)?;
        self.logits.get(rank).copied()
    }
}

/// A token that the device drew.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DrawnToken {
    /// Its id.
    pub token: u32,
    /// Its logit.
    pub logit: f32,
}

/// Rows of logits as a device leaves them: the likeliest tokens are at hand, a whole row costs a
/// copy, and with several ranks an exchange that all of them take part in.
pub trait Logits {
    /// Likeliest tokens of a row; `None` where only whole rows are known.
    fn candidates(&self, row: usize) -> Option<Candidates<'_>>;

    /// What [`crate::sample`] takes from the [`crate::distribution`] of a row, with the parameters of the
    /// request, which leave its logits alone, and the noise of the row's position; `None` where the
    /// device did not draw it.
    fn drawn(&self, _row: usize) -> Option<DrawnToken> {
        None
    }

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

/// [`constrained`] of a row, read as [`distribution_of`] reads it; but where the candidates do not decide
/// it and the device has drawn the token, all mass is on that token, and no row is read. Whoever lets the
/// device draw has to sample at the row's own position.
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
    if let Some(candidates) = logits.candidates(row) {
        if let Some(known) = from_candidates(&candidates, params, history, allowed, next) {
            return Ok(known);
        }
        // A row with a logit that is not a number has no token: reading it tells which one.
        let sound = candidates.log_sum_exp.is_finite();
        let plain = *next == Allowed::All && params.leaves_logits();
        if let Some(drawn) = logits.drawn(row).filter(|_| sound && plain) {
            return Ok(Distribution::one_hot(drawn.token));
        }
    }
    constrained(&logits.whole(row)?, params, history, allowed, next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    /// A row of which the device knows its two likeliest tokens and has drawn token 3; how often the
    /// whole row was asked for.
    struct Row {
        logits: Vec<f32>,
        log_sum_exp: f64,
        read: usize,
    }

    impl Logits for Row {
        fn candidates(&self, _: usize) -> Option<Candidates<'_>> {
            Some(Candidates {
                ids: &[2, 0],
                logits: &[1.5, 1.0],
                log_sum_exp: self.log_sum_exp,
                complete: false,
            })
        }

        fn drawn(&self, _: usize) -> Option<DrawnToken> {
            Some(DrawnToken {
                token: 3,
                logit: self.logits[3],
            })
        }

        fn whole(&mut self, _: usize) -> Result<Cow<'_, [f32]>, Error> {
            self.read += 1;
            Ok(Cow::Borrowed(&self.logits))
        }
    }

    fn row() -> Row {
        let logits = vec![1.0, 0.5, 1.5, 0.25];
        Row {
            log_sum_exp: logits.iter().map(|l| f64::from(*l).exp()).sum::<f64>().ln(),
            logits,
            read: 0,
        }
    }

    #[test]
    fn what_was_drawn_is_taken_only_where_candidates_do_not_decide() {
        let history = History::new(&[]);
        let hot = SamplingParams {
            temperature: 1.0,
            ..SamplingParams::default()
        };
        let penalised = SamplingParams {
            presence_penalty: 0.5,
            ..hot.clone()
        };
        let two = SamplingParams {
            top_k: 2,
            ..hot.clone()
        };
        let except = Allowed::Except(vec![1]);
        for (params, next, drawn, read) in [
            (&hot, &Allowed::All, true, 0),
            (&two, &Allowed::All, false, 0),
            (&penalised, &Allowed::All, false, 1),
            (&hot, &except, false, 1),
        ] {
            let mut row = row();
            let found = constrained_of(&mut row, 0, params, &history, 4, next).unwrap();
            assert_eq!(row.read, read);
            assert_eq!(found == Distribution::one_hot(3), drawn, "{params:?}");
            if drawn {
                assert_eq!(sample(&found, 9, 9), Ok(3));
            }
        }
    }

    #[test]
    fn a_row_that_is_no_row_is_an_error_whatever_was_drawn() {
        let hot = SamplingParams {
            temperature: 1.0,
            ..SamplingParams::default()
        };
        let mut row = row();
        row.logits[1] = f32::NAN;
        row.log_sum_exp = f64::NAN;
        let error = distribution_of(&mut row, 0, &hot, &History::new(&[]), 4).unwrap_err();
        assert!(matches!(error, Error::Logit { token: 1, .. }), "{error}");
    }
}
