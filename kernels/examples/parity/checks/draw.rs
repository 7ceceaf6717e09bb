//! Tokens drawn on the device, and passes that begin with them.

use volley_ops::{CANDIDATES, DRAWN, DRAWN_WIDTH, Draw, DrawFrom, Dtype, Ops, Result, TOP_WIDTH};

use super::Checks;
use crate::pair::{Devices, Pair};

const GREEDY: Draw = Draw::GREEDY;
const WARM: Draw = Draw {
    temperature: 1.0,
    ..GREEDY
};

/// Draws that candidates decide, and such that they do not: each filter alone, all together, and next to
/// nothing.
const DRAWS: &[(&str, Draw)] = &[
    ("greedy", GREEDY),
    (
        "cold",
        Draw {
            temperature: 0.6,
            top_p: 0.95,
            top_k: 20,
            ..WARM
        },
    ),
    ("top 1", Draw { top_k: 1, ..WARM }),
    ("top 64", Draw { top_k: 64, ..WARM }),
    ("top 65", Draw { top_k: 65, ..WARM }),
    (
        "top 1000",
        Draw {
            temperature: 2.0,
            top_k: 1000,
            ..WARM
        },
    ),
    ("all", WARM),
    (
        "hot",
        Draw {
            temperature: 1.7,
            top_p: 0.9,
            ..WARM
        },
    ),
    (
        "coldest",
        Draw {
            temperature: 0.1,
            ..WARM
        },
    ),
    (
        "nucleus",
        Draw {
            temperature: 0.8,
            top_p: 0.5,
            ..WARM
        },
    ),
    ("smallest nucleus", Draw { top_p: 0.1, ..WARM }),
    (
        "floor",
        Draw {
            temperature: 1.5,
            min_p: 0.1,
            ..WARM
        },
    ),
    (
        "everything",
        Draw {
            temperature: 1.3,
            top_k: 300,
            top_p: 0.8,
            min_p: 0.01,
            ..WARM
        },
    ),
];

/// The tokens must be the same: both sides decide in f64, and a race that is that close does not come
/// up in these numbers.
pub fn draw(checks: &mut Checks) {
    // Fewer tokens than candidates, as many, a few more, and slices of all lengths.
    let mut shapes = vec![(1, 5), (3, 64), (4, 65), (5, 700), (1, 9001)];
    if checks.full() {
        shapes.extend([(40, 4096), (1, 248_320), (3, 151_937)]);
    }
    for (name, draw) in DRAWS {
        for &(n, width) in &shapes {
            checks.case("draw", format!("{n} rows of {width}, {name}"), |d| {
                let logits = d.numbers(n * width, 4.0);
                drawn(d, logits, [n, width], width as u32, *draw)
            });
        }
        checks.case("draw", format!("ties, {name}"), |d| {
            let logits = d.numbers(2 * 5000, 1.0);
            let logits = logits.iter().map(|x| (4.0 * x).round());
            drawn(d, logits.collect(), [2, 5000], 4999, *draw)
        });
        checks.case("draw", format!("flat, {name}"), |d| {
            drawn(d, vec![2.5; 4200], [1, 4200], 4200, *draw)
        });
        checks.case("draw", format!("holes, {name}"), |d| {
            let mut logits = d.numbers(5000, 6.0);
            for (i, x) in logits.iter_mut().enumerate() {
                if i > 70 && i % 3 > 0 {
                    *x = f32::NEG_INFINITY;
                }
            }
            drawn(d, logits, [1, 5000], 4700, *draw)
        });
        checks.case("draw", format!("one far ahead, {name}"), |d| {
            let mut logits = d.numbers(2 * 3000, 1.0);
            logits[2345] = 300.0;
            logits[3000 + 17] = 30.0;
            drawn(d, logits, [2, 3000], 3000, *draw)
        });
        checks.case("draw", format!("rows apart, {name}"), |d| {
            rows_apart(d, *draw)
        });
        checks.case("draw", format!("no rows, {name}"), |d| broken(d, *draw));
    }
    if checks.full() {
        for (name, draw) in [DRAWS[6], DRAWS[12]] {
            checks.case("draw", format!("16 rows of 248320, {name}"), |d| {
                let logits = d.numbers(16 * 248_320, 12.0);
                drawn(d, logits, [16, 248_320], 248_077, draw)
            });
        }
    }
    law(checks);
    checks.case("draw", "no candidates".to_string(), |d| {
        let mut row = vec![f32::NEG_INFINITY; TOP_WIDTH];
        row[CANDIDATES..].fill(0.0);
        let tops = d.pair(row, 1, TOP_WIDTH, Dtype::F32)?;
        let mut out = d.output(1, DRAWN_WIDTH, Dtype::F32)?;
        let (cpu, gpu) = sides(&tops, None, u32::MAX, 0);
        d.cpu.draw(&cpu, &[GREEDY], &mut out.cpu)?;
        d.gpu.draw(&gpu, &[GREEDY], &mut out.gpu)?;
        let [cpu, gpu] = [d.cpu.read(&out.cpu, 0..1)?, d.gpu.read(&out.gpu, 0..1)?];
        Ok(vec![(f64::from(u8::from(cpu != gpu)), 0.0)])
    });
    checks.case("draw", "candidates alone".to_string(), |d| {
        let tops = d.output(1, TOP_WIDTH, Dtype::F32)?;
        let mut out = d.output(1, DRAWN_WIDTH, Dtype::F32)?;
        let (cpu, gpu) = sides(&tops, None, u32::MAX, 0);
        let refused = d.cpu.draw(&cpu, &[WARM], &mut out.cpu).is_err()
            && d.gpu.draw(&gpu, &[WARM], &mut out.gpu).is_err();
        Ok(vec![(f64::from(u8::from(!refused)), 0.0)])
    });
}

