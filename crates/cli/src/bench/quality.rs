//! `volley bench quality`: right answers and acceptance length per kind of task.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use volley_engine::SpeculateOptions;

use super::{chats, progress, record};
use crate::args::ModelArgs;
use crate::args::values::positive;
use crate::error::{Error, Result};
use crate::load;

/// `volley bench quality`.
#[derive(Args, Clone, Debug)]
pub struct QualityArgs {
    /// Chats with expected answers, one JSON object per line.
    pub chats: PathBuf,
    /// Model and drafting.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Most tokens per answer.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = positive)]
    pub max_tokens: usize,
    /// Least share of right answers of every kind; less is a failure.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub least_accuracy: f64,
    /// Print wrong answers.
    #[arg(long)]
    pub show_wrong: bool,
    /// Where to write the record.
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
}

/// Results of one kind of task.
#[derive(Default, Serialize)]
struct Row {
    kind: String,
    chats: usize,
    right: usize,
    /// Share of right answers.
    accuracy: f64,
    /// Generated tokens.
    tokens: usize,
    /// Target passes after the prompt.
    steps: usize,
    /// Tokens per step, bonus token included.
    acceptance_length: f64,
}

impl Row {
    fn finish(mut self, kind: &str) -> Self {
        self.kind = kind.to_string();
        self.accuracy = self.right as f64 / self.chats.max(1) as f64;
        self.acceptance_length = self.tokens as f64 / self.steps.max(1) as f64;
        self
    }

    fn add(&mut self, other: &Self) {
        self.chats += other.chats;
        self.right += other.right;
        self.tokens += other.tokens;
        self.steps += other.steps;
    }
}

/// Answers every chat of the file greedily and checks it.
pub fn run(args: &QualityArgs) -> Result<()> {
    let chats = chats::read(&args.chats)?;
    let model = load::served(&args.model)?;
    let bar = progress::bar(chats.len() as u64, "chats");
    let mut kinds: BTreeMap<String, Row> = BTreeMap::new();
    for chat in &chats {
        let outcome = chats::answer(
            &model,
            chat,
            SpeculateOptions::default(),
            0.0,
            args.max_tokens,
        )?;
        let right = chat.expect.accepts(&outcome.answer);
        if !right && args.show_wrong {
            bar.suspend(|| show(chat, &outcome));
        }
        kinds.entry(chat.kind.clone()).or_default().add(&Row {
            chats: 1,
            right: right.into(),
            tokens: outcome.tokens.len().saturating_sub(1),
            steps: outcome.usage.steps,
            ..Row::default()
        });
        bar.inc(1);
    }
    bar.finish_and_clear();
    let mut all = Row::default();
    kinds.values().for_each(|row| all.add(row));
    let mut rows: Vec<Row> = kinds
        .into_iter()
        .map(|(kind, row)| row.finish(&kind))
        .collect();
    rows.push(all.finish("all"));
    print(&rows);
    if let Some(path) = &args.json {
        record::write(path, load::device(args.model.device), &rows)?;
    }
    let poor: Vec<&str> = rows
        .iter()
        .filter(|row| row.accuracy < args.least_accuracy)
        .map(|row| row.kind.as_str())
        .collect();
    match poor.as_slice() {
        [] => Ok(()),
        poor => Err(Error::Failed(format!(
            "fewer than {:.0} % right answers in: {}",
            100.0 * args.least_accuracy,
            poor.join(", ")
        ))),
    }
}

fn show(chat: &chats::Chat, outcome: &chats::Outcome) {
    eprintln!("wrong ({}): {}", chat.kind, chat.messages);
    eprintln!("  thought: {:?}", outcome.answer.reasoning);
    eprintln!("  content: {:?}", outcome.answer.content);
    eprintln!("  calls: {:?}", outcome.answer.tool_calls);
    eprintln!("  expected: {:?}", chat.expect);
}

fn print(rows: &[Row]) {
    println!(
        "{:14}{:>7}{:>7}{:>10}{:>9}{:>19}",
        "kind", "chats", "right", "accuracy", "tokens", "acceptance length"
    );
    for row in rows {
        println!(
            "{:14}{:>7}{:>7}{:>9.1}%{:>9}{:>19.2}",
            row.kind,
            row.chats,
            row.right,
            100.0 * row.accuracy,
            row.tokens,
            row.acceptance_length
        );
    }
}
