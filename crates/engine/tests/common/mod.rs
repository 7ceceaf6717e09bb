//! Engines on the tiny golden pair (random weights) and what the tests ask of them.
#![allow(clippy::unwrap_used, dead_code, missing_docs)]

pub mod faulty;

use std::path::{Path, PathBuf};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use volley_engine::{
    Engine, EngineHandle, EngineOptions, Request, RequestUpdate, Sources, SpeculateOptions,
    Speculation, Terminal,
};
use volley_model::{Checkpoint, Limits, Target};
use volley_ops::{Batch, Ops, Segment};
use volley_ops_candle::CandleOps;
use volley_speculate::Method;

/// Ids of prompts are below; the special ones of the tiny pair lie above.
const TOKENS: u32 = 500;

pub fn folder(name: &str) -> PathBuf {
    let golden = "../model/tests/golden";
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(golden)
        .join(name)
}

pub fn sources() -> Sources {
    Sources {
        target: Checkpoint::open(&folder("target")).unwrap(),
        drafter: Some(Checkpoint::open(&folder("drafter")).unwrap()),
    }
}

pub fn dflash(max_drafts: usize) -> Speculation {
    Speculation::dflash(max_drafts)
}

/// All methods on one engine, for requests to choose from.
pub fn every_method() -> Speculation {
    Speculation {
        mtp: true,
        tree_budget: 63,
        ..Speculation::of(Method::Auto)
    }
}

/// A choice of method.
pub fn by(method: Method) -> SpeculateOptions {
    SpeculateOptions {
        method: Some(method),
        ..SpeculateOptions::default()
    }
}

pub fn options(speculation: Speculation) -> EngineOptions {
    EngineOptions {
        max_model_len: Some(512),
        speculation,
        // The ways of a GPU; the others are those of every test that serves on the processor.
        ahead: true,
        ..EngineOptions::default()
    }
}

/// Without drafts, and without anything that a device does before the host knows.
pub fn by_host() -> EngineOptions {
    EngineOptions {
        ahead: false,
        ..options(Speculation::none())
    }
}

pub fn start(options: EngineOptions) -> EngineHandle {
    Engine::start(options, sources()).unwrap()
}

pub fn prompt(seed: u64, len: usize) -> Vec<u32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..len).map(|_| rng.random_range(0..TOKENS)).collect()
}

pub fn greedy(prompt: Vec<u32>, max_tokens: usize) -> Request {
    Request::new(prompt, max_tokens)
}

pub fn sampled(prompt: Vec<u32>, max_tokens: usize, temperature: f32, seed: u64) -> Request {
    let mut request = greedy(prompt, max_tokens);
    request.sampling.temperature = temperature;
    request.sampling.seed = seed;
    request
}

/// At this temperature both models are nearly flat, and the noise they share makes drafter and
/// target agree: whole blocks are accepted although the weights are random.
pub const FLAT: f32 = 40.0;

/// A finished request.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub tokens: Vec<u32>,
    pub updates: Vec<RequestUpdate>,
    pub terminal: Terminal,
}

pub fn wait(updates: &async_channel::Receiver<RequestUpdate>) -> Outcome {
    let mut all = Vec::new();
    loop {
        let update = updates
            .recv_blocking()
            .expect("a terminal comes before the end");
        let terminal = update.terminal.clone();
        all.push(update);
        if let Some(terminal) = terminal {
            assert!(
                updates.recv_blocking().is_err(),
                "nothing follows a terminal"
            );
            return Outcome {
                tokens: all.iter().flat_map(|u| u.tokens.clone()).collect(),
                updates: all,
                terminal,
            };
        }
    }
}

pub fn run(engine: &EngineHandle, request: Request) -> Outcome {
    wait(&engine.submit(request).unwrap())
}

/// Difference of the two largest target logits behind `ids`.
pub fn gap(target: &Checkpoint, ids: &[u32]) -> f32 {
    let ops = CandleOps::single(candle_core::Device::Cpu);
    let blocks = ids.len().div_ceil(ops.block_size());
    let limits = Limits {
        max_rows: ids.len(),
        verify_rows: 1,
        slots: 1,
        blocks,
    };
    let mut target = Target::load(&ops, target, &[], limits).unwrap();
    let batch = Batch {
        segments: vec![Segment {
            rows: 0..ids.len(),
            slot: 0,
            past: 0,
            blocks: (0..blocks as u32).collect(),
            parents: None,
        }],
    };
    target.prefill(&ops, ids, &batch).unwrap();
    let mut logits = target.logits(&ops, &[ids.len() as u32 - 1]).unwrap();
    logits.sort_by(|a, b| b.total_cmp(a));
    logits[0] - logits[1]
}

/// Greedy texts must be equal, but for a near tie at the first difference, which is reported.
pub fn assert_same_text(target: &Checkpoint, prompt: &[u32], a: &[u32], b: &[u32], what: &str) {
    if a == b {
        return;
    }
    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let ids = [prompt, &a[..same]].concat();
    let gap = gap(target, &ids);
    eprintln!("{what}: token {same} differs at a gap of {gap:e}");
    assert!(
        gap < 1e-3,
        "{what}: token {same} differs at a gap of {gap}: {:?} and {:?}",
        a.get(same),
        b.get(same)
    );
}
