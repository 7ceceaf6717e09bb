//! Tokens drawn on the device, and passes that begin with them.

use volley_ops::{CANDIDATES, DRAWN, Draw, Dtype, Ops, TOP_WIDTH};

use super::Checks;
use crate::pair::Devices;

/// The tokens must be the same: both sides compute in f64, and a race that is that close does not come
/// up in these numbers.
pub fn draw(checks: &mut Checks) {
    let greedy = Draw {
        temperature: 0.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        seed: 0,
        position: 0,
    };
    let filters = [
        ("greedy", greedy),
        (
            "whole",
            Draw {
                temperature: 1.0,
                ..greedy
            },
        ),
        (
            "hot",
            Draw {
                temperature: 1.7,
                top_p: 0.9,
                ..greedy
            },
        ),
        (
            "cold",
            Draw {
                temperature: 0.6,
                top_p: 0.95,
                top_k: 20,
                ..greedy
            },
        ),
        (
            "nucleus",
            Draw {
                temperature: 1.0,
                top_p: 0.5,
                ..greedy
            },
        ),
        (
            "floor",
            Draw {
                temperature: 0.8,
                min_p: 0.1,
                ..greedy
            },
        ),
    ];
    for (name, filter) in filters {
        // Fewer tokens than candidates, and more.
        for (n, width) in [(1, 5), (15, 700), (40, 64)] {
            checks.case("draw", format!("{n} rows of {width}, {name}"), |d| {
                let logits = d.numbers(n * width, 4.0);
                let x = d.pair(logits, n, width, Dtype::F32)?;
                let mut tops = d.output(n, TOP_WIDTH, Dtype::F32)?;
                d.cpu.top(&x.cpu, n, 0, width as u32, &mut tops.cpu)?;
                d.gpu.top(&x.gpu, n, 0, width as u32, &mut tops.gpu)?;
                let draws: Vec<Draw> = (0..n as u64).map(|row| at(filter, row)).collect();
                let mut out = d.output(n, 1, Dtype::F32)?;
                d.cpu.draw(&tops.cpu, &draws, &mut out.cpu)?;
                d.gpu.draw(&tops.gpu, &draws, &mut out.gpu)?;
                Ok(vec![
                    (d.distance(&out, n)?, 0.0),
                    embedded(d, &out.cpu, &out.gpu, n, width)?,
                ])
            });
        }
    }
    checks.case("draw", "no candidates".to_string(), |d| {
        let mut row = vec![f32::NEG_INFINITY; TOP_WIDTH];
        row[CANDIDATES..].fill(0.0);
        let tops = d.pair(row, 1, TOP_WIDTH, Dtype::F32)?;
        let mut out = d.output(1, 1, Dtype::F32)?;
        d.cpu.draw(&tops.cpu, &[greedy], &mut out.cpu)?;
        d.gpu.draw(&tops.gpu, &[greedy], &mut out.gpu)?;
        Ok(vec![(d.distance(&out, 1)?, 0.0)])
    });
}

fn at(filter: Draw, row: u64) -> Draw {
    Draw {
        seed: 0x9e37_79b9_7f4a_7c15 ^ (row % 3),
        position: 1000 + row,
        ..filter
    }
}

/// Known tokens and drawn ones, in turn.
fn embedded(
    d: &mut Devices,
    cpu: &<volley_ops_candle::CandleOps as Ops>::Buf,
    gpu: &<volley_kernels::CudaOps as Ops>::Buf,
    n: usize,
    width: usize,
) -> volley_ops::Result<(f64, f64)> {
    let table = d.weight(width, 64)?;
    let id = |row: u32| match row % 4 {
        0 => row % width as u32,
        _ => DRAWN | row,
    };
    let ids: Vec<u32> = (0..n as u32).map(id).collect();
    let mut out = d.output(n, 64, Dtype::Activation)?;
    d.cpu.embed_drawn(&ids, cpu, &table.cpu, 0, &mut out.cpu)?;
    d.gpu.embed_drawn(&ids, gpu, &table.gpu, 0, &mut out.gpu)?;
    Ok((d.distance(&out, n)?, 0.0))
}
