//! Collectives of emulated ranks, one thread each, that really wait for each other.
#![cfg(feature = "emulate")]
#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use half::bf16;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use volley_kernels::{CudaOps, Driver, Emulated, Limits, Route, Wiring};
use volley_ops::{CANDIDATES, DRAWN_WIDTH, Dtype, Error, Growth, NormKind, Ops, Result, TOP_WIDTH};
use volley_ops_candle::CandleOps;

fn group(ranks: usize, wiring: Wiring) -> Vec<CudaOps> {
    let limits = Limits {
        rows: 64,
        segments: 2,
        blocks: 16,
        scratch_bytes: 1 << 10,
    };
    let driver = |_| Arc::new(Emulated::new(2)) as Arc<dyn Driver>;
    CudaOps::group((0..ranks).map(driver).collect(), limits, wiring).unwrap()
}

fn wiring(route: Route, slot_bytes: usize) -> Wiring {
    Wiring {
        route,
        slot_bytes,
        ..Wiring::default()
    }
}

/// What each rank's thread comes to, in rank order; no rank leaves before all are done.
fn on_threads<T: Send + 'static>(
    ranks: Vec<CudaOps>,
    body: impl Fn(&CudaOps) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let results = on_own_threads(ranks, move |ops| (body(&ops), ops));
    results.into_iter().map(|(result, _)| result).collect()
}

/// As before, each rank leaving with its thread; fails rather than hang.
fn on_own_threads<T: Send + 'static>(
    ranks: Vec<CudaOps>,
    body: impl Fn(CudaOps) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let body = Arc::new(body);
    let (sender, receiver) = std::sync::mpsc::channel();
    let count = ranks.len();
    for ops in ranks {
        let (body, sender) = (Arc::clone(&body), sender.clone());
        thread::spawn(move || {
            let rank = ops.rank();
            let _ = sender.send((rank, body(ops)));
        });
    }
    let limit = Duration::from_secs(30);
    let results = (0..count).map(|_| receiver.recv_timeout(limit).unwrap());
    let mut results: Vec<_> = results.collect();
    results.sort_by_key(|(rank, _)| *rank);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Numbers of many sizes, bf16.
fn numbers(rng: &mut ChaCha8Rng, n: usize) -> Vec<f32> {
    let number = |_| {
        let scale = f32::from(rng.random_range(-6i8..6)).exp2();
        bf16::from_f32(rng.random_range(-1.0..1.0f32) * scale).to_f32()
    };
    (0..n).map(number).collect()
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// The parts of all ranks and what is to come of them.
struct Round {
    rows: usize,
    parts: Vec<Vec<f32>>,
    residual: Vec<f32>,
    weight: Vec<f32>,
}

impl Round {
    fn new(seed: u64, ranks: usize, width: usize) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let rows = rng.random_range(1..8);
        Self {
            rows,
            parts: (0..ranks)
                .map(|_| numbers(&mut rng, rows * width))
                .collect(),
            residual: numbers(&mut rng, rows * width),
            weight: numbers(&mut rng, width),
        }
    }

    /// In rank order and f32.
    fn sum(&self, start: Option<&[f32]>) -> Vec<f32> {
        let sum = |i: usize| {
            let parts = self.parts[1..].iter();
            let sum = parts.fold(self.parts[0][i], |sum, part| sum + part[i]);
            bf16::from_f32(sum + start.map_or(0.0, |start| start[i])).to_f32()
        };
        (0..self.parts[0].len()).map(sum).collect()
    }
}

fn one_round(ops: &CudaOps, round: &Round, width: usize) -> Result<Vec<f32>> {
    let (rows, rank) = (round.rows, ops.rank());
    let own = &round.parts[rank];
    let mut x = ops.upload(own, rows, width, Dtype::Activation)?;
    ops.all_reduce(&mut x, rows)?;
    assert_eq!(bits(&ops.read(&x, 0..rows)?), bits(&round.sum(None)));

    let mut delta = ops.upload(own, rows, width, Dtype::Activation)?;
    let mut residual = ops.upload(&round.residual, rows, width, Dtype::Activation)?;
    let w = ops.upload(&round.weight, 1, width, Dtype::F32)?;
    let mut out = ops.alloc(rows, width, Dtype::Activation)?;
    let kind = NormKind::ZeroCentred;
    ops.reduce_add_rms_norm(&mut delta, rows, &mut residual, &w, kind, 1e-6, &mut out)?;
    let sum = round.sum(Some(&round.residual));
    assert_eq!(bits(&ops.read(&residual, 0..rows)?), bits(&sum));
    let out = ops.read(&out, 0..rows)?;
    for (out, sum) in out.chunks(width).zip(sum.chunks(width)) {
        let squares: f64 = sum.iter().map(|x| f64::from(*x).powi(2)).sum();
        let scale = 1.0 / (squares / width as f64 + 1e-6).sqrt();
        for ((out, x), w) in out.iter().zip(sum).zip(&round.weight) {
            let want = f64::from(*x) * scale * (1.0 + f64::from(*w));
            let error = (f64::from(*out) - want).abs();
            assert!(error <= 5e-3 * want.abs() + 1e-6, "{out} for {want}");
        }
    }
    Ok(out)
}

