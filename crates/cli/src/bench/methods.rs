//! `volley bench methods`: the same prompts by every way to draft, on one engine.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde::Serialize;
use volley_speculate::Method;

use super::choice::Choice;
use super::picture::PictureArgs;
use super::svg::{Group, bars};
use super::{chats, progress, record};
use crate::args::ModelArgs;
use crate::args::values::{new_file, number_in, positive};
use crate::error::Result;
use crate::load;
use crate::terminal::outln;

/// `volley bench methods`.
#[derive(Args, Clone, Debug)]
pub struct MethodsArgs {
    /// Chats, one JSON object per line; results are told by their kinds.
    pub chats: PathBuf,
    /// Model and drafting.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Methods to compare, such as "none,ngram,mtp:3,dflash,ddtree:22,auto"; the number is the most
    /// drafts of a chain or nodes of a tree [default: all that the weights allow].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub methods: Vec<Choice>,
    /// Prompts to take of each kind [default: all].
    #[arg(long, value_name = "N", value_parser = positive)]
    pub limit: Option<usize>,
    /// How often to run all of it; the results are medians over the rounds. Within a round the
    /// methods take turns at each prompt, so that a machine that slows down does so for all.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive)]
    pub rounds: usize,
    /// Most tokens per answer.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = positive)]
    pub max_tokens: usize,
    /// 0 is greedy; answers are seeded, so that all methods give the same ones.
    #[arg(long, default_value_t = 0.0, value_parser = number_in::<0, 2>)]
    pub temperature: f32,
    /// Where to write the record.
    #[arg(long, value_name = "PATH", value_parser = new_file)]
    pub json: Option<PathBuf>,
    #[command(flatten)]
    picture: PictureArgs,
}

/// Results of one method on one kind of prompt.
#[derive(Serialize)]
struct Row {
    kind: String,
    method: String,
    /// Answers of a round.
    prompts: usize,
    rounds: usize,
    /// Tokens of a round, after the first of each answer.
    tokens: usize,
    /// Tokens per step, bonus token included.
    acceptance_length: f64,
    /// Decode time over steps, median of the rounds.
    ms_per_step: f64,
    /// Decode tokens over decode time, median of the rounds.
    tokens_per_s: f64,
    /// The slowest round and the fastest.
    tokens_per_s_range: [f64; 2],
    /// `tokens_per_s` over that of the first method.
    speedup: f64,
    /// Time to the first token, over prompts.
    first_token_ms_p50: f64,
    first_token_ms_p99: f64,
    /// Decode time per token of an answer, over prompts.
    ms_per_token_p50: f64,
    ms_per_token_p99: f64,
    /// Share of drafts of each position that were accepted.
    acceptance_by_position: Vec<f64>,
}

/// All answers of one method to one kind of prompt, round by round.
#[derive(Default)]
struct Sum {
    rounds: Vec<Round>,
    first_ms: Vec<f64>,
    token_ms: Vec<f64>,
    drafted: Vec<u64>,
    accepted: Vec<u64>,
}

#[derive(Clone, Copy, Default)]
struct Round {
    prompts: usize,
    tokens: usize,
    steps: usize,
    decode_ms: f64,
}

impl Round {
    fn tokens_per_s(&self) -> f64 {
        1000.0 * self.tokens as f64 / self.decode_ms.max(f64::MIN_POSITIVE)
    }
}

impl Sum {
    fn add(&mut self, round: usize, outcome: &chats::Outcome) {
        let usage = &outcome.usage;
        let tokens = outcome.tokens.len().saturating_sub(1);
        if self.rounds.len() <= round {
            self.rounds.resize(round + 1, Round::default());
        }
        let of = &mut self.rounds[round];
        of.prompts += 1;
        of.tokens += tokens;
        of.steps += usage.steps;
        of.decode_ms += usage.decode_ms;
        self.first_ms.push(usage.prefill_ms);
        if tokens > 0 {
            self.token_ms.push(usage.decode_ms / tokens as f64);
        }
        add_all(&mut self.drafted, &usage.speculation.drafted);
        add_all(&mut self.accepted, &usage.speculation.accepted);
    }

    fn row(&mut self, kind: &str, method: &Choice) -> Row {
        let total = |of: fn(&Round) -> usize| self.rounds.iter().map(of).sum::<usize>();
        let over_rounds = |of: fn(&Round) -> f64| {
            let mut values: Vec<f64> = self.rounds.iter().map(of).collect();
            (record::median(&mut values), values)
        };
        let (tokens_per_s, sorted) = over_rounds(Round::tokens_per_s);
        let per_step = |round: &Round| round.decode_ms / round.steps.max(1) as f64;
        let positions = self.drafted.iter().zip(&self.accepted);
        Row {
            kind: kind.to_string(),
            method: method.to_string(),
            prompts: self.rounds.first().map_or(0, |round| round.prompts),
            rounds: self.rounds.len(),
            tokens: self.rounds.first().map_or(0, |round| round.tokens),
            acceptance_length: total(|r| r.tokens) as f64 / total(|r| r.steps).max(1) as f64,
            ms_per_step: over_rounds(per_step).0,
            tokens_per_s,
            tokens_per_s_range: [sorted[0], sorted[sorted.len() - 1]],
            speedup: 1.0,
            first_token_ms_p50: record::quantile(&mut self.first_ms, 0.5),
            first_token_ms_p99: record::quantile(&mut self.first_ms, 0.99),
            ms_per_token_p50: record::quantile(&mut self.token_ms, 0.5),
            ms_per_token_p99: record::quantile(&mut self.token_ms, 0.99),
            acceptance_by_position: positions
                .map(|(&drafted, &accepted)| accepted as f64 / drafted.max(1) as f64)
                .collect(),
        }
    }
}

