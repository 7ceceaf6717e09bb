//! Trees grown on the device.

use volley_ops::{CANDIDATES, DRAWN_WIDTH, Dtype, Growth, Ops, Result, TOP_WIDTH};

use super::Checks;
use crate::pair::Devices;

/// Node by node the same: surprisals are whole numbers.
pub fn grow(checks: &mut Checks) {
    let kinds = ["random", "coarse", "alike", "holes", "sure", "bad"];
    for kind in kinds {
        for width in [7, 64, 300] {
            for seeded in [true, false] {
                for temperature in [1.0, 0.6, 1e-6, 50.0] {
                    let case = format!("{kind} of {width}, seeded {seeded}, at {temperature}");
                    checks.case("grow", case, |d| {
                        let logits = logits(d, kind, width);
                        grown(d, logits, width, seeded, temperature)
                    });
                }
            }
        }
    }
    checks.case("grow", "more trees than a launch takes".to_string(), |d| {
        let logits = logits(d, "random", 100);
        let trees: Vec<Growth> = (0..70)
            .map(|i| tree(i % 5, 1 + i % 9, 7, i % 2 == 0, 64, 7 * i))
            .collect();
        compared(d, logits, 100, &trees)
    });
    checks.case("grow", "trees that are not full".to_string(), |d| {
        let tops = d.output(ROWS, TOP_WIDTH, Dtype::F32)?;
        let mut out = d.output(70, DRAWN_WIDTH, Dtype::F32)?;
        let wrong = [
            tree(0, 2, 7, true, 2, 0),
            tree(0, 15, 64, true, 64, 0),
            tree(0, 64, 63, true, 64, 0),
            tree(0, 15, 63, true, CANDIDATES + 1, 0),
            tree(ROWS, 2, 2, true, 64, 0),
            tree(0, 2, 2, true, 64, 70),
        ];
        let taken = wrong.iter().filter(|tree| {
            let trees = std::slice::from_ref(*tree);
            d.gpu.grow(&tops.gpu, trees, &mut out.gpu).is_ok()
        });
        Ok(vec![(taken.count() as f64, 0.0)])
    });
}

/// Depths of a block.
const ROWS: usize = 15;

fn tree(
    first: usize,
    depth: usize,
    budget: usize,
    seeded: bool,
    candidates: usize,
    to: usize,
) -> Growth {
    Growth {
        first,
        depth,
        budget,
        seeded,
        temperature: 1.0,
        candidates,
        to,
    }
}

fn logits(d: &mut Devices, kind: &str, width: usize) -> Vec<f32> {
    let mut logits = d.numbers(ROWS * width, 4.0);
    for (i, x) in logits.iter_mut().enumerate() {
        match kind {
            "coarse" => *x = x.round(),
            "alike" => *x = 1.0,
            "holes" if i % 3 > 0 => *x = f32::NEG_INFINITY,
            "sure" if i % width == i / width % width => *x = 40.0,
            "bad" => match i % 50 {
                0 => *x = f32::INFINITY,
                1..20 => *x = f32::NEG_INFINITY,
                _ => {}
            },
            _ => {}
        }
    }
    logits
}

/// Trees of several sizes of the same rows.
fn grown(
    d: &mut Devices,
    logits: Vec<f32>,
    width: usize,
    seeded: bool,
    temperature: f32,
) -> Result<Vec<(f64, f64)>> {
    let few = width.min(CANDIDATES);
    let shapes = [
        (0, 15, 63, few),
        (0, 15, 31, few),
        (1, 3, 14, few.min(5)),
        (2, 9, 9, 1),
        (14, 1, few.min(63), few),
        (7, 8, 5, few),
        (0, 15, 1, few),
    ];
    let mut to = 1;
    let mut trees = Vec::new();
    for (first, depth, budget, candidates) in shapes {
        trees.push(Growth {
            temperature,
            ..tree(first, depth, budget, seeded, candidates, to)
        });
        to += budget;
    }
    compared(d, logits, width, &trees)
}

/// Grows trees on both devices from the candidates that the CPU finds.
fn compared(
    d: &mut Devices,
    logits: Vec<f32>,
    width: usize,
    trees: &[Growth],
) -> Result<Vec<(f64, f64)>> {
    let x = d.cpu.upload(&logits, ROWS, width, Dtype::F32)?;
    let mut tops = d.cpu.alloc(ROWS, TOP_WIDTH, Dtype::F32)?;
    d.cpu.top(&x, ROWS, 0, width as u32, &mut tops)?;
    let tops = d.pair(d.cpu.read(&tops, 0..ROWS)?, ROWS, TOP_WIDTH, Dtype::F32)?;
    let nodes = trees
        .iter()
        .map(|tree| tree.to + tree.budget)
        .max()
        .unwrap_or(0);
    let mut out = d.output(nodes, DRAWN_WIDTH, Dtype::F32)?;
    d.cpu.grow(&tops.cpu, trees, &mut out.cpu)?;
    d.gpu.grow(&tops.gpu, trees, &mut out.gpu)?;
    let all = 0..nodes + 1;
    let [cpu, gpu] = [
        d.cpu.read(&out.cpu, all.clone())?,
        d.gpu.read(&out.gpu, all)?,
    ];
    let pairs = cpu.iter().zip(&gpu);
    let wrong = pairs.filter(|(a, b)| a != b && !(a.is_nan() && b.is_nan()));
    Ok(vec![(wrong.count() as f64, 0.0)])
}