#[test]
fn all_ranks_hold_the_bits_of_the_sum_in_rank_order() {
    let cases = [
        // Slots of three rows: five rows take two launches.
        (2, 320, 3 * 640, Route::Peer, 24),
        (2, 5120, 3 * 10240, Route::Peer, 4),
        (3, 320, 1 << 16, Route::Host, 8),
        (4, 8, 1 << 10, Route::Peer, 8),
        // More than one unit a thread.
        (2, 5128, 1 << 17, Route::Peer, 2),
    ];
    for (ranks, width, slot_bytes, route, rounds) in cases {
        let results = on_threads(group(ranks, wiring(route, slot_bytes)), move |ops| {
            let round = |seed| one_round(ops, &Round::new(seed, ranks, width), width).unwrap();
            (0..rounds)
                .map(|seed| bits(&round(seed)))
                .collect::<Vec<_>>()
        });
        for rank in &results[1..] {
            assert_eq!(*rank, results[0], "{ranks} ranks, width {width}");
        }
    }
}

#[test]
fn gathered_words_keep_their_bits() {
    for (rows, width) in [(1, 1), (5, 3), (16, 33)] {
        on_threads(group(2, wiring(Route::Peer, 1 << 12)), move |ops| {
            let special = [
                0,
                1,
                0x8000_0000,
                0x7f80_0000,
                0xff80_0000,
                0x7fc0_0000,
                0xffff_fffe,
            ];
            let part = |rank: usize| -> Vec<u32> {
                let word = |i: usize| special[(i + 3 * rank) % special.len()];
                (0..rows * width).map(word).collect()
            };
            for _ in 0..5 {
                let own: Vec<f32> = part(ops.rank()).into_iter().map(f32::from_bits).collect();
                let x = ops.upload(&own, rows, width, Dtype::F32).unwrap();
                let mut all = ops.alloc(rows, 2 * width, Dtype::F32).unwrap();
                ops.all_gather(&x, rows, &mut all).unwrap();
                let got = ops.read(&all, 0..rows).unwrap();
                for (row, got) in got.chunks(2 * width).enumerate() {
                    let want = [0, 1].map(|rank| part(rank)[row * width..][..width].to_vec());
                    assert_eq!(bits(got), want.concat());
                }
            }
        });
    }
}

#[test]
fn the_words_of_all_ones_come_as_another_nan() {
    on_threads(group(2, Wiring::default()), |ops| {
        let x = ops
            .upload(&[f32::from_bits(u32::MAX)], 1, 1, Dtype::F32)
            .unwrap();
        let mut all = ops.alloc(1, 2, Dtype::F32).unwrap();
        ops.all_gather(&x, 1, &mut all).unwrap();
        let got = ops.read(&all, 0..1).unwrap();
        assert!(got.iter().all(|x| x.is_nan()), "{got:?}");
        assert_eq!(got[0].to_bits(), got[1].to_bits());
    });
}

#[test]
fn the_self_test_passes() {
    for (ranks, route) in [
        (1, Route::Peer),
        (2, Route::Peer),
        (2, Route::Host),
        (3, Route::Peer),
    ] {
        CudaOps::self_test(&mut group(ranks, wiring(route, 1 << 15))).unwrap();
    }
}

fn lost(error: Error, waiting: usize) {
    match error {
        Error::RankLost { rank, .. } => assert_eq!(rank, waiting),
        other => panic!("{other}"),
    }
}

fn reduce(ops: &CudaOps, rows: usize) -> Result<Vec<f32>> {
    let mut x = ops.upload(&vec![1.0; 64 * rows], rows, 64, Dtype::Activation)?;
    ops.all_reduce(&mut x, rows)?;
    ops.read(&x, 0..rows)
}

/// Little patience, though enough for a busy machine.
fn hurried() -> Wiring {
    Wiring {
        patience: Duration::from_millis(500),
        ..Wiring::default()
    }
}

#[test]
fn a_rank_that_stays_away_fails_the_others_within_their_patience() {
    let results = on_threads(group(3, hurried()), |ops| {
        // It holds on to its end, so that nothing but time tells the others.
        if ops.rank() == 1 {
            return None;
        }
        let begun = Instant::now();
        let first = reduce(ops, 2).unwrap_err();
        let waited = begun.elapsed();
        lost(reduce(ops, 2).unwrap_err(), ops.rank());
        Some((first, waited))
    });
    for (rank, result) in results.into_iter().enumerate() {
        assert_eq!(result.is_none(), rank == 1);
        if let Some((error, waited)) = result {
            lost(error, rank);
            assert!(waited < Duration::from_secs(5), "{waited:?}");
        }
    }
}

