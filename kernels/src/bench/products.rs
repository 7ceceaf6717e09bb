use volley_ops::{Dtype, Ops, Result};

use super::Shapes;
use super::clock::{Clock, Work};
use crate::linear::LinearKernel;

/// Side of the product that shows how fast products can be.
const SIDE: usize = 8192;
/// Most rows of the own kernel.
const OWN_ROWS: usize = 64;

/// Multiplications and additions per second of a large product.
pub fn ceiling(clock: &mut Clock) -> Result<f64> {
    let ops = clock.ops;
    let weight = ops.dummy_weight(SIDE, SIDE, 1, 0.02)?;
    let x = clock.activations(SIDE, SIDE)?;
    let mut out = ops.alloc(SIDE, SIDE, Dtype::Activation)?;
    let flop = 2 * SIDE * SIDE * SIDE;
    ops.choose_linear(LinearKernel::Library);
    let work = Work {
        kernel: "linear, cuBLASLt",
        case: format!("ceiling: {SIDE} x {SIDE} -> {SIDE}"),
        bytes: 6 * SIDE * SIDE,
        flop,
    };
    let us = clock.time(work, 1, |_| ops.linear(&x, SIDE, &weight, &mut out))?;
    Ok(flop as f64 / us * 1e6)
}

pub fn time(clock: &mut Clock, shapes: &Shapes) -> Result<()> {
    let Shapes {
        hidden,
        intermediate,
        vocabulary,
        gdn,
        attention,
        block,
        chunk,
        ..
    } = *shapes;
    let bf16 = Dtype::Activation;
    let few = [1, block, 2 * block, OWN_ROWS];
    let all = [&few[..], &[chunk]].concat();
    for (name, input, output, dtype) in [
        ("gdn in", hidden, gdn.proj_width(), bf16),
        ("gdn out", gdn.value_width(), hidden, bf16),
        ("attention in", hidden, attention.proj_width(), bf16),
        ("attention out", attention.query_width(), hidden, bf16),
        ("gate, up", hidden, 2 * intermediate, bf16),
        ("down", intermediate, hidden, bf16),
        ("head", hidden, vocabulary, Dtype::F32),
    ] {
        let rows = if name == "head" { &few[..2] } else { &all[..] };
        product(clock, name, [input, output], dtype, rows)?;
    }
    let weights = clock.weights(2 * intermediate, hidden)?;
    for rows in [1, block, 2 * block] {
        let ops = clock.ops;
        let x = clock.activations(rows, hidden)?;
        let mut wide = ops.alloc(rows, 2 * intermediate, bf16)?;
        let mut out = ops.alloc(rows, intermediate, bf16)?;
        let work = Work {
            kernel: "linear_swiglu",
            case: format!("{rows} x {hidden} -> 2 x {intermediate}"),
            bytes: 4 * intermediate * hidden + 2 * rows * (hidden + intermediate),
            flop: 4 * rows * hidden * intermediate,
        };
        ops.choose_linear(LinearKernel::Fastest);
        clock.time(work, weights.len(), |set| {
            ops.linear_swiglu(&x, rows, &weights[set], &mut wide, &mut out)
        })?;
    }
    Ok(())
}

fn product(
    clock: &mut Clock,
    name: &str,
    [input, output]: [usize; 2],
    dtype: Dtype,
    rows: &[usize],
) -> Result<()> {
    let ops = clock.ops;
    let weights = clock.weights(output, input)?;
    for &rows in rows {
        let x = clock.activations(rows, input)?;
        let mut out = ops.alloc(rows, output, dtype)?;
        for (kernel, choice) in [
            ("linear, own", LinearKernel::Own),
            ("linear, cuBLASLt", LinearKernel::Library),
        ] {
            if choice == LinearKernel::Own && rows > OWN_ROWS {
                continue;
            }
            let work = Work {
                kernel,
                case: format!("{name}: {rows} x {input} -> {output}"),
                bytes: 2 * (input * output + rows * input + rows * output),
                flop: 2 * rows * input * output,
            };
            ops.choose_linear(choice);
            clock.time(work, weights.len(), |set| {
                ops.linear(&x, rows, &weights[set], &mut out)
            })?;
        }
    }
    Ok(())
}
