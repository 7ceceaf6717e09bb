//! `volley bench texts`: greedy answers by every way to draft, on a device, against those of the CPU
//! without drafts.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use volley_protocol::openai::ChatRequest;
use volley_server::ServedModel;

use super::choice::Choice;
use super::{chats, progress, record};
use crate::args::values::{new_file, positive};
use crate::args::{Device, ModelArgs};
use crate::error::{Error, Result};
use crate::load;
use crate::terminal::outln;

/// `volley bench texts`.
#[derive(Args, Clone, Debug)]
pub struct TextsArgs {
    /// Chats, one JSON object per line.
    pub chats: PathBuf,
    /// Model and device; the texts are compared with those of the CPU.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Methods to compare, such as "none,dflash,ddtree:22" [default: none, and dflash where there
    /// is a drafter].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub methods: Vec<Choice>,
    /// Prompts to take of each kind [default: all].
    #[arg(long, value_name = "N", value_parser = positive)]
    pub limit: Option<usize>,
    /// Most tokens per answer.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = positive)]
    pub max_tokens: usize,
    /// Where to write the record.
    #[arg(long, value_name = "PATH", value_parser = new_file)]
    pub json: Option<PathBuf>,
}

/// Texts of one method.
#[derive(Serialize)]
struct Row {
    method: String,
    prompts: usize,
    /// Tokens of the texts on the CPU.
    tokens: usize,
    /// Texts that are those of the CPU, token by token.
    same: usize,
    /// Texts that are those of the first method on the device.
    same_as_first: usize,
    /// Where the others part from the CPU's.
    differences: Vec<Difference>,
}

/// The first token that is another one.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Difference {
    /// Index of the prompt.
    prompt: usize,
    /// Tokens before it.
    position: usize,
    /// Token on the CPU, and on the device; none where the text has ended.
    expected: Option<u32>,
    found: Option<u32>,
    /// Whether the device chose the CPU's second.
    is_second: bool,
    /// Log-probability on the CPU of its first less that of its second there.
    gap: Option<f32>,
}

/// A greedy text and, behind each of its tokens, what was likeliest and second, with logprobs.
struct Text {
    tokens: Vec<u32>,
    top: Vec<Vec<(u32, f32)>>,
}

