//! The demo pair and chats for it.

use std::error::Error;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tokenizers::Tokenizer;
use volley_engine::{
    Engine, EngineHandle, EngineOptions, Request, RequestUpdate, Sources, SpeculateOptions,
    Speculation, Terminal,
};
use volley_model::{Checkpoint, TargetConfig};
use volley_speculate::SamplingParams;

pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Tokenizer, end tokens and user messages.
pub struct Demo {
    tokenizer: Tokenizer,
    eos: Vec<u32>,
    turn_id: u32,
    pub messages: Vec<String>,
}

fn path(part: &str) -> PathBuf {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo");
    models.join(part)
}

impl Demo {
    pub fn open() -> Result<Self> {
        let tokenizer = path("target/tokenizer.json");
        let lines = std::fs::read_to_string(path("eval/prompts.jsonl"))?;
        let chats = lines.lines().map(serde_json::from_str::<Value>);
        let mut messages = Vec::new();
        for chat in chats {
            if let Some(text) = chat?["messages"][0]["content"].as_str() {
                messages.push(text.to_owned());
            }
        }
        let tokenizer = Tokenizer::from_file(tokenizer).map_err(|error| error.to_string())?;
        let turn_id = tokenizer.token_to_id("<|im_start|>");
        Ok(Self {
            turn_id: turn_id.ok_or("the tokenizer has no token that begins a turn")?,
            tokenizer,
            eos: TargetConfig::read(&Checkpoint::open(&path("target"))?)?.eos,
            messages,
        })
    }

    /// An engine with DFlash and these options.
    pub fn start(&self, options: EngineOptions) -> Result<EngineHandle> {
        let options = EngineOptions {
            max_model_len: Some(4096),
            speculation: Speculation::dflash(usize::MAX),
            ..options
        };
        let sources = Sources {
            target: Checkpoint::open(&path("target"))?,
            drafter: Some(Checkpoint::open(&path("drafter"))?),
        };
        Ok(Engine::start(options, sources)?)
    }

    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self.tokenizer.encode_fast(text, false);
        Ok(encoding
            .map_err(|error| error.to_string())?
            .get_ids()
            .to_vec())
    }

    /// A user's turn and the header of the answer.
    pub fn turn(&self, message: &str) -> Result<Vec<u32>> {
        self.encode(&format!(
            "<|im_start|>user\n{message}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
        ))
    }

    /// A greedy request that ends where the answer does; kept up to the header of the answer, as
    /// the server asks for.
    pub fn request(&self, prompt: Vec<u32>, max_tokens: usize) -> Request {
        let header = prompt.iter().rposition(|&id| id == self.turn_id);
        Request {
            checkpoints: header.into_iter().collect(),
            prompt,
            sampling: SamplingParams::default(),
            max_tokens,
            min_tokens: 0,
            stop_ids: self.eos.clone(),
            speculate: SpeculateOptions::default(),
            control: Default::default(),
            priority: 0,
            cache_salt: "".into(),
        }
    }
}

/// Waits for the end of a request.
pub fn wait(updates: &async_channel::Receiver<RequestUpdate>) -> Result<(Vec<u32>, Terminal)> {
    let mut tokens = Vec::new();
    loop {
        let update = updates.recv_blocking()?;
        tokens.extend(update.tokens);
        if let Some(terminal) = update.terminal {
            return Ok((tokens, terminal));
        }
    }
}

/// Resident memory of this process in MiB.
pub fn resident_mib() -> Result<f64> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let pages = pages
        .split_whitespace()
        .nth(1)
        .ok_or("statm has no second field")?;
    Ok(pages.parse::<f64>()? * 4096.0 / (1 << 20) as f64)
}

/// The value below which `share` of the sorted values lie.
pub fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values
        .get((last as f64 * share).round() as usize)
        .copied()
        .unwrap_or(0.0)
}
