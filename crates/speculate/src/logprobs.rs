use crate::{Error, Logits, Row};

/// What the target itself says about a token that came out: its own distribution at temperature 1,
/// without filters, penalties and rules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenLogprob {
    /// Natural logarithm of the token's probability.
    pub logprob: f32,
    /// The likeliest tokens with theirs, best first.
    pub top: Vec<(u32, f32)>,
}

/// Logprob of `token` and of the `top` likeliest tokens behind a row, of which a device shows no more than its
/// candidates; ids from `allowed` on do not count. Ties go to the lowest id.
///
/// # Errors
/// [`Error::Unread`] when the device fails, [`Error::NotNumbers`] of a row that is none.
pub fn logprob_of(
    logits: &mut dyn Logits,
    row: usize,
    allowed: usize,
    token: u32,
    top: usize,
) -> Result<TokenLogprob, Error> {
    let (logit, top, log_sum_exp) = match logits.row(row)? {
        Row::Whole(whole) => {
            let whole = &whole[..allowed.min(whole.len())];
            let largest = whole.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f64 = whole
                .iter()
                .map(|&logit| f64::from(logit - largest).exp())
                .sum();
            let chosen = whole.get(token as usize).copied();
            let logit = chosen.unwrap_or(f32::NEG_INFINITY);
            let log_sum_exp = f64::from(largest) + sum.ln();
            (Some(logit), likeliest(whole, top), log_sum_exp)
        }
        Row::Likeliest(known) => {
            let pairs = known.ids.iter().copied().zip(known.logits.iter().copied());
            let pairs = pairs.take(top).collect();
            (known.logit_of(token), pairs, known.log_sum_exp)
        }
    };
    if !log_sum_exp.is_finite() {
        return Err(Error::NotNumbers);
    }
    let logit = match logit {
        Some(logit) => logit,
        None => logits.logit(row, token)?,
    };
    Ok(TokenLogprob::new(logit, top, log_sum_exp))
}

impl TokenLogprob {
    /// From logits; no probability is above 1.
    fn new(logit: f32, top: Vec<(u32, f32)>, log_sum_exp: f64) -> Self {
        let logprob = |logit: f32| ((f64::from(logit) - log_sum_exp) as f32).min(0.0);
        Self {
            logprob: logprob(logit),
            top: top
                .into_iter()
                .map(|(token, logit)| (token, logprob(logit)))
                .collect(),
        }
    }
}

/// The `count` largest logits, largest first.
fn likeliest(logits: &[f32], count: usize) -> Vec<(u32, f32)> {
    let mut best: Vec<(u32, f32)> = Vec::with_capacity(count + 1);
    if count == 0 {
        return best;
    }
    for (token, &logit) in (0..).zip(logits) {
        let full = best.len() == count;
        if full && best.last().is_some_and(|(_, least)| logit <= *least) {
            continue;
        }
        let place = best.partition_point(|(_, other)| *other >= logit);
        best.insert(place, (token, logit));
        best.truncate(count);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Candidates, Choice, WholeRows};

    fn of_row(logits: &[f32], allowed: usize, token: u32, top: usize) -> TokenLogprob {
        let mut rows = WholeRows::new(logits, logits.len());
        logprob_of(&mut rows, 0, allowed, token, top).unwrap()
    }

    #[test]
    fn logprobs_are_those_of_the_softmax() {
        let logits = [1.0, 3.0, 2.0, 3.0, 90.0];
        let sum: f32 = logits[..4].iter().map(|logit: &f32| logit.exp()).sum();
        let expected = |logit: f32| (logit.exp() / sum).ln();
        let found = of_row(&logits, 4, 2, 3);
        assert!((found.logprob - expected(2.0)).abs() < 1e-6);
        let tokens: Vec<u32> = found.top.iter().map(|(token, _)| *token).collect();
        assert_eq!(tokens, [1, 3, 2]);
        assert!((found.top[0].1 - expected(3.0)).abs() < 1e-6);
        assert_eq!(of_row(&logits, 4, 0, 0).top, []);
        assert_eq!(of_row(&logits, 4, 0, 9).top.len(), 4);
    }

    #[test]
    fn large_logits_stay_finite() {
        let found = of_row(&[3e4, -3e4, f32::NEG_INFINITY], 3, 0, 2);
        assert_eq!(found.logprob, 0.0);
        assert_eq!(found.top[1].0, 1);
        assert!(found.top[1].1.is_finite());
        let none = of_row(&[0.0, f32::NEG_INFINITY], 2, 1, 0);
        assert_eq!(none.logprob, f32::NEG_INFINITY);
    }

    /// A row of which two candidates are known, and how often a logit was asked for.
    struct Two<'a>(&'a [f32], usize);

    impl Logits for Two<'_> {
        fn row(&self, _: usize) -> Result<Row<'_>, Error> {
            Ok(Row::Likeliest(Candidates {
                ids: &[2, 0],
                logits: &[2.0, 1.0],
                log_sum_exp: self.0.iter().map(|l| f64::from(*l).exp()).sum::<f64>().ln(),
                complete: false,
            }))
        }

        fn draw(&mut self, row: usize, choice: &Choice<'_>) -> Result<u32, Error> {
            WholeRows::new(self.0, 4).draw(row, choice)
        }

        fn logit(&mut self, _: usize, token: u32) -> Result<f32, Error> {
            self.1 += 1;
            Ok(self.0[token as usize])
        }
    }

    #[test]
    fn a_device_is_asked_for_what_candidates_do_not_hold() {
        let logits = [1.0, 0.5, 2.0, -1.0];
        for (token, top, asked) in [(0, 2, 0), (2, 1, 0), (1, 2, 1), (3, 0, 1)] {
            let mut rows = Two(&logits, 0);
            let found = logprob_of(&mut rows, 0, 4, token, top).unwrap();
            assert_eq!(rows.1, asked);
            let expected = of_row(&logits, 4, token, top);
            assert!((found.logprob - expected.logprob).abs() < 1e-6);
            assert_eq!(found.top.len(), top);
            for (one, other) in found.top.iter().zip(&expected.top) {
                assert_eq!(one.0, other.0);
                assert!((one.1 - other.1).abs() < 1e-6);
            }
        }
        let few = logprob_of(&mut Two(&logits, 0), 0, 4, 2, 3).unwrap();
        assert_eq!(few.top.len(), 2, "as many as are known");
    }
}
