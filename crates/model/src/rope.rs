use std::f64::consts::PI;

use serde::Serialize;
use volley_ops::{Dtype, Ops, RopeTable};

use crate::Result;
use crate::fields::Fields;

/// Rotary embedding of the leading `dim` channels of a head.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rope {
    /// Base of the frequencies.
    pub theta: f64,
    /// Rotated channels, even.
    pub dim: usize,
    /// Stretching of long contexts.
    pub yarn: Option<Yarn>,
}

/// YaRN: slow pairs are stretched by `factor`, fast ones stay, a ramp lies between.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Yarn {
    /// Stretch of the context.
    pub factor: f64,
    /// Turns over the original context from which on a pair counts as fast.
    pub beta_fast: f64,
    /// Turns up to which a pair counts as slow.
    pub beta_slow: f64,
    /// Context of the original training, tokens.
    pub original: usize,
    /// Factor on cos and sin.
    pub attention_factor: f64,
    /// Whether the ends of the ramp are rounded to whole pairs.
    pub truncate: bool,
}

impl Rope {
    /// Reads the scaling from `rope_parameters` or `rope_scaling` (`None`: plain rotation).
    pub(crate) fn read(
        theta: f64,
        dim: usize,
        max_positions: Option<usize>,
        scaling: Option<&Fields>,
    ) -> Result<Self> {
        let yarn = match scaling {
            Some(fields) => Yarn::read(fields, max_positions)?,
            None => None,
        };
        Ok(Self { theta, dim, yarn })
    }

    /// `dim / 2` inverse frequencies and the factor on cos and sin.
    pub fn frequencies(&self) -> (Vec<f32>, f32) {
        let plain = (0..self.dim)
            .step_by(2)
            .map(|i| self.theta.powf(-(i as f64) / self.dim as f64));
        match &self.yarn {
            None => (plain.map(|f| f as f32).collect(), 1.0),
            Some(yarn) => {
                let (low, high) = yarn.ramp(self);
                let frequencies = plain.enumerate().map(|(i, f)| {
                    let slow = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                    (f / yarn.factor * slow + f * (1.0 - slow)) as f32
                });
                (frequencies.collect(), yarn.attention_factor as f32)
            }
        }
    }

    pub(crate) fn table<O: Ops>(&self, ops: &O) -> Result<RopeTable<O::Buf>> {
        let (frequencies, scale) = self.frequencies();
        Ok(RopeTable {
            inv_freq: ops.upload(&frequencies, 1, frequencies.len(), Dtype::F32)?,
            scale,
        })
    }
}

impl Yarn {
    fn read(fields: &Fields, max_positions: Option<usize>) -> Result<Option<Self>> {
        let key = if fields.has("rope_type") {
            "rope_type"
        } else {
            "type"
        };
        match fields.opt_str(key)? {
            None | Some("default") => return Ok(None),
            Some("yarn") => {}
            Some(_) => return Err(fields.unsupported(key, "only default and yarn are")),
        }
        for key in ["mscale", "mscale_all_dim"] {
            if fields.has(key) {
                return Err(fields.unsupported(key, "give attention_factor instead"));
            }
        }
        let factor = fields.f64("factor")?;
        Ok(Some(Self {
            factor,
            beta_fast: fields.opt_f64("beta_fast")?.unwrap_or(32.0),
            beta_slow: fields.opt_f64("beta_slow")?.unwrap_or(1.0),
            original: match (
                fields.opt_size("original_max_position_embeddings")?,
                max_positions,
            ) {
                (Some(original), _) | (None, Some(original)) => original,
                (None, None) => fields.size("original_max_position_embeddings")?,
            },
            attention_factor: match fields.opt_f64("attention_factor")? {
                Some(given) => given,
                None if factor > 1.0 => 0.1 * factor.ln() + 1.0,
                None => 1.0,
            },
            truncate: fields.opt_bool("truncate")?.unwrap_or(true),
        }))
    }

    /// First and last pair of the ramp.
    fn ramp(&self, rope: &Rope) -> (f64, f64) {
        let dim = rope.dim as f64;
        let pair_turning = |turns: f64| {
            dim * (self.original as f64 / (turns * 2.0 * PI)).ln() / (2.0 * rope.theta.ln())
        };
        let (mut low, mut high) = (pair_turning(self.beta_fast), pair_turning(self.beta_slow));
        if self.truncate {
            (low, high) = (low.floor(), high.ceil());
        }
        let (low, high) = (low.max(0.0), high.min(dim - 1.0));
        if low == high {
            (low, high + 0.001)
        } else {
            (low, high)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_frequencies() {
        let rope = Rope {
            theta: 1e4,
            dim: 4,
            yarn: None,
        };
        assert_eq!(rope.frequencies(), (vec![1.0, 0.01], 1.0));
    }

    #[test]
    fn yarn_keeps_fast_pairs_and_stretches_slow_ones() {
        let rope = Rope {
            theta: 1e7,
            dim: 128,
            yarn: Some(Yarn {
                factor: 64.0,
                beta_fast: 32.0,
                beta_slow: 1.0,
                original: 4096,
                attention_factor: 0.1 * 64f64.ln() + 1.0,
                truncate: true,
            }),
        };
        let (stretched, scale) = rope.frequencies();
        let (plain, _) = Rope { yarn: None, ..rope }.frequencies();
        // Pair 11 turns 32 times over 4096 tokens (11.97 rounded down), pair 26 once (25.7 rounded up).
        assert_eq!(stretched[..=11], plain[..=11]);
        assert!(stretched[12] < plain[12]);
        assert_eq!(stretched[26], plain[26] / 64.0);
        assert_eq!(scale, 1.415_888_3);
    }
}
