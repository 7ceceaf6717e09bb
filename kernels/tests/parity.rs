//! The kernels, emulated on the CPU, against the CPU implementation of every operation.
#![cfg(feature = "emulate")]

#[path = "../examples/parity/checks/mod.rs"]
mod checks;
#[path = "../examples/parity/pair.rs"]
mod pair;

use std::sync::Arc;

use checks::{ALL, Checks, Scale};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use volley_kernels::{CudaOps, Emulated, Limits};
use volley_ops_candle::CandleOps;

/// Runs the checks of this name. Few multiprocessors leave the keys whole, many split them.
fn check(name: &str, multiprocessors: usize) -> Arc<Emulated> {
    check_within(name, multiprocessors, 16 << 20)
}

fn check_within(name: &str, multiprocessors: usize, scratch_bytes: usize) -> Arc<Emulated> {
    let limits = Limits {
        rows: 4096,
        segments: 8,
        blocks: 4096,
        scratch_bytes,
    };
    let driver = Arc::new(Emulated::new(multiprocessors));
    let gpu = CudaOps::with_driver(Arc::clone(&driver) as _, limits).expect("host memory");
    let cpu = CandleOps::single(candle_core::Device::Cpu);
    let mut checks = Checks {
        devices: pair::Devices {
            cpu: &cpu,
            gpu: &gpu,
            rng: ChaCha8Rng::seed_from_u64(7),
        },
        scale: Scale::Small,
        goldens: checks::goldens(),
        outcomes: Vec::new(),
        tell: |outcome| println!("{} {}: {:.1e}", outcome.op, outcome.case, outcome.error),
    };
    let (_, run) = ALL.iter().find(|(n, _)| *n == name).expect("a known check");
    run(&mut checks);
    let failed: Vec<_> = checks.outcomes.iter().filter(|o| !o.passed()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(!checks.outcomes.is_empty());
    driver
}

macro_rules! tests {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            check(stringify!($name), 1);
        }
    )*};
}

tests! {
    rows norm top draw edit grow walk swiglu linear linear_swiglu gdn_prepare gdn_verify gdn_commit commit_layers
    gdn_prefill conv_commit gated_norm attention_prepare attention attention_of_prompts kv_commit golden
}

#[test]
fn attention_split_over_the_keys() {
    check("attention", 8);
    check("attention_of_prompts", 8);
}

/// So many multiprocessors that small tiles are best.
#[test]
fn attention_of_few_rows() {
    check("attention", 1000);
}

/// Many multiprocessors have room for all blocks at once.
#[test]
fn gdn_verify_of_few_blocks() {
    check("gdn_verify", 1000);
}

/// Many multiprocessors take narrow slices; little memory takes prompts in parts.
#[test]
fn gdn_prefill_in_narrow_slices_and_parts() {
    check_within("gdn_prefill", 1000, 2 << 20);
}

/// Passes of one shape are recorded, and the records repeated.
#[test]
fn model() {
    let driver = check("model", 1);
    assert!(driver.replays() >= 10, "{} replays", driver.replays());
}
