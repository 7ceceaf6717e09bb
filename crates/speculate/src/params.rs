use std::collections::BTreeMap;

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
