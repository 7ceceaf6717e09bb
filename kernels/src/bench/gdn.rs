use volley_ops::{Dtype, GdnDims, GdnRows, Keep, Ops, Result};

use super::Shapes;
use super::clock::{Clock, Work, batch, sets};
use crate::buf::Buf;

/// Tokens before the rows.
const PAST: usize = 100;
/// Rows that the prompt kernel takes at a time.
const PIECE: usize = 64;

pub fn time(clock: &mut Clock, shapes: &Shapes) -> Result<()> {
    let block = shapes.block;
    for (segments, rows, tree) in [
        (1, 1, false),
        (1, block, false),
        (1, 2 * block, true),
        (1, 4 * block, true),
        (8, 1, false),
        (8, block, false),
    ] {
        step(clock, shapes.gdn, segments, rows, tree)?;
    }
    prefill(clock, shapes.gdn, shapes.chunk)
}

/// Widths of all keys and of all values of a row.
fn widths(dims: GdnDims) -> (usize, usize) {
    (dims.key_heads * dims.key_dim, dims.value_width())
}

/// Keys of length about one, short queries, gates from strong to none.
fn random_rows(clock: &Clock, dims: GdnDims, n: usize) -> Result<GdnRows<Buf>> {
    let floats = |width: usize, from, to| {
        let numbers = clock.numbers(n * width, from, to);
        clock.ops.upload(&numbers, n, width, Dtype::F32)
    };
    let (key, value) = widths(dims);
    Ok(GdnRows {
        q: floats(key, -0.01, 0.01)?,
        k: floats(key, -0.1, 0.1)?,
        v: floats(value, -1.0, 1.0)?,
        g: floats(dims.value_heads, -1.0, 0.0)?,
        beta: floats(dims.value_heads, 0.0, 1.0)?,
        u: floats(value, -1.0, 1.0)?,
    })
}

fn work(
    kernel: &'static str,
    segments: usize,
    rows: usize,
    tree: bool,
    bytes: usize,
    flop: usize,
) -> Work {
    let shape = if tree { ", tree" } else { "" };
    Work {
        kernel,
        case: format!("{segments} x {rows} rows{shape}"),
        bytes,
        flop,
    }
}

/// What a step does: prepare, verify, commit.
fn step(clock: &mut Clock, dims: GdnDims, segments: usize, rows: usize, tree: bool) -> Result<()> {
    let ops = clock.ops;
    let verified = batch(segments, rows, PAST, tree);
    let chains = batch(segments, rows, PAST, false);
    let n = verified.rows();
    let work = |kernel, bytes, flop| work(kernel, segments, rows, tree, bytes, flop);
    let (state, heads) = (dims.state_len(), dims.value_heads);
    let (key, value) = widths(dims);
    let mut all = random_rows(clock, dims, n)?;
    let sets = sets(4 * segments * state);
    let mut states = (0..sets)
        .map(|_| clock.floats(segments, state))
        .collect::<Result<Vec<_>>>()?;
    let mut out = ops.alloc(n, value, Dtype::Activation)?;

    let bytes = 4 * segments * state + n * (2 * key + 2 * value) * 4 + 2 * n * value;
    let flop = 4 * n * state + 6 * n * rows * heads * dims.key_dim;
    clock.time(work("gdn_verify", bytes, flop), sets, |set| {
        ops.gdn_verify(dims, &mut all, &verified, &states[set], &mut out)
    })?;
    let keep: Keep = vec![(0..rows as u32).collect(); segments];
    let bytes = 8 * segments * state + n * (key + value) * 4;
    clock.time(work("gdn_commit", bytes, 2 * n * state), sets, |set| {
        ops.gdn_commit(dims, &all, &chains, &keep, &mut states[set])
    })?;
    front(clock, dims, segments, rows, tree)
}

/// What comes before the rule, and what keeps its inputs.
fn front(clock: &mut Clock, dims: GdnDims, segments: usize, rows: usize, tree: bool) -> Result<()> {
    let ops = clock.ops;
    let verified = batch(segments, rows, PAST, tree);
    let chains = batch(segments, rows, PAST, false);
    let keep: Keep = vec![(0..rows as u32).collect(); segments];
    let (n, heads) = (verified.rows(), dims.value_heads);
    let work = |kernel, bytes, flop| work(kernel, segments, rows, tree, bytes, flop);
    let mut all = random_rows(clock, dims, n)?;
    let proj = clock.activations(n, dims.proj_width())?;
    let conv_w = clock.floats(dims.conv_channels(), dims.conv_kernel)?;
    let (a_log, dt_bias) = (clock.floats(1, heads)?, clock.floats(1, heads)?);
    let mut conv_state = clock.activations(segments, dims.conv_state_len())?;
    let channels = dims.conv_channels();
    let bytes = n * (2 * dims.proj_width() + 4 * channels) + 16 * channels;
    clock.time(work("gdn_prepare", bytes, 0), 1, |_| {
        ops.gdn_prepare(
            dims,
            &proj,
            &conv_w,
            &a_log,
            &dt_bias,
            &conv_state,
            &verified,
            &mut all,
        )
    })?;
    let bytes = 4 * segments * dims.conv_state_len();
    clock
        .time(work("conv_commit", bytes, 0), 1, |_| {
            ops.conv_commit(dims, &proj, &chains, &keep, &mut conv_state)
        })
        .map(drop)
}

fn prefill(clock: &mut Clock, dims: GdnDims, chunk: usize) -> Result<()> {
    let ops = clock.ops;
    for (segments, rows) in [(1, PIECE), (1, chunk), (4, chunk / 4)] {
        let batch = batch(segments, rows, 0, false);
        let n = batch.rows();
        let all = random_rows(clock, dims, n)?;
        let mut state = clock.floats(segments, dims.state_len())?;
        let (key, value) = widths(dims);
        let mut out = ops.alloc(n, value, Dtype::Activation)?;
        let bytes = 8 * segments * dims.state_len() + n * (2 * key + value) * 4 + 2 * n * value;
        let flop = 6 * n * dims.state_len() + 6 * n * PIECE * dims.value_heads * dims.key_dim;
        let work = work("gdn_prefill", segments, rows, false, bytes, flop);
        clock.time(work, 1, |_| {
            ops.gdn_prefill(dims, &all, &batch, &mut state, &mut out)
        })?;
    }
    front(clock, dims, 1, chunk, false)
}
