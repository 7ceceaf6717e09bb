//! Moving rows, norms, the feed-forward gate, products.

use volley_kernels::LinearKernel;
use volley_ops::{Dtype, NormKind, Ops, Result};

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

pub fn linear(checks: &mut Checks) {
    let mut shapes = vec![
        (1, 64, 48),
        (1, 128, 64),
        (15, 384, 128),
        (16, 256, 1088),
        (17, 640, 200),
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
