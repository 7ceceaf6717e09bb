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

/// What is known of a row of logits.
#[derive(Clone, Copy, Debug)]
pub enum Row<'a> {
    /// All of it.
    Whole(&'a [f32]),
    /// Its likeliest tokens; the rest is on a device.
    Likeliest(Candidates<'a>),
}

/// How a token is chosen behind a row.
#[derive(Clone, Copy, Debug)]
pub struct Choice<'a> {
    /// How the request samples.
    pub params: &'a SamplingParams,
    /// Prompt and output; ends with the token before the one to choose.
    pub history: &'a History,
    /// Ids from here on are out.
    pub allowed: usize,
    /// Which of the others may come.
    pub next: &'a Allowed,
    /// Position of the token in the sequence, which its noise depends on.
    pub position: usize,
}

/// Rows of logits where they are: in host memory, or on a device that shows their likeliest tokens and draws
/// tokens, with several ranks all of them alike.
pub trait Logits {
    /// What is known of a row.
    ///
    /// # Errors
    /// [`Error::Unread`] where there is no such row.
    fn row(&self, row: usize) -> Result<Row<'_>, Error>;

    /// The token that [`crate::sample`] takes from what a choice leaves of a row that is not known whole.
    ///
    /// # Errors
    /// [`Error::Unread`] when the device fails; as [`crate::distribution`] where there is no token.
    fn draw(&mut self, row: usize, choice: &Choice<'_>) -> Result<u32, Error>;

    /// The logit of one token, without bias and penalties, of a row that is not known whole.
    ///
    /// # Errors
    /// [`Error::Unread`] when the device fails.
    fn logit(&mut self, row: usize, token: u32) -> Result<f32, Error>;
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

    fn get(&self, row: usize) -> Result<&'a [f32], Error> {
        let range = row * self.width..(row + 1) * self.width;
        self.logits.get(range).ok_or_else(|| Error::Unread {
            row,
            reason: format!("there are {} values", self.logits.len()),
        })
    }
}

impl Logits for WholeRows<'_> {
    fn row(&self, row: usize) -> Result<Row<'_>, Error> {
        self.get(row).map(Row::Whole)
    }

    fn draw(&mut self, row: usize, choice: &Choice<'_>) -> Result<u32, Error> {
        let chosen = choice.of(self.get(row)?)?;
        crate::sample(&chosen, choice.params.seed, choice.position)
    }

    fn logit(&mut self, row: usize, token: u32) -> Result<f32, Error> {
        let logit = self.get(row)?.get(token as usize).copied();
        Ok(logit.unwrap_or(f32::NEG_INFINITY))
    }
}

impl Choice<'_> {
    /// What the token is sampled from, given all logits.
    fn of(&self, logits: &[f32]) -> Result<Distribution, Error> {
        let Choice {
            params,
            history,
            allowed,
            next,
            ..
        } = *self;
        constrained(logits, params, history, allowed, next)
    }

    /// As [`Choice::of`] where the candidates decide it, bit by bit the same; none where they do not.
    ///
    /// # Errors
    /// Parameters out of range; a row with a logit that is not a number, or without any.
    pub(crate) fn among(&self, candidates: &Candidates<'_>) -> Result<Option<Distribution>, Error> {
        if let Allowed::Token(token) = self.next {
            self.params.validate()?;
            return Ok(Some(Distribution::one_hot(*token)));
        }
        self.check(candidates)?;
        let Choice {
            params,
            history,
            allowed,
            next,
            ..
        } = *self;
        Ok(from_candidates(candidates, params, history, allowed, next))
    }

    /// Parameters in their ranges, and a row of numbers with a token to choose.
    fn check(&self, candidates: &Candidates<'_>) -> Result<(), Error> {
        self.params.validate()?;
        let allowed = self.allowed;
        if candidates.ids.is_empty() && candidates.log_sum_exp == f32::NEG_INFINITY.into() {
            return Err(Error::NoCandidate {
                allowed,
                logits: allowed,
            });
        }
        if !candidates.log_sum_exp.is_finite() {
            return Err(Error::NotNumbers);
        }
        Ok(())
    }
}

