//! Records draws of candle-transformers' sampler: `cargo run --release > ../plain_sampling.json`.
//! A package of its own, because candle-transformers takes minutes to compile and its sampler does
//! not change.

use candle_core::{Device, Result, Tensor};
use candle_transformers::generation::{LogitsProcessor, Sampling};
use serde_json::{Value, json};

const DRAWS: usize = 100_000;
const VOCAB: usize = 40;

/// Logits from about -4 to 4 with no pattern.
fn logits() -> Vec<f32> {
    (0..VOCAB as u64)
        .map(|token| {
            let mixed = (token + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            ((mixed >> 40) as f32 / (1u64 << 24) as f32 - 0.5) * 8.0
        })
        .collect()
}

/// `params` are ours; `sampling` is candle's name for the same law.
fn record(params: Value, sampling: Sampling) -> Result<Value> {
    let tensor = Tensor::new(logits(), &Device::Cpu)?;
    let mut sampler = LogitsProcessor::from_sampling(299_792, sampling);
    let mut counts = vec![0u64; VOCAB];
    for _ in 0..DRAWS {
        counts[sampler.sample(&tensor)? as usize] += 1;
    }
    Ok(json!({ "params": params, "counts": counts }))
}

/// The share of the mass that the `k` likeliest have.
fn kept(k: usize) -> f64 {
    let mut weights: Vec<f64> = logits().iter().map(|&l| f64::from(l).exp()).collect();
    weights.sort_by(|a, b| b.total_cmp(a));
    weights[..k].iter().sum::<f64>() / weights.iter().sum::<f64>()
}

fn main() -> Result<()> {
    let mut cases = Vec::new();
    for temperature in [0.7, 1.0, 1.6] {
        let params = json!({ "temperature": temperature });
        cases.push(record(params, Sampling::All { temperature })?);
    }
    for k in [2, 5, 20] {
        let temperature = 0.7;
        let params = json!({ "temperature": temperature, "top_k": k });
        cases.push(record(params, Sampling::TopK { k, temperature })?);
    }
    for p in [0.3, 0.8, 0.95] {
        let params = json!({ "temperature": 1.0, "top_p": p });
        let temperature = 1.0;
        cases.push(record(params, Sampling::TopP { p, temperature })?);
    }
    // Candle takes top-p of the whole mass, we (as vLLM) of what top-k has left.
    for (k, p) in [(5, 0.8), (20, 0.9), (10, 0.5)] {
        let params = json!({ "temperature": 1.0, "top_k": k, "top_p": p });
        let (p, temperature) = (p * kept(k), 1.0);
        cases.push(record(params, Sampling::TopKThenTopP { k, p, temperature })?);
    }
    let record = json!({
        "sampler": "candle-transformers 0.11, LogitsProcessor",
        "draws": DRAWS,
        "logits": logits(),
        "cases": cases,
    });
    println!("{record}");
    Ok(())
}
