use std::collections::BTreeMap;

use crate::Error;

/// How one request samples. Neutral values switch a filter off.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// 0 is greedy.
    pub temperature: f32,
    /// Keep the `top_k` likeliest tokens; 0 keeps all.
    pub top_k: usize,
    /// Keep tokens while the mass before them is below `top_p`; 1 keeps all.
    pub top_p: f32,
    /// Keep tokens with at least `min_p` times the largest probability; 0 keeps all.
    pub min_p: f32,
    /// Subtracted once from the logit of every token of the output so far.
    pub presence_penalty: f32,
    /// Subtracted per occurrence in the output so far.
    pub frequency_penalty: f32,
    /// Divides positive and multiplies negative logits of tokens in prompt or output; 1 is off.
    pub repetition_penalty: f32,
    /// Added to the logits of single tokens.
    pub logit_bias: BTreeMap<u32, f32>,
    /// Seed of all randomness of the request.
    pub seed: u64,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repetition_penalty: 1.0,
            logit_bias: BTreeMap::new(),
            seed: 0,
        }
    }
}

impl SamplingParams {
    /// Checks every field against its range.
    ///
    /// # Errors
    /// [`Error::Parameter`] for the first field outside its range or not finite.
    pub fn validate(&self) -> Result<(), Error> {
        const SHARE: &str = "between 0 and 1";
        const FINITE: &str = "finite";
        let check = |name, value: f32, ok: bool, expected| {
            if ok && value.is_finite() {
                Ok(())
            } else {
                Err(Error::Parameter {
                    name,
                    value,
                    expected,
                })
            }
        };
        let share = |name, value: f32| check(name, value, (0.0..=1.0).contains(&value), SHARE);
        let (temperature, repetition) = (self.temperature, self.repetition_penalty);
        check("temperature", temperature, temperature >= 0.0, "0 or more")?;
        share("top_p", self.top_p)?;
        share("min_p", self.min_p)?;
        check("presence_penalty", self.presence_penalty, true, FINITE)?;
        check("frequency_penalty", self.frequency_penalty, true, FINITE)?;
        check(
            "repetition_penalty",
            repetition,
            repetition > 0.0,
            "above 0",
        )?;
        for &bias in self.logit_bias.values() {
            check("logit_bias", bias, true, FINITE)?;
        }
        Ok(())
    }

    /// Whether logits are the target's own: no bias, no penalty.
    pub fn leaves_logits(&self) -> bool {
        self.logit_bias.is_empty()
            && self.presence_penalty == 0.0
            && self.frequency_penalty == 0.0
            && self.repetition_penalty == 1.0
    }

    /// Whether a token that occurs once more is never likelier for it.
    pub fn only_lowers(&self) -> bool {
        self.repetition_penalty >= 1.0
            && self.presence_penalty >= 0.0
            && self.frequency_penalty >= 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let params = SamplingParams::default();
        assert_eq!(params.validate(), Ok(()));
        let refused = [
            (
                "temperature",
                SamplingParams {
                    temperature: -0.1,
                    ..params.clone()
                },
            ),
            (
                "temperature",
                SamplingParams {
                    temperature: f32::NAN,
                    ..params.clone()
                },
            ),
            (
                "temperature",
                SamplingParams {
                    temperature: f32::INFINITY,
                    ..params.clone()
                },
            ),
            (
                "top_p",
                SamplingParams {
                    top_p: 1.01,
                    ..params.clone()
                },
            ),
            (
                "min_p",
                SamplingParams {
                    min_p: -0.01,
                    ..params.clone()
                },
            ),
            (
                "presence_penalty",
                SamplingParams {
                    presence_penalty: f32::NAN,
                    ..params.clone()
                },
            ),
            (
                "frequency_penalty",
                SamplingParams {
                    frequency_penalty: f32::INFINITY,
                    ..params.clone()
                },
            ),
            (
                "repetition_penalty",
                SamplingParams {
                    repetition_penalty: 0.0,
                    ..params.clone()
                },
            ),
            (
                "logit_bias",
                SamplingParams {
                    logit_bias: [(1, f32::NAN)].into(),
                    ..params.clone()
                },
            ),
        ];
        for (field, params) in refused {
            match params.validate() {
                Err(Error::Parameter { name, .. }) => assert_eq!(name, field),
                other => panic!("{field}: {other:?}"),
            }
        }
    }
}