#[test]
fn a_rank_that_leaves_fails_the_others_at_once() {
    let results = on_own_threads(group(2, Wiring::default()), |ops| {
        if ops.rank() == 0 {
            return None;
        }
        let begun = Instant::now();
        let error = reduce(&ops, 1).unwrap_err();
        Some((error, begun.elapsed()))
    });
    let (error, waited) = results.into_iter().nth(1).unwrap().unwrap();
    lost(error, 1);
    assert!(waited < Wiring::default().patience, "{waited:?}");
}

#[test]
fn ranks_that_disagree_about_the_rows_fail_instead_of_hanging() {
    let results = on_threads(group(2, hurried()), |ops| {
        // The one that expects less is content; the next collective fails for both.
        let first = reduce(ops, 1 + ops.rank());
        (first.is_ok(), reduce(ops, 1).is_ok())
    });
    assert!(!results[1].0);
    assert!(!results[0].1 && !results[1].1);
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let ops = group(1, wiring(Route::Peer, 1024)).pop().unwrap();
    for (width, expected) in [
        (12, "width is 12, expected a multiple of 8"),
        (10248, "width is 10248, expected at most 10240"),
        (1024, "bytes of a row is 2048, expected at most 1024"),
    ] {
        let mut x = ops
            .upload(&vec![1.0; width], 1, width, Dtype::Activation)
            .unwrap();
        let error = ops.all_reduce(&mut x, 1).unwrap_err().to_string();
        assert_eq!(error, format!("all_reduce: {expected}"));
    }
    let wide = CudaOps::group(Vec::new(), Limits::default(), Wiring::default());
    let error = wide.err().unwrap().to_string();
    assert_eq!(error, "exchange: number of ranks is 0, expected 1 to 8");
}

/// Every rank grows the tree that one rank would of all logits, also where one of them has few candidates, or
/// all of the likeliest.
#[test]
fn ranks_grow_the_same_trees() {
    const ROWS: usize = 15;
    let cpu = CandleOps::single(candle_core::Device::Cpu);
    for ranks in [2, 4] {
        for (kind, share) in [(0, 40), (1, 40), (2, 40), (3, 100), (4, 8)] {
            let mut rng = ChaCha8Rng::seed_from_u64(kind);
            let width = ranks * share;
            let logit = |i: usize| {
                let x = rng.random_range(-3.0..3.0f32);
                match kind {
                    0 => x.round(),
                    1 if i % width < share => x + 10.0,
                    2 if i % width < share && !i.is_multiple_of(5) => f32::NEG_INFINITY,
                    _ => x,
                }
            };
            let logits: Vec<f32> = (0..ROWS * width).map(logit).collect();
            let trees =
                [(31, true, 64), (63, false, 64), (31, true, 3)].map(|(budget, seeded, most)| {
                    Growth {
                        first: 0,
                        depth: ROWS,
                        budget,
                        seeded,
                        temperature: 0.8,
                        candidates: CANDIDATES.min(width).min(most),
                        to: if seeded {
                            63 + 31 * usize::from(most == 3)
                        } else {
                            0
                        },
                    }
                });
            let top = |width: usize, first: usize, logits: &[f32]| {
                let x = cpu.upload(logits, ROWS, width, Dtype::F32).unwrap();
                let mut out = cpu.alloc(ROWS, TOP_WIDTH, Dtype::F32).unwrap();
                cpu.top(&x, ROWS, first as u32, u32::MAX, &mut out).unwrap();
                out
            };
            let mut out = cpu.alloc(125, DRAWN_WIDTH, Dtype::F32).unwrap();
            cpu.grow(&top(width, 0, &logits), &trees, &mut out).unwrap();
            let expected = cpu.read(&out, 0..125).unwrap();
            let parts: Vec<Vec<f32>> = (0..ranks)
                .map(|rank| {
                    let share = logits
                        .chunks(width)
                        .flat_map(|row| row[rank * share..][..share].to_vec());
                    let share: Vec<f32> = share.collect();
                    let top = top(width / ranks, rank * width / ranks, &share);
                    cpu.read(&top, 0..ROWS).unwrap()
                })
                .collect();
            let rows = (0..ROWS).flat_map(|row| {
                let parts = parts.iter();
                parts.flat_map(move |part| &part[row * TOP_WIDTH..][..TOP_WIDTH])
            });
            let rows: Vec<f32> = rows.copied().collect();
            let group = group(ranks, Wiring::default());
            let found = group.iter().map(|ops| {
                let tops = ops.upload(&rows, ROWS, ranks * TOP_WIDTH, Dtype::F32);
                let mut out = ops.alloc(125, DRAWN_WIDTH, Dtype::F32).unwrap();
                ops.grow(&tops.unwrap(), &trees, &mut out).unwrap();
                ops.read(&out, 0..125).unwrap()
            });
            for found in found {
                assert_eq!(found, expected, "{ranks} ranks, kind {kind}");
            }
        }
    }
}
