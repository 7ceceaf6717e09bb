use crate::noise::{Noise, Stream};
use crate::{Distribution, Error};

/// Token of the sequence at `position`: Gumbel-max with noise that depends on seed, position and
/// token id only. Two distributions sampled with the same noise agree often (drafter and target).
///
/// # Errors
/// An empty distribution.
pub fn sample(distribution: &Distribution, seed: u64, position: usize) -> Result<u32, Error> {
    sample_from(distribution, seed, position, Stream::Token)
}

pub(crate) fn sample_from(
    distribution: &Distribution,
    seed: u64,
    position: usize,
    stream: Stream,
) -> Result<u32, Error> {
    let weights = distribution
        .iter()
        .map(|(token, prob)| (token, f64::from(prob)));
    race(weights, &mut Noise::new(seed, position, stream))
        .ok_or(Error::EmptyDistribution { position })
}

/// Gumbel-max in its exponential form: the token with the smallest `-ln(u) / weight` wins, each
/// with a chance in proportion to its weight. `None` if no weight is positive.
pub(crate) fn race(weights: impl Iterator<Item = (u32, f64)>, noise: &mut Noise) -> Option<u32> {
    let mut winner = None;
    let mut best = f64::INFINITY;
    for (token, weight) in weights.filter(|&(_, weight)| weight > 0.0) {
        let uniform = noise.uniform(token);
        // -ln(u) >= 1 - u spares most logarithms.
        if 1.0 - uniform >= best * weight {
            continue;
        }
        let arrival = -uniform.ln() / weight;
        if arrival < best {
            (winner, best) = (Some(token), arrival);
        }
    }
    winner
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certainty_needs_no_luck() {
        let certain = Distribution::one_hot(248_069);
        for position in 0..100 {
            assert_eq!(sample(&certain, 5, position), Ok(248_069));
        }
    }

    #[test]
    fn an_empty_distribution_is_an_error() {
        assert_eq!(
            sample(&Distribution::default(), 0, 3),
            Err(Error::EmptyDistribution { position: 3 })
        );
    }

    /// The token is the argmax of log-probability plus Gumbel noise.
    #[test]
    fn the_race_is_gumbel_max() {
        let distribution = Distribution {
            tokens: (0..50).collect(),
            probs: (1..=50).map(|rank| rank as f32 / 1275.0).collect(),
        };
        for position in 0..500 {
            let mut noise = Noise::new(11, position, Stream::Token);
            let mut score = |(token, prob): (u32, f32)| {
                (
                    f64::from(prob).ln() - (-noise.uniform(token).ln()).ln(),
                    token,
                )
            };
            let scores: Vec<(f64, u32)> = distribution.iter().map(&mut score).collect();
            let best = scores.iter().max_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
            assert_eq!(sample(&distribution, 11, position), Ok(best.1));
        }
    }
}