/// What the token behind a row is sampled from: [`constrained`], bit by bit, where all logits are at hand or
/// the candidates decide it. Where they do not the device draws the token, and all mass is on that; it is to
/// be sampled at the position of the choice.
///
/// # Errors
/// As [`constrained`], and of the device.
pub fn distribution_of(
    logits: &mut dyn Logits,
    row: usize,
    choice: &Choice<'_>,
) -> Result<Distribution, Error> {
    let known = match logits.row(row)? {
        Row::Whole(logits) => Some(choice.of(logits)?),
        Row::Likeliest(candidates) => choice.among(&candidates)?,
    };
    match known {
        Some(known) => Ok(known),
        None => logits.draw(row, choice).map(Distribution::one_hot),
    }
}

/// As [`distribution_of`] where the device has gone on by what it has drawn: that is what counts, also where the
/// candidates decide, which the device may weigh otherwise by rounding.
///
/// # Errors
/// As [`distribution_of`].
pub fn drawn_of(
    logits: &mut dyn Logits,
    row: usize,
    choice: &Choice<'_>,
) -> Result<Distribution, Error> {
    match logits.row(row)? {
        Row::Likeliest(candidates) if choice.params.temperature > 0.0 => {
            choice.check(&candidates)?;
            logits.draw(row, choice).map(Distribution::one_hot)
        }
        _ => distribution_of(logits, row, choice),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    /// A row of which the device shows the two likeliest tokens; how often it has drawn from it.
    struct Device {
        logits: Vec<f32>,
        log_sum_exp: f64,
        draws: usize,
    }

    impl Logits for Device {
        fn row(&self, _: usize) -> Result<Row<'_>, Error> {
            Ok(Row::Likeliest(Candidates {
                ids: &[2, 0],
                logits: &[1.5, 1.0],
                log_sum_exp: self.log_sum_exp,
                complete: false,
            }))
        }

        fn draw(&mut self, row: usize, choice: &Choice<'_>) -> Result<u32, Error> {
            self.draws += 1;
            WholeRows::new(&self.logits, 4).draw(row, choice)
        }

        fn logit(&mut self, row: usize, token: u32) -> Result<f32, Error> {
            WholeRows::new(&self.logits, 4).logit(row, token)
        }
    }

    fn device() -> Device {
        let logits = vec![1.0, 0.5, 1.5, 0.25];
        Device {
            log_sum_exp: logits.iter().map(|l| f64::from(*l).exp()).sum::<f64>().ln(),
            logits,
            draws: 0,
        }
    }

    #[test]
    fn the_device_draws_only_where_candidates_do_not_decide() {
        let mut history = History::new(&[]);
        history.push(2);
        let hot = SamplingParams {
            temperature: 1.0,
            seed: 9,
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
        let neither = Allowed::Except(vec![0, 2]);
        let greedy = SamplingParams::default();
        for (params, next, draws) in [
            (&hot, &Allowed::All, 1),
            (&two, &Allowed::All, 0),
            (&penalised, &Allowed::All, 1),
            (&hot, &except, 1),
            (&hot, &Allowed::Token(3), 0),
            (&greedy, &except, 0),
            (&greedy, &neither, 1),
        ] {
            for position in 0..20 {
                let mut device = device();
                let choice = Choice {
                    params,
                    history: &history,
                    allowed: 4,
                    next,
                    position,
                };
                let found = distribution_of(&mut device, 0, &choice).unwrap();
                assert_eq!(device.draws, draws, "{params:?} {next:?}");
                let whole = choice.of(&device.logits).unwrap();
                let tokens = [&found, &whole].map(|from| sample(from, 9, position));
                assert_eq!(tokens[0], tokens[1], "{params:?} {next:?}");
            }
        }
    }

    #[test]
    fn a_row_that_is_no_row_is_an_error() {
        let hot = SamplingParams {
            temperature: 1.0,
            ..SamplingParams::default()
        };
        let choice = Choice {
            params: &hot,
            history: &History::new(&[]),
            allowed: 4,
            next: &Allowed::All,
            position: 0,
        };
        for bad in [f64::NAN, f64::INFINITY] {
            let mut device = device();
            device.log_sum_exp = bad;
            let error = distribution_of(&mut device, 0, &choice).unwrap_err();
            assert_eq!(error, Error::NotNumbers);
            assert_eq!(device.draws, 0);
        }
    }
}