/// How `auto` did against the best of the others, by kind: the ratio of their speeds, median,
/// least and most of the rounds.
fn against_best(rows: &[Row], sums: &BTreeMap<(String, usize), Sum>, methods: &[Choice]) {
    let Some(auto) = methods.iter().position(|m| m.method == Method::Auto) else {
        return;
    };
    let mut kinds: Vec<&str> = rows.iter().map(|row| row.kind.as_str()).collect();
    kinds.dedup();
    for kind in kinds {
        let others = rows
            .iter()
            .filter(|row| row.kind == kind && row.method != methods[auto].to_string());
        let best = others.max_by(|a, b| a.tokens_per_s.total_cmp(&b.tokens_per_s));
        let Some(best) = best else { continue };
        let of = |method: usize| sums[&(kind.to_string(), method)].rounds.iter();
        let index = methods.iter().position(|m| m.to_string() == best.method);
        let pairs = index.into_iter().flat_map(|index| of(auto).zip(of(index)));
        let mut ratios: Vec<f64> = pairs
            .map(|(auto, best)| 100.0 * (auto.tokens_per_s() / best.tokens_per_s() - 1.0))
            .collect();
        let median = record::median(&mut ratios);
        if let (Some(least), Some(most)) = (ratios.first(), ratios.last()) {
            outln!(
                "{kind}: auto {median:+.1} % ({least:+.1} to {most:+.1}) against {}",
                best.method
            );
        }
    }
}

fn add_all(sums: &mut Vec<u64>, values: &[u64]) {
    sums.resize(sums.len().max(values.len()), 0);
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += value;
    }
}

/// Runs every prompt by every method, in turn, and compares the texts on the way.
pub fn run(args: &MethodsArgs) -> Result<()> {
    let prompts = chats::limited(chats::read(&args.chats)?, args.limit);
    let model = load::served_by_all(&args.model)?;
    let methods = match args.methods.as_slice() {
        [] => Choice::usual(model.engine.info()),
        methods => methods.to_vec(),
    };
    let answer = |chat: &chats::Chat, method: &Choice| {
        let options = method.options();
        chats::answer(&model, chat, options, args.temperature, args.max_tokens)
    };
    if let Some(first) = prompts.first() {
        for method in &methods {
            answer(first, method)?;
        }
    }
    let runs = prompts.len() * args.rounds;
    let bar = progress::bar(runs as u64, "prompts");
    let mut sums: BTreeMap<(String, usize), Sum> = BTreeMap::new();
    let mut different = 0;
    let mut order: Vec<usize> = (0..methods.len()).collect();
    let mut rng = StdRng::seed_from_u64(1);
    for (run, chat) in prompts.iter().cycle().take(runs).enumerate() {
        let mut texts: Vec<Vec<u32>> = Vec::new();
        // In another order for every prompt: what one leaves behind, caches, memory or a processor that
        // has slowed down, should not always fall to the same other one.
        order.shuffle(&mut rng);
        for &index in &order {
            let outcome = answer(chat, &methods[index])?;
            for kind in [chat.kind.as_str(), "all"] {
                let sum = sums.entry((kind.to_string(), index)).or_default();
                sum.add(run / prompts.len(), &outcome);
            }
            texts.push(outcome.tokens);
        }
        different += usize::from(texts.windows(2).any(|pair| pair[0] != pair[1]));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let mut rows: Vec<Row> = Vec::new();
    for ((kind, index), sum) in &mut sums {
        let mut row = sum.row(kind, &methods[*index]);
        if let Some(first) = rows.iter().find(|first| first.kind == *kind) {
            row.speedup = row.tokens_per_s / first.tokens_per_s;
        }
        rows.push(row);
    }
    print(&rows);
    against_best(&rows, &sums, &methods);
    outln!("answers that differ between the methods: {different} of {runs}",);
    if let Some(path) = &args.json {
        record::write(path, load::device(args.model.device), &rows)?;
    }
    args.picture.write(|| picture(&rows, &methods))
}

fn picture(rows: &[Row], methods: &[Choice]) -> String {
    let names: Vec<String> = methods.iter().map(Choice::to_string).collect();
    let mut groups: Vec<Group> = Vec::new();
    for row in rows {
        if groups.last().is_none_or(|group| group.name != row.kind) {
            groups.push(Group {
                name: row.kind.clone(),
                bars: Vec::new(),
            });
        }
        if let Some(group) = groups.last_mut() {
            group.bars.push(row.tokens_per_s);
        }
    }
    bars("Decoding speed by method", "tokens/s", &names, &groups)
}

fn print(rows: &[Row]) {
    outln!(
        "{:14}{:12}{:>8}{:>8}{:>12}{:>10}{:>10}{:>16}{:>9}{:>16}{:>18}",
        "kind",
        "method",
        "prompts",
        "tokens",
        "acc. length",
        "ms/step",
        "tokens/s",
        "rounds",
        "speedup",
        "first ms 50/99",
        "ms/token 50/99"
    );
    for row in rows {
        let first = format!(
            "{:.0}/{:.0}",
            row.first_token_ms_p50, row.first_token_ms_p99
        );
        let [least, most] = row.tokens_per_s_range;
        let range = format!("{least:.0} to {most:.0}");
        let token = format!("{:.2}/{:.2}", row.ms_per_token_p50, row.ms_per_token_p99);
        outln!(
            "{:14}{:12}{:>8}{:>8}{:>12.2}{:>10.2}{:>10.1}{:>16}{:>8.2}x{:>16}{:>18}",
            row.kind,
            row.method,
            row.prompts,
            row.tokens,
            row.acceptance_length,
            row.ms_per_step,
            row.tokens_per_s,
            range,
            row.speedup,
            first,
            token
        );
    }
}
