//! Moving rows, norms, the feed-forward gate, products.

use volley_kernels::LinearKernel;
use volley_ops::{Dtype, NormKind, Ops, Result, TOP_WIDTH};

use super::{BF16, Checks, F32};

pub fn rows(checks: &mut Checks) {
    noise(checks);
    for (n, width) in [(1, 8), (5, 64), (17, 1288), (33, 260)] {
        checks.case("embed", format!("{n} x {width}"), |d| {
            let table = d.weight(50, width)?;
            let ids: Vec<u32> = (0..n).map(|i| (i as u32 * 37) % 90).collect();
            let mut out = d.output(n, width, Dtype::Activation)?;
            d.cpu.embed(&ids, &table.cpu, 20, &mut out.cpu)?;
            d.gpu.embed(&ids, &table.gpu, 20, &mut out.gpu)?;
            Ok(vec![(d.distance(&out, n)?, 0.0)])
        });
        for dtype in [Dtype::Activation, Dtype::F32] {
            checks.case("gather", format!("{n} x {width} {dtype:?}"), |d| {
                let data = d.numbers(40 * width, 1.0);
                let x = d.pair(data, 40, width, dtype)?;
                let index: Vec<u32> = (0..n).map(|i| (i as u32 * 13) % 40).collect();
                let mut out = d.output(n, width, dtype)?;
                d.cpu.gather(&x.cpu, &index, &mut out.cpu)?;
                d.gpu.gather(&x.gpu, &index, &mut out.gpu)?;
                Ok(vec![(d.distance(&out, n)?, 0.0)])
            });
        }
        for dtype in [Dtype::Activation, Dtype::F32] {
            checks.case("copy_row", format!("{n} x {width} {dtype:?}"), |d| {
                let data = d.numbers(n * width, 1.0);
                let mut x = d.pair(data, n, width, dtype)?;
                for (from, to) in [(0, n - 1), (n / 2, 0), (n - 1, n - 1)] {
                    d.cpu.copy_row(&mut x.cpu, from, to)?;
                    d.gpu.copy_row(&mut x.gpu, from, to)?;
                }
                Ok(vec![(d.distance(&x, n)?, 0.0)])
            });
        }
        for column in [0, 8, 3] {
            checks.case("copy_columns", format!("{n} x {width} at {column}"), |d| {
                let x = d.random(n, width, 1.0)?;
                let mut out = d.output(n, width + 24, Dtype::Activation)?;
                d.cpu.copy_columns(&x.cpu, n, &mut out.cpu, column)?;
                d.gpu.copy_columns(&x.gpu, n, &mut out.gpu, column)?;
                // The other columns are still not numbers: only those written are compared.
                let part = |all: Vec<f32>| -> Vec<f32> {
                    let rows = all.chunks_exact(width + 24);
                    rows.flat_map(|row| row[column..column + width].to_vec())
                        .collect()
                };
                let same = part(d.cpu.read(&out.cpu, 0..n)?) == part(d.gpu.read(&out.gpu, 0..n)?);
                Ok(vec![(if same { 0.0 } else { f64::INFINITY }, 0.0)])
            });
        }
    }
}

/// Dummy weights have no twin: their values are looked at.
fn noise(checks: &mut Checks) {
    checks.case("noise", "64 x 128".to_string(), |d| {
        let ids: Vec<u32> = (0..64).collect();
        let read = |seed| -> Result<Vec<f32>> {
            let weight = d.gpu.dummy_weight(64, 128, seed, 0.5)?;
            let mut out = d.gpu.alloc(64, 128, Dtype::Activation)?;
            d.gpu.embed(&ids, &weight, 0, &mut out)?;
            d.gpu.read(&out, 0..64)
        };
        let (one, again, other) = (read(1)?, read(1)?, read(2)?);
        let inside = one.iter().all(|x| x.abs() <= 0.5);
        let mean = one.iter().sum::<f32>() / one.len() as f32;
        let square = one.iter().map(|x| x * x).sum::<f32>() / one.len() as f32;
        let uniform = mean.abs() < 0.02 && (square - 0.25 / 3.0).abs() < 0.01;
        let good = inside && uniform && one == again && one != other;
        Ok(vec![(if good { 0.0 } else { f64::INFINITY }, 0.0)])
    });
}

