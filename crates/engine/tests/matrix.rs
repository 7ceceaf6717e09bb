//! Greedy texts of the demo pair in every combination of prefix cache, chunk size, speculation,
//! company and ranks: all the same.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use common::{Outcome, dflash, greedy, run, wait};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use tokenizers::Tokenizer;
use volley_engine::{Engine, EngineHandle, EngineOptions, Request, Sources, Speculation};
use volley_model::Checkpoint;

/// Tokens to generate.
const TOKENS: usize = 12;
const CHUNKS: [usize; 4] = [1, 7, 64, usize::MAX];

fn demo(part: &str) -> PathBuf {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo");
    models.join(part)
}

#[derive(Clone, Copy, Debug)]
struct Case {
    chunk: usize,
    speculation: Speculation,
    company: usize,
    ranks: usize,
}

fn start(case: Case, checkpoints: usize) -> EngineHandle {
    let options = EngineOptions {
        max_model_len: Some(512),
        ranks: case.ranks,
        prefill_chunk: case.chunk,
        speculation: case.speculation,
        max_running: case.company,
        checkpoints,
        cache_blocks: Some(200),
        ahead: case.company > 1,
        ..EngineOptions::default()
    };
    let open = |part| Checkpoint::open(&demo(part)).unwrap();
    let sources = Sources {
        target: open("target"),
        drafter: Some(open("drafter")),
    };
    Engine::start(options, sources).unwrap()
}

/// Held-out chats, one behind the other.
fn chats() -> Vec<u32> {
    let tokenizer = Tokenizer::from_file(demo("target/tokenizer.json")).unwrap();
    let lines = std::fs::read_to_string(demo("eval/prompts.jsonl")).unwrap();
    let mut ids = Vec::new();
    for line in lines.lines().take(40) {
        let chat: Value = serde_json::from_str(line).unwrap();
        let text = chat["messages"][0]["content"].as_str().unwrap();
        let text = format!(
            "<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
        );
        ids.extend_from_slice(tokenizer.encode_fast(text, false).unwrap().get_ids());
    }
    ids
}

/// Two prompts of one length that part in the middle of a block, and what follows them.
struct Pair {
    prompts: [Vec<u32>; 2],
    shared: usize,
    expected: [Vec<u32>; 2],
}

/// Each length begins with a token of its own, so that lengths do not share anything.
fn pairs(lengths: impl Iterator<Item = usize>) -> Vec<Pair> {
    let chats = chats();
    let plain = Case {
        chunk: usize::MAX,
        speculation: Speculation::none(),
        company: 1,
        ranks: 1,
    };
    let cold = start(plain, 0);
    let pair = |len: usize| {
        let one = [&[10 + len as u32], &chats[..len - 1]].concat();
        let shared = len * 2 / 3;
        let other = [&one[..shared], &chats[300..300 + len - shared]].concat();
        let prompts = [one, other];
        let expected = prompts
            .clone()
            .map(|prompt| run(&cold, greedy(prompt, TOKENS)).tokens);
        Pair {
            prompts,
            shared,
            expected,
        }
    };
    lengths.map(pair).collect()
}

/// Runs requests all at the same time.
fn together(engine: &EngineHandle, requests: Vec<Request>) -> Vec<Outcome> {
    let running: Vec<_> = requests
        .into_iter()
        .map(|r| engine.submit(r).unwrap())
        .collect();
    running.iter().map(wait).collect()
}

/// Miss, hit and partial hit of every pair; returns how many texts were compared.
fn check(case: Case, pairs: &[Pair]) -> usize {
    let target = Checkpoint::open(&demo("target")).unwrap();
    let engine = start(case, 32);
    let request = |pair: &Pair, which: usize| {
        let mut request = greedy(pair.prompts[which].clone(), TOKENS);
        request.checkpoints = vec![pair.shared, request.prompt.len() - 1];
        request
    };
    let mut compared = 0;
    for group in pairs.chunks(case.company) {
        for (what, which) in [("miss", 0), ("hit", 0), ("partial", 1)] {
            let requests = group.iter().map(|pair| request(pair, which)).collect();
            for (pair, outcome) in group.iter().zip(together(&engine, requests)) {
                let prompt = &pair.prompts[which];
                let cached = match what {
                    "miss" => 0,
                    "hit" => prompt.len() - 1,
                    _ => pair.shared,
                };
                let what = format!("{case:?}, {} tokens, {what}", prompt.len());
                assert_eq!(outcome.terminal.usage.cached_tokens, cached, "{what}");
                let expected = &pair.expected[which];
                common::assert_same_text(&target, prompt, expected, &outcome.tokens, &what);
                compared += 1;
            }
        }
    }
    let stats = engine.stats();
    assert_eq!((stats.running, stats.free_blocks), (0, stats.total_blocks));
    compared
}

fn case(chunk: usize, speculation: Speculation, company: usize, ranks: usize) -> Case {
    Case {
        chunk,
        speculation,
        company,
        ranks,
    }
}

/// Other combinations and lengths in every run: one of each chunk size.
#[test]
fn a_part_of_the_matrix() {
    let seed = rand::random();
    eprintln!("seed {seed}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let pairs = pairs((0..4).map(|part| rng.random_range(40 + 32 * part..72 + 32 * part)));
    for chunk in CHUNKS {
        let speculation = match rng.random_bool(0.5) {
            true => dflash(15),
            false => Speculation::none(),
        };
        let company = if rng.random_bool(0.5) { 8 } else { 1 };
        let case = case(chunk, speculation, company, rng.random_range(1..=2));
        eprintln!("{case:?}");
        assert_eq!(check(case, &pairs), 12);
    }
}

/// The pairs of the whole matrix, their texts computed once for all of its tests.
static PAIRS: LazyLock<Vec<Pair>> = LazyLock::new(|| pairs(40..170));

/// Miss, hit and partial hit of 130 lengths: a test for each combination of the rest.
macro_rules! whole_matrix {
    ($($name:ident: $chunk:expr, $speculation:expr;)*) => {
        $(mod $name {
            whole_matrix!(alone: $chunk, $speculation, 1, 1);
            whole_matrix!(batch_of_8: $chunk, $speculation, 8, 1);
            whole_matrix!(alone_on_2_ranks: $chunk, $speculation, 1, 2);
            whole_matrix!(batch_of_8_on_2_ranks: $chunk, $speculation, 8, 2);
        })*
    };
    ($name:ident: $chunk:expr, $speculation:expr, $company:expr, $ranks:expr) => {
        #[test]
        #[ignore = "the whole matrix takes half an hour of a core"]
        fn $name() {
            let case = super::case($chunk, $speculation, $company, $ranks);
            let compared = super::check(case, &super::PAIRS);
            eprintln!("{case:?}: {compared} texts");
            assert_eq!(compared, 130 * 3);
        }
    };
}

whole_matrix! {
    chunks_of_1: 1, super::Speculation::none();
    chunks_of_1_dflash: 1, super::dflash(15);
    chunks_of_7: 7, super::Speculation::none();
    chunks_of_7_dflash: 7, super::dflash(15);
    chunks_of_64: 64, super::Speculation::none();
    chunks_of_64_dflash: 64, super::dflash(15);
    whole_prompts: usize::MAX, super::Speculation::none();
    whole_prompts_dflash: usize::MAX, super::dflash(15);
}
