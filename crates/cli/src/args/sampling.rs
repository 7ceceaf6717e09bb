//! Flags of sampling.

use clap::Args;

use super::values::{number_in, positive};

/// Sampling of `chat` and `generate`; what is left out comes from --generation-config.
#[derive(Args, Clone, Debug, Default)]
pub struct SamplingArgs {
    /// Most tokens to generate [default: the rest of the context].
    #[arg(long, value_name = "N", value_parser = positive)]
    pub max_tokens: Option<usize>,
    /// 0 is greedy.
    #[arg(long, value_parser = number_in::<0, 2>)]
    pub temperature: Option<f32>,
    /// Likeliest tokens to keep; 0 keeps all.
    #[arg(long)]
    pub top_k: Option<usize>,
    /// Probability mass to keep.
    #[arg(long, value_parser = number_in::<0, 1>)]
    pub top_p: Option<f32>,
    /// Least probability to keep, relative to the likeliest token.
    #[arg(long, value_parser = number_in::<0, 1>)]
    pub min_p: Option<f32>,
}