pub fn norms(checks: &mut Checks) {
    let widths: &[usize] = if checks.full() {
        &[64, 2056, 5120]
    } else {
        &[64, 2056]
    };
    for &width in widths {
        for (n, kind) in [
            (1, NormKind::ZeroCentred),
            (16, NormKind::Plain),
            (33, NormKind::Plain),
        ] {
            let case = format!("{n} x {width} {kind:?}");
            checks.case("rms_norm", case.clone(), |d| {
                let (x, w) = (d.random(n, width, 3.0)?, d.random(1, width, 1.0)?);
                let mut out = d.output(n, width, Dtype::Activation)?;
                d.cpu
                    .rms_norm(&x.cpu, n, &w.cpu, kind, 1e-6, &mut out.cpu)?;
                d.gpu
                    .rms_norm(&x.gpu, n, &w.gpu, kind, 1e-6, &mut out.gpu)?;
                Ok(vec![(d.distance(&out, n)?, BF16)])
            });
            checks.case("add_rms_norm", case.clone(), |d| {
                let (x, w) = (d.random(n, width, 3.0)?, d.random_f32(1, width, 1.0)?);
                let mut sum = d.random(n, width, 3.0)?;
                let mut out = d.output(n, width, Dtype::Activation)?;
                let (cpu, gpu) = (d.cpu, d.gpu);
                cpu.add_rms_norm(&x.cpu, n, &mut sum.cpu, &w.cpu, kind, 1e-6, &mut out.cpu)?;
                gpu.add_rms_norm(&x.gpu, n, &mut sum.gpu, &w.gpu, kind, 1e-6, &mut out.gpu)?;
                Ok(vec![
                    (d.distance(&sum, n)?, BF16),
                    (d.distance(&out, n)?, BF16),
                ])
            });
            checks.case("add", case, |d| {
                let (x, mut sum) = (d.random(n, width, 3.0)?, d.random(n, width, 3.0)?);
                d.cpu.add(&x.cpu, n, &mut sum.cpu)?;
                d.gpu.add(&x.gpu, n, &mut sum.gpu)?;
                Ok(vec![(d.distance(&sum, n)?, BF16)])
            });
        }
    }
}

/// The candidates must be the same, bit by bit; the logarithm may round otherwise.
pub fn top(checks: &mut Checks) {
    let mut shapes = vec![(1, 5), (3, 64), (2, 65), (2, 700), (1, 8192), (2, 8193)];
    if checks.full() {
        shapes.extend([(16, 248_320), (64, 124_160)]);
    }
    let kinds = ["random", "coarse", "rising", "alike", "masked", "bad"];
    let cases = shapes.into_iter().map(|(n, width)| (n, width, &kinds[..]));
    // Alike logits in many slices: too many of their groups come into question to be kept.
    for (n, width, kinds) in cases.chain([(1, 163_840, &kinds[3..4])]) {
        for &kind in kinds {
            checks.case("top", format!("{n} x {width} {kind}"), |d| {
                let mut data = d.numbers(n * width, 10.0);
                match kind {
                    "coarse" => data.iter_mut().for_each(|x| *x = (*x / 4.0).round()),
                    "rising" => data.sort_by(f32::total_cmp),
                    "alike" => data
                        .iter_mut()
                        .enumerate()
                        .for_each(|(i, x)| *x = 1.0 + (i % 256) as f32 * f32::EPSILON),
                    "masked" => data
                        .iter_mut()
                        .enumerate()
                        .filter(|(i, _)| i % 97 != 3)
                        .for_each(|(_, x)| *x = f32::NEG_INFINITY),
                    "bad" => {
                        data.iter_mut()
                            .step_by(3)
                            .for_each(|x| *x = f32::NEG_INFINITY);
                        data[width / 2] = f32::NAN;
                    }
                    _ => {}
                }
                let x = d.pair(data, n, width, Dtype::F32)?;
                let mut out = d.output(n, TOP_WIDTH, Dtype::F32)?;
                let (first, allowed) = (1000, 1000 + width as u32 - width as u32 / 7);
                d.cpu.top(&x.cpu, n, first, allowed, &mut out.cpu)?;
                d.gpu.top(&x.gpu, n, first, allowed, &mut out.gpu)?;
                let (cpu, gpu) = (d.cpu.read(&out.cpu, 0..n)?, d.gpu.read(&out.gpu, 0..n)?);
                let pairs = cpu.chunks(TOP_WIDTH).zip(gpu.chunks(TOP_WIDTH)).enumerate();
                let distance = |(row, (cpu, gpu)): (usize, (&[f32], &[f32]))| {
                    let (a, b) = (cpu[TOP_WIDTH - 1], gpu[TOP_WIDTH - 1]);
                    // A row with a NaN has no candidates to compare.
                    if kind == "bad" && row == 0 {
                        return if a.is_nan() && b.is_nan() {
                            0.0
                        } else {
                            f64::INFINITY
                        };
                    }
                    match cpu[..TOP_WIDTH - 1] == gpu[..TOP_WIDTH - 1] {
                        true => f64::from((a - b).abs()),
                        false => f64::INFINITY,
                    }
                };
                Ok(vec![(pairs.map(distance).fold(0.0, f64::max), F32)])
            });
        }
    }
}

