//! `volley bench simulate`: how many steps each way to draft would take, without running any.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use serde_json::json;
use volley_engine::{Sources, SpeculateOptions, Speculation, marginals};
use volley_speculate::policy::{BUDGETS, Choices};
use volley_speculate::{Method, Simulated, Trajectory, simulate};

use super::choice::Choice;
use super::{chats, progress, record};
use crate::args::ModelArgs;
use crate::args::values::{new_file, positive};
use crate::error::Result;
use crate::load;
use crate::terminal::outln;

/// `volley bench simulate`.
#[derive(Args, Clone, Debug)]
pub struct SimulateArgs {
    /// Chats, one JSON object per line.
    pub chats: PathBuf,
    /// Model and drafter; the marginals are worked out on the CPU.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Prompts to take of each kind [default: all].
    #[arg(long, value_name = "N", value_parser = positive)]
    pub limit: Option<usize>,
    /// Most tokens per answer.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = positive)]
    pub max_tokens: usize,
    /// Where to write the answers and how far drafts behind each token were right, one JSON object
    /// per line.
    #[arg(long, value_name = "PATH", value_parser = new_file)]
    pub trajectories: Option<PathBuf>,
    /// Where to write the record.
    #[arg(long, value_name = "PATH", value_parser = new_file)]
    pub json: Option<PathBuf>,
}

/// Steps of one way to draft on one kind of prompt.
#[derive(Serialize)]
struct Row {
    kind: String,
    policy: String,
    prompts: usize,
    /// Tokens after the first of each answer.
    tokens: usize,
    steps: usize,
    /// Tokens per step, bonus token included.
    acceptance_length: f64,
    /// Rows of a full step.
    rows: usize,
}

/// Names, ways to draft (none for `auto`), and rows of a full step.
fn policies() -> Vec<(String, Option<Simulated>, usize)> {
    let chain = |depth| {
        (
            format!("chain {depth}"),
            Some(Simulated::Chain(depth)),
            1 + depth,
        )
    };
    let tree = |budget, seeded| {
        let seed = if seeded { "seeded tree" } else { "tree" };
        let how = Simulated::Tree { budget, seeded };
        (format!("{seed} {budget}"), Some(how), 1 + budget)
    };
    let lookup = Simulated::Lookup {
        drafts: 15,
        least: 3,
    };
    let mut policies = vec![("none".into(), Some(Simulated::None), 1)];
    policies.extend([3, 7, 15].map(chain));
    policies.extend([7, 15, 22, 31, 63].map(|budget| tree(budget, false)));
    policies.extend([22, 31, 63].map(|budget| tree(budget, true)));
    policies.push(("lookup 15".into(), Some(lookup), 16));
    policies.push(("auto".into(), None, 1 + Speculation::MOST_DRAFTS));
    policies
}

/// Records greedy answers and the drafter's marginals along them, then counts. `auto` goes by what
/// steps cost here.
pub fn run(args: &SimulateArgs) -> Result<()> {
    let prompts = chats::limited(chats::read(&args.chats)?, args.limit);
    let model = load::served_by_all(&args.model)?;
    let sources: Sources = load::sources(&args.model)?;
    let plain: SpeculateOptions = Choice {
        method: Method::None,
        size: None,
    }
    .options();
    let policies = policies();
    // Chooses by what steps cost here, and learns from one answer to the next.
    let mut auto = model.engine.timed().clone();
    let choices = Choices {
        chain: Speculation::MOST_DRAFTS,
        tree_budget: Speculation::MOST_DRAFTS,
        seeded: true,
        mtp: 0,
        lookup: Speculation::MOST_DRAFTS,
    };
    let mut sums: BTreeMap<(String, usize), (usize, usize, usize)> = BTreeMap::new();
    let mut lines = String::new();
    let bar = progress::bar(prompts.len() as u64, "prompts");
    for chat in &prompts {
        let outcome = chats::answer(&model, chat, plain, 0.0, args.max_tokens)?;
        let (prompt, output) = (&outcome.prompt, &outcome.tokens);
        let marginals = marginals(&sources, prompt, output)?;
        let recorded = Trajectory::record(prompt, output, &marginals, &BUDGETS);
        if args.trajectories.is_some() {
            lines.push_str(&line(&chat.kind, &recorded));
        }
        let choices = Choices {
            chain: recorded.depth,
            ..choices
        };
        let costs = auto.costs.clone();
        let ms = |kind, rows| costs.step_ms(kind, 1, rows);
        let chosen = recorded.replay(&mut auto, choices, ms).len();
        let fixed = |how| simulate(how, prompt, output, &marginals);
        let steps = policies.iter().map(|(_, how, _)| how.map_or(chosen, fixed));
        for (index, steps) in steps.enumerate() {
            for kind in [chat.kind.as_str(), "all"] {
                let sum = sums.entry((kind.to_string(), index)).or_default();
                sum.0 += 1;
                sum.1 += output.len().saturating_sub(1);
                sum.2 += steps;
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if let Some(path) = &args.trajectories {
        record::write_file(path, lines.as_bytes())?;
    }
    let rows: Vec<Row> = sums
        .into_iter()
        .map(|((kind, index), (prompts, tokens, steps))| Row {
            kind,
            policy: policies[index].0.clone(),
            prompts,
            tokens,
            steps,
            acceptance_length: tokens as f64 / steps.max(1) as f64,
            rows: policies[index].2,
        })
        .collect();
    print(&rows);
    match &args.json {
        Some(path) => record::write(path, load::device(args.model.device), &rows),
        None => Ok(()),
    }
}

/// A trajectory as one line of JSON.
fn line(kind: &str, trajectory: &Trajectory) -> String {
    let line = json!({
        "kind": kind,
        "prompt": trajectory.prompt,
        "output": trajectory.output,
        "depth": trajectory.depth,
        "chain": trajectory.chain,
        "trees": trajectory.trees,
    });
    format!("{line}\n")
}

fn print(rows: &[Row]) {
    outln!(
        "{:14}{:16}{:>8}{:>8}{:>8}{:>6}{:>19}",
        "kind",
        "policy",
        "prompts",
        "tokens",
        "steps",
        "rows",
        "acceptance length"
    );
    for row in rows {
        outln!(
            "{:14}{:16}{:>8}{:>8}{:>8}{:>6}{:>19.3}",
            row.kind,
            row.policy,
            row.prompts,
            row.tokens,
            row.steps,
            row.rows,
            row.acceptance_length
        );
    }
}
