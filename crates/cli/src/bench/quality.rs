//! `volley bench quality`: right answers and acceptance length per kind of task.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use serde::Serialize;
use volley_engine::SpeculateOptions;
use volley_server::ServedModel;

use super::{chats, progress, record};
use crate::args::ModelArgs;
use crate::args::values::{new_file, positive};
use crate::error::{Error, Result};
use crate::load;
use crate::terminal::{outln, say};

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
    /// How calls are held: as the model likes, to the schemas of the tools, or forced; chats without
    /// tools are left out unless it is "free" alone.
    #[arg(long, value_enum, num_args = 1.., default_value = "free")]
    pub calls: Vec<Calls>,
    /// Print wrong answers.
    #[arg(long)]
    pub show_wrong: bool,
    /// Where to write the record.
    #[arg(long, value_name = "PATH", value_parser = new_file)]
    pub json: Option<PathBuf>,
}

/// How calls are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Calls {
    /// Not at all.
    Free,
    /// To the schemas of strict functions, if the model calls.
    Strict,
    /// The model has to call, by the schemas of strict functions.
    Required,
}

impl Calls {
    /// The chat with its tools held in this way.
    fn held(self, chat: &chats::Chat) -> chats::Chat {
        let mut chat = chat.clone();
        if self != Self::Free {
            for tool in chat.tools.as_array_mut().into_iter().flatten() {
                tool["function"]["strict"] = true.into();
            }
        }
        if self == Self::Required {
            chat.tool_choice = "required".into();
        }
        chat
    }
}

/// Results of one kind of task.
#[derive(Serialize)]
struct Row {
    kind: String,
    calls: Calls,
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
    fn new(kind: &str, calls: Calls) -> Self {
        Self {
            kind: kind.to_string(),
            calls,
            chats: 0,
            right: 0,
            accuracy: 0.0,
            tokens: 0,
            steps: 0,
            acceptance_length: 0.0,
        }
    }

    fn finish(mut self) -> Self {
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
    let mut chats = chats::read(&args.chats)?;
    if args.calls != [Calls::Free] {
        chats.retain(|chat| !chat.tools.is_null());
    }
    let model = load::served(&args.model)?;
    let bar = progress::bar((chats.len() * args.calls.len()) as u64, "chats");
    let mut rows = Vec::new();
    for &calls in &args.calls {
        let mut kinds: BTreeMap<&str, Row> = BTreeMap::new();
        let mut all = Row::new("all", calls);
        for chat in &chats {
            let row = row(args, &model, chat, calls, &bar)?;
            all.add(&row);
            let kind = kinds.entry(&chat.kind);
            kind.or_insert_with(|| Row::new(&chat.kind, calls))
                .add(&row);
            bar.inc(1);
        }
        rows.extend(kinds.into_values().chain([all]).map(Row::finish));
    }
    bar.finish_and_clear();
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

/// One chat.
fn row(
    args: &QualityArgs,
    model: &ServedModel,
    chat: &chats::Chat,
    calls: Calls,
    bar: &ProgressBar,
) -> Result<Row> {
    let held = calls.held(chat);
    let speculate = SpeculateOptions::default();
    let outcome = chats::answer(model, &held, speculate, 0.0, args.max_tokens)?;
    let right = chat.expect.accepts(&outcome.answer);
    if !right && args.show_wrong {
        bar.suspend(|| show(chat, &outcome));
    }
    Ok(Row {
        chats: 1,
        right: right.into(),
        tokens: outcome.tokens.len().saturating_sub(1),
        steps: outcome.usage.steps,
        ..Row::new(&chat.kind, calls)
    })
}

fn show(chat: &chats::Chat, outcome: &chats::Outcome) {
    say(&format!("wrong ({}): {}", chat.kind, chat.messages));
    say(&format!("  thought: {:?}", outcome.answer.reasoning));
    say(&format!("  content: {:?}", outcome.answer.content));
    say(&format!("  calls: {:?}", outcome.answer.tool_calls));
    say(&format!("  expected: {:?}", chat.expect));
}

fn print(rows: &[Row]) {
    outln!(
        "{:14}{:>9}{:>7}{:>7}{:>10}{:>9}{:>19}",
        "kind",
        "calls",
        "chats",
        "right",
        "accuracy",
        "tokens",
        "acceptance length"
    );
    for row in rows {
        outln!(
            "{:14}{:>9}{:>7}{:>7}{:>9.1}%{:>9}{:>19.2}",
            row.kind,
            format!("{:?}", row.calls).to_lowercase(),
            row.chats,
            row.right,
            100.0 * row.accuracy,
            row.tokens,
            row.acceptance_length
        );
    }
}