pub fn swiglu(checks: &mut Checks) {
    for (n, width) in [(1, 8), (15, 264), (17, 2560)] {
        checks.case("swiglu", format!("{n} x {width}"), |d| {
            let x = d.random(n, 2 * width, 8.0)?;
            let mut out = d.output(n, width, Dtype::Activation)?;
            d.cpu.swiglu(&x.cpu, n, &mut out.cpu)?;
            d.gpu.swiglu(&x.gpu, n, &mut out.gpu)?;
            Ok(vec![(d.distance(&out, n)?, BF16)])
        });
    }
}

pub fn linear_swiglu(checks: &mut Checks) {
    for (n, input, width) in [
        (1, 128, 32),
        (8, 256, 96),
        (9, 384, 160),
        (16, 640, 32),
        (17, 128, 64),
        (32, 640, 128),
        (3, 128, 40),
        (17, 128, 32),
        (33, 128, 64),
    ] {
        for kernel in [LinearKernel::Own, LinearKernel::Library] {
            let case = format!("{n} x {input} -> 2 x {width} {kernel:?}");
            checks.case("linear_swiglu", case, |d| {
                let (x, w) = (d.random(n, input, 1.0)?, d.weight(2 * width, input)?);
                let mut wide = d.output(n, 2 * width, Dtype::Activation)?;
                let mut out = d.output(n, width, Dtype::Activation)?;
                let (cpu, gpu) = (d.cpu, d.gpu);
                cpu.linear_swiglu(&x.cpu, n, &w.cpu, &mut wide.cpu, &mut out.cpu)?;
                gpu.choose_linear(kernel);
                gpu.linear_swiglu(&x.gpu, n, &w.gpu, &mut wide.gpu, &mut out.gpu)?;
                // Gate and value are rounded before they are multiplied.
                Ok(vec![(d.distance(&out, n)?, 2.0 * BF16)])
            });
        }
    }
}

pub fn linear(checks: &mut Checks) {
    let mut shapes = vec![
        (1, 64, 48),
        (1, 128, 64),
        (15, 384, 128),
        (16, 256, 1088),
        (17, 640, 200),
        (32, 384, 640),
        (20, 256, 100),
        (33, 128, 320),
        (64, 1280, 64),
        (65, 128, 264),
    ];
    if checks.full() {
        shapes.extend([
            (1, 5120, 1024),
            (16, 5120, 16_480),
            (15, 17_408, 5120),
            (31, 6144, 5120),
            (32, 5120, 16_480),
            (32, 17_408, 5120),
            (300, 512, 768),
        ]);
    }
    for (n, input, out_width) in shapes {
        for dtype in [Dtype::Activation, Dtype::F32] {
            for kernel in [LinearKernel::Own, LinearKernel::Library] {
                let case = format!("{n} x {input} -> {out_width} {dtype:?} {kernel:?}");
                checks.case("linear", case, |d| {
                    let (x, w) = (d.random(n, input, 1.0)?, d.weight(out_width, input)?);
                    let mut out = d.output(n, out_width, dtype)?;
                    d.cpu.linear(&x.cpu, n, &w.cpu, &mut out.cpu)?;
                    d.gpu.choose_linear(kernel);
                    d.gpu.linear(&x.gpu, n, &w.gpu, &mut out.gpu)?;
                    let tolerance = if dtype == Dtype::F32 { F32 } else { BF16 };
                    let first = (d.distance(&out, n)?, tolerance);
                    // Once more: what a launch leaves behind must not show.
                    d.gpu.linear(&x.gpu, n, &w.gpu, &mut out.gpu)?;
                    Ok(vec![first, (d.distance(&out, n)?, tolerance)])
                });
            }
        }
    }
}