/// Runs all prompts on both devices.
pub fn run(args: &TextsArgs) -> Result<()> {
    let prompts = chats::limited(chats::read(&args.chats)?, args.limit);
    let on_cpu = ModelArgs {
        device: Device::Cpu,
        gpus: Vec::new(),
        tensor_parallel_size: 1,
        ..args.model.clone()
    };
    let oracle = load::served_by_all(&on_cpu)?;
    let model = load::served_by_all(&args.model)?;
    let methods = match args.methods.as_slice() {
        [] => usual(&model)?,
        methods => methods.to_vec(),
    };
    let none: Choice = choice("none")?;
    let bar = progress::bar(prompts.len() as u64, "prompts");
    let mut rows: Vec<Row> = methods.iter().map(Row::new).collect();
    for (index, chat) in prompts.iter().enumerate() {
        let expected = greedy(&oracle, chat, none, args.max_tokens)?;
        let mut first = None;
        for (row, method) in rows.iter_mut().zip(&methods) {
            let found = greedy(&model, chat, *method, args.max_tokens)?.tokens;
            let first = first.get_or_insert_with(|| found.clone());
            row.add(index, &expected, &found, *first == found);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    print(&rows);
    match &args.json {
        Some(path) => record::write(path, load::device(args.model.device), &rows),
        None => Ok(()),
    }
}

fn choice(text: &str) -> Result<Choice> {
    text.parse().map_err(Error::Usage)
}

fn usual(model: &ServedModel) -> Result<Vec<Choice>> {
    let offered = &model.engine.info().methods;
    let all = ["none", "dflash"].map(choice);
    let all: Vec<Choice> = all.into_iter().collect::<Result<_>>()?;
    let there = |choice: &Choice| offered.contains(&choice.method);
    Ok(all.into_iter().filter(there).collect())
}

/// The greedy answer to a chat.
fn greedy(
    model: &ServedModel,
    chat: &chats::Chat,
    method: Choice,
    max_tokens: usize,
) -> Result<Text> {
    let body = chats::body(chat, 0.0, max_tokens);
    let request = ChatRequest::from_json(body.to_string().as_bytes())?;
    let mut request = model.prepare(request, "call_".into())?.request;
    request.speculate = method.options();
    request.control.logprobs = Some(2);
    let updates = model.engine.submit(request)?;
    let mut text = Text {
        tokens: Vec::new(),
        top: Vec::new(),
    };
    while let Ok(update) = updates.recv_blocking() {
        text.tokens.extend(update.tokens);
        text.top.extend(update.logprobs.into_iter().map(|l| l.top));
        if let Some(terminal) = update.terminal {
            if let volley_engine::Stop::Failed(reason) = terminal.stop {
                return Err(volley_engine::EngineError::Stopped(reason).into());
            }
            break;
        }
    }
    Ok(text)
}

impl Row {
    fn new(method: &Choice) -> Self {
        Self {
            method: method.to_string(),
            prompts: 0,
            tokens: 0,
            same: 0,
            same_as_first: 0,
            differences: Vec::new(),
        }
    }

    fn add(&mut self, prompt: usize, expected: &Text, found: &[u32], same_as_first: bool) {
        self.prompts += 1;
        self.tokens += expected.tokens.len();
        self.same_as_first += usize::from(same_as_first);
        match difference(prompt, expected, found) {
            None => self.same += 1,
            Some(difference) => self.differences.push(difference),
        }
    }
}

/// Where a text parts from what was expected.
fn difference(prompt: usize, expected: &Text, found: &[u32]) -> Option<Difference> {
    let most = expected.tokens.len().max(found.len());
    let position = (0..most).find(|&i| expected.tokens.get(i) != found.get(i))?;
    let top = expected.top.get(position).map_or(&[][..], Vec::as_slice);
    let (gap, second) = match top {
        [first, second, ..] => (Some(first.1 - second.1), Some(second.0)),
        _ => (None, None),
    };
    let found = found.get(position).copied();
    Some(Difference {
        prompt,
        position,
        expected: expected.tokens.get(position).copied(),
        found,
        is_second: found.is_some() && found == second,
        gap,
    })
}

fn print(rows: &[Row]) {
    outln!(
        "{:12}{:>8}{:>9}{:>14}{:>16}{:>15}",
        "method",
        "prompts",
        "tokens",
        "as on the CPU",
        "as the first",
        "largest gap"
    );
    for row in rows {
        let gaps = row.differences.iter().filter_map(|d| d.gap);
        let largest = gaps.fold(f32::NEG_INFINITY, f32::max);
        let largest = match row.differences.is_empty() {
            true => "-".to_string(),
            false => format!("{largest:.4}"),
        };
        outln!(
            "{:12}{:>8}{:>9}{:>14}{:>16}{largest:>15}",
            row.method,
            row.prompts,
            row.tokens,
            row.same,
            row.same_as_first
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_part_at_the_first_other_token() {
        let expected = Text {
            tokens: vec![1, 2, 3],
            top: vec![
                vec![(1, -0.1), (9, -3.0)],
                vec![(2, -0.70), (5, -0.75)],
                vec![(3, -0.2), (4, -2.0)],
            ],
        };
        assert_eq!(difference(0, &expected, &[1, 2, 3]), None);
        let found = difference(7, &expected, &[1, 5, 3]).unwrap();
        assert_eq!((found.prompt, found.position), (7, 1));
        assert_eq!((found.expected, found.found), (Some(2), Some(5)));
        assert!(found.is_second && (found.gap.unwrap() - 0.05).abs() < 1e-6);
        let short = difference(0, &expected, &[1, 2]).unwrap();
        assert_eq!((short.expected, short.found), (Some(3), None));
        let long = difference(0, &expected, &[1, 2, 3, 4]).unwrap();
        assert_eq!((long.position, long.gap), (3, None));
    }
}