fn at(draw: Draw, row: u64) -> Draw {
    Draw {
        seed: 0x9e37_79b9_7f4a_7c15 ^ (row % 3),
        position: 1000 + row,
        ..draw
    }
}

type From<'a, O> = DrawFrom<'a, <O as Ops>::Buf>;
type Cpu = volley_ops_candle::CandleOps;
type Gpu = volley_kernels::CudaOps;

fn sides<'a>(
    tops: &'a Pair,
    whole: Option<&'a Pair>,
    allowed: u32,
    first: usize,
) -> (From<'a, Cpu>, From<'a, Gpu>) {
    (
        DrawFrom {
            tops: &tops.cpu,
            whole: whole.map(|whole| &whole.cpu),
            allowed,
            first,
        },
        DrawFrom {
            tops: &tops.gpu,
            whole: whole.map(|whole| &whole.gpu),
            allowed,
            first,
        },
    )
}

/// Logits and their candidates.
fn ranked(
    d: &mut Devices,
    logits: Vec<f32>,
    [n, width]: [usize; 2],
    allowed: u32,
) -> Result<(Pair, Pair)> {
    let x = d.pair(logits, n, width, Dtype::F32)?;
    let mut tops = d.output(n, TOP_WIDTH, Dtype::F32)?;
    d.cpu.top(&x.cpu, n, 0, allowed, &mut tops.cpu)?;
    d.gpu.top(&x.gpu, n, 0, allowed, &mut tops.gpu)?;
    Ok((x, tops))
}

/// A token from each row, and their embeddings.
fn drawn(
    d: &mut Devices,
    logits: Vec<f32>,
    [n, width]: [usize; 2],
    allowed: u32,
    draw: Draw,
) -> Result<Vec<(f64, f64)>> {
    let (x, tops) = ranked(d, logits, [n, width], allowed)?;
    let draws: Vec<Draw> = (0..n as u64).map(|row| at(draw, row)).collect();
    let mut out = d.output(n, DRAWN_WIDTH, Dtype::F32)?;
    let (cpu, gpu) = sides(&tops, Some(&x), allowed, 0);
    d.cpu.draw(&cpu, &draws, &mut out.cpu)?;
    d.gpu.draw(&gpu, &draws, &mut out.gpu)?;
    let tokens = d.distance(&out, n)?;
    let embedded = match width {
        0..2000 => embedded(d, &out, n, width)?,
        _ => 0.0,
    };
    Ok(vec![(tokens, 0.0), (embedded, 0.0)])
}

