//! `volley bench methods`: the same prompts with and without speculation, on the same engine.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::{chats, progress, record};
use crate::args::ModelArgs;
use crate::args::values::positive;
use crate::error::{Error, Result};
use crate::load;

/// `volley bench methods`.
#[derive(Args, Clone, Debug)]
pub struct MethodsArgs {
    /// Chats, one JSON object per line.
    pub chats: PathBuf,
    /// Model and drafting.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Prompts to take from the file [default: all].
    #[arg(long, value_name = "N", value_parser = positive)]
    pub limit: Option<usize>,
    /// Most tokens per answer.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = positive)]
    pub max_tokens: usize,
    /// Where to write the record.
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
}

/// Results of one method on one kind of prompt.
#[derive(Serialize)]
struct Row {
    kind: String,
    method: String,
    prompts: usize,
    /// Tokens after the first of each answer.
    tokens: usize,
    /// Tokens per step, bonus token included.
    acceptance_length: f64,
    /// Decode time over steps.
    ms_per_step: f64,
    /// Decode tokens over decode time.
    tokens_per_s: f64,
    /// Median time to the first token.
    first_token_ms: f64,
    /// `tokens_per_s` over that of no speculation.
    speedup: f64,
}

#[derive(Default)]
struct Sum {
    prompts: usize,
    tokens: usize,
    steps: usize,
    decode_ms: f64,
    first_ms: Vec<f64>,
}

impl Sum {
    fn row(&mut self, kind: &str, method: &str) -> Row {
        Row {
            kind: kind.to_string(),
            method: method.to_string(),
            prompts: self.prompts,
            tokens: self.tokens,
            acceptance_length: self.tokens as f64 / self.steps.max(1) as f64,
            ms_per_step: self.decode_ms / self.steps.max(1) as f64,
            tokens_per_s: 1000.0 * self.tokens as f64 / self.decode_ms.max(f64::MIN_POSITIVE),
            first_token_ms: record::median(&mut self.first_ms),
            speedup: 1.0,
        }
    }
}

/// Runs every prompt by every method, in turn, and compares the greedy texts on the way.
pub fn run(args: &MethodsArgs) -> Result<()> {
    let mut prompts = chats::read(&args.chats)?;
    if let Some(limit) = args.limit {
        prompts.truncate(limit);
    }
    let model = load::served(&args.model)?;
    let drafts = model.engine.info().max_drafts;
    if drafts == 0 {
        return Err(Error::Usage(
            "there is nothing to compare: the model runs without a drafter".into(),
        ));
    }
    let methods = [("none", 0), (model.engine.info().method.as_str(), drafts)];
    if let Some(first) = prompts.first() {
        for (_, drafts) in methods {
            chats::answer(&model, first, drafts, args.max_tokens)?;
        }
    }
    let bar = progress::bar(prompts.len() as u64, "prompts");
    let mut sums: BTreeMap<(String, usize), Sum> = BTreeMap::new();
    let mut different = 0;
    for chat in &prompts {
        let mut texts = Vec::new();
        for (index, (_, drafts)) in methods.iter().enumerate() {
            let outcome = chats::answer(&model, chat, *drafts, args.max_tokens)?;
            for kind in [chat.kind.as_str(), "all"] {
                let sum = sums.entry((kind.to_string(), index)).or_default();
                sum.prompts += 1;
                sum.tokens += outcome.tokens.len().saturating_sub(1);
                sum.steps += outcome.usage.steps;
                sum.decode_ms += outcome.usage.decode_ms;
                sum.first_ms.push(outcome.usage.prefill_ms);
            }
            texts.push(outcome.tokens);
        }
        different += usize::from(texts.windows(2).any(|pair| pair[0] != pair[1]));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let mut rows: Vec<Row> = Vec::new();
    for ((kind, index), sum) in &mut sums {
        let mut row = sum.row(kind, methods[*index].0);
        if let Some(plain) = rows.iter().find(|plain| plain.kind == *kind) {
            row.speedup = row.tokens_per_s / plain.tokens_per_s;
        }
        rows.push(row);
    }
    print(&rows);
    println!(
        "greedy answers that differ between the methods: {different} of {}",
        prompts.len()
    );
    match &args.json {
        Some(path) => record::write(path, args.model.device, &rows),
        None => Ok(()),
    }
}

fn print(rows: &[Row]) {
    println!(
        "{:14}{:8}{:>9}{:>9}{:>19}{:>13}{:>10}{:>15}{:>9}",
        "kind",
        "method",
        "prompts",
        "tokens",
        "acceptance length",
        "ms per step",
        "tokens/s",
        "first token ms",
        "speedup"
    );
    for row in rows {
        println!(
            "{:14}{:8}{:>9}{:>9}{:>19.2}{:>13.3}{:>10.1}{:>15.1}{:>8.2}x",
            row.kind,
            row.method,
            row.prompts,
            row.tokens,
            row.acceptance_length,
            row.ms_per_step,
            row.tokens_per_s,
            row.first_token_ms,
            row.speedup
        );
    }
}
