use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Uses of randomness; each has noise of its own, independent of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Choice of a token; shared by target and drafts.
    Token = 0,
    /// Acceptance of a draft under the residual rule.
    Accept = 2,
    /// Choice after a rejection, or after the last draft, under the residual rule.
    Residual = 3,
}

/// Noise of one seed, sequence position and stream: a table addressed by token id.
///
/// The counter-based generator (seed and stream are the key, the position is the nonce, the token
/// id the counter) makes a value independent of what was drawn before, of the batch and of the
/// draft depth.
pub(crate) struct Noise {
    generator: ChaCha8Rng,
    next: u32,
}

/// Going on to a token this near is cheaper than seeking it: a seek makes 64 words, two a token.
const NEAR: u32 = 32;

impl Noise {
    pub fn new(seed: u64, position: usize, stream: Stream) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8] = stream as u8;
        let mut generator = ChaCha8Rng::from_seed(key);
        generator.set_stream(position as u64);
        Self { generator, next: 0 }
    }

    /// Uniform in (0, 1), both ends excluded, a multiple of 2^-53.
    pub fn uniform(&mut self, token: u32) -> f64 {
        if token < self.next || token - self.next > NEAR {
            self.generator.set_word_pos(2 * u128::from(token));
        } else {
            for _ in self.next..token {
                self.generator.next_u64();
            }
        }
        self.next = token.wrapping_add(1);
        // 52 random bits and a half: exact in f64, so that 1 is out of reach.
        ((self.generator.next_u64() >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_depends_on_its_address_only() {
        let mut forward = Noise::new(7, 40, Stream::Token);
        let table: Vec<f64> = (0..5000).map(|token| forward.uniform(token)).collect();
        let mut jumping = Noise::new(7, 40, Stream::Token);
        for token in [
            0, 1, 4999, 31, 32, 33, 66, 66, 98, 131, 3, 2, 4000, 4032, 4065,
        ] {
            assert_eq!(jumping.uniform(token), table[token as usize], "{token}");
        }
        let largest = jumping.uniform(u32::MAX);
        assert_eq!(jumping.uniform(u32::MAX), largest);
    }

    #[test]
    fn seeds_positions_and_streams_differ() {
        let first = |seed, position, stream| Noise::new(seed, position, stream).uniform(0);
        let base = first(1, 2, Stream::Token);
        assert_ne!(base, first(2, 2, Stream::Token));
        assert_ne!(base, first(1, 3, Stream::Token));
        assert_ne!(base, first(1, 2, Stream::Accept));
        assert_ne!(base, first(1 << 63, 2, Stream::Token));
    }

    #[test]
    fn uniforms_fill_the_interval() {
        let mut bins = [0; 10];
        for position in 0..1000 {
            let mut noise = Noise::new(3, position, Stream::Accept);
            for token in 0..100 {
                let value = noise.uniform(token);
                assert!(value > 0.0 && value < 1.0);
                bins[(value * 10.0) as usize] += 1;
            }
        }
        // Nine degrees of freedom: 27.9 is the 0.1 % point.
        let chi_square: f64 = bins
            .iter()
            .map(|&count| (f64::from(count) - 1e4).powi(2) / 1e4)
            .sum();
        assert!(chi_square < 27.9, "{chi_square}");
    }

    /// Pairs of values whose addresses differ in one thing fill the unit square.
    #[test]
    fn neighbours_are_independent() {
        let value =
            |seed, position, stream, token| Noise::new(seed, position, stream).uniform(token);
        let (token, accept, residual) = (Stream::Token, Stream::Accept, Stream::Residual);
        let streams = [(token, accept), (token, residual), (accept, residual)];
        for (what, of) in [
            ("seeds", (1, 0, 0)),
            ("positions", (0, 1, 0)),
            ("tokens", (0, 0, 1)),
            ("streams", (0, 0, 0)),
        ] {
            for (first, second) in streams {
                let second = if what == "streams" { second } else { first };
                let mut bins = [[0; 10]; 10];
                for seed in 0..20_000 {
                    let a = value(seed, 5, first, 3);
                    let b = value(seed + of.0, 5 + of.1, second, 3 + of.2);
                    bins[(a * 10.0) as usize][(b * 10.0) as usize] += 1;
                }
                let chi_square: f64 = bins
                    .concat()
                    .iter()
                    .map(|&count| (f64::from(count) - 200.0).powi(2) / 200.0)
                    .sum();
                // 99 degrees of freedom: the 0.1 % points on both sides.
                println!("{what} {first:?} {second:?}: {chi_square:.1}");
                assert!((60.6..149.4).contains(&chi_square), "{what}: {chi_square}");
            }
        }
    }

    /// The numbers are part of the contract: a seed gives the same text on every machine. They were
    /// worked out apart from the generator, from the definition of ChaCha with eight rounds.
    #[test]
    fn values_are_fixed() {
        let mut noise = Noise::new(42, 7, Stream::Token);
        let values = [noise.uniform(0), noise.uniform(1000)];
        assert_eq!(values, [0.18567938954440522, 0.16254615701137431]);
    }
}