/// Draws from whole rows that begin at another row than the candidates, beside draws that need none.
fn rows_apart(d: &mut Devices, draw: Draw) -> Result<Vec<(f64, f64)>> {
    let (n, width, first) = (7, 600, 3);
    let logits = d.numbers(n * width, 2.0);
    let behind = logits[first * width..].to_vec();
    let (_, tops) = ranked(d, logits, [n, width], 599)?;
    let whole = d.pair(behind, n - first, width, Dtype::F32)?;
    let draws: Vec<Draw> = (first..n)
        .map(|row| at(if row == 4 { GREEDY } else { draw }, row as u64))
        .collect();
    let mut out = d.output(n, DRAWN_WIDTH, Dtype::F32)?;
    let (cpu, gpu) = sides(&tops, Some(&whole), 599, first);
    d.cpu.draw(&cpu, &draws, &mut out.cpu)?;
    d.gpu.draw(&gpu, &draws, &mut out.gpu)?;
    let [cpu, gpu] = [d.cpu.read(&out.cpu, 0..n)?, d.gpu.read(&out.gpu, 0..n)?];
    let written = |values: &[f32]| values[..2 * first].iter().any(|x| !x.is_nan());
    let wrong = written(&cpu) || written(&gpu) || cpu[2 * first..] != gpu[2 * first..];
    Ok(vec![(f64::from(u8::from(wrong)), 0.0)])
}

/// Rows without a distribution give any token, and do not disturb their neighbours.
fn broken(d: &mut Devices, draw: Draw) -> Result<Vec<(f64, f64)>> {
    let (n, width) = (5, 1000);
    let mut logits = d.numbers(n * width, 3.0);
    logits[10] = f32::NAN;
    logits[2 * width + 999] = f32::INFINITY;
    logits[4 * width..].fill(f32::NEG_INFINITY);
    let (x, tops) = ranked(d, logits, [n, width], width as u32)?;
    let draws: Vec<Draw> = (0..n as u64).map(|row| at(draw, row)).collect();
    let mut out = d.output(n, DRAWN_WIDTH, Dtype::F32)?;
    let (cpu, gpu) = sides(&tops, Some(&x), width as u32, 0);
    d.cpu.draw(&cpu, &draws, &mut out.cpu)?;
    d.gpu.draw(&gpu, &draws, &mut out.gpu)?;
    let [cpu, gpu] = [d.cpu.read(&out.cpu, 0..n)?, d.gpu.read(&out.gpu, 0..n)?];
    let same = [1, 3]
        .iter()
        .all(|row| cpu[2 * row..][..2] == gpu[2 * row..][..2]);
    let tokens = gpu
        .chunks(2)
        .all(|row| (0.0..width as f32).contains(&row[0]));
    Ok(vec![(f64::from(u8::from(!same || !tokens)), 0.0)])
}

/// Tokens come with their probabilities: chi-square over 1,000 seeds of 200 tokens in 20 groups, where
/// 45.3 (19 degrees of freedom) has a chance of 0.06 %.
fn law(checks: &mut Checks) {
    checks.case("draw", "law of the tokens".to_string(), |d| {
        let (n, width, groups) = (1000, 200, 20);
        let row = d.numbers(width, 2.0);
        let sum: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
        let logits = row.repeat(n);
        let (x, tops) = ranked(d, logits, [n, width], width as u32)?;
        let seeded = |seed| Draw { seed, ..WARM };
        let draws: Vec<Draw> = (0..n as u64).map(seeded).collect();
        let mut out = d.output(n, DRAWN_WIDTH, Dtype::F32)?;
        let (_, gpu) = sides(&tops, Some(&x), width as u32, 0);
        d.gpu.draw(&gpu, &draws, &mut out.gpu)?;
        let mut counts = vec![0.0; groups];
        for row in d.gpu.read(&out.gpu, 0..n)?.chunks(2) {
            counts[row[0] as usize % groups] += 1.0;
        }
        let share = |group: usize| {
            let members = row.iter().skip(group).step_by(groups);
            members.map(|x| f64::from(*x).exp()).sum::<f64>() / sum
        };
        let terms = counts.iter().enumerate().map(|(group, count)| {
            let expected = n as f64 * share(group);
            (count - expected) * (count - expected) / expected
        });
        Ok(vec![(terms.sum(), 45.3)])
    });
}

/// Known tokens and drawn ones, in turn.
fn embedded(d: &mut Devices, drawn: &Pair, n: usize, width: usize) -> Result<f64> {
    let table = d.weight(width, 64)?;
    let id = |row: u32| match row % 4 {
        0 => row % width as u32,
        _ => DRAWN | row,
    };
    let ids: Vec<u32> = (0..n as u32).map(id).collect();
    let mut out = d.output(n, 64, Dtype::Activation)?;
    d.cpu
        .embed_drawn(&ids, &drawn.cpu, &table.cpu, 0, &mut out.cpu)?;
    d.gpu
        .embed_drawn(&ids, &drawn.gpu, &table.gpu, 0, &mut out.gpu)?;
    d.distance(&out, n)
}
