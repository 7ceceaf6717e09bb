//! The gated-delta-net operations.

use volley_ops::{Dtype, GdnDims, GdnRows, GdnStates, Ops, Result};

use super::{BF16, Checks, F32, keep};
use crate::pair::{Devices, Pair, Shape, batch, split};

fn gdn_dims(key_heads: usize, value_heads: usize) -> GdnDims {
    GdnDims {
        key_heads,
        value_heads,
        key_dim: 128,
        value_dim: 128,
        conv_kernel: 4,
    }
}

/// Batches for the gated-delta-net operations: rows around the tile sizes, chains and trees.
fn gdn_batches(checks: &Checks) -> Vec<Vec<Shape>> {
    let (chain, tree) = (Shape::chain, Shape::tree);
    let mut all = vec![
        vec![chain(1, 0)],
        vec![chain(1, 3), chain(1, 30), chain(1, 0)],
        vec![chain(2, 7), tree(15, 3), chain(1, 9)],
        vec![tree(16, 20)],
        vec![chain(17, 5), tree(31, 0)],
        vec![tree(32, 6), chain(32, 1)],
        vec![tree(33, 2), tree(17, 40)],
        vec![tree(48, 3), chain(2, 0)],
        vec![chain(64, 1), tree(64, 9)],
    ];
    if checks.full() {
        all.extend([
            vec![chain(16, 0); 8],
            vec![tree(32, 50); 3],
            vec![chain(33, 0); 2],
        ]);
    }
    all
}

fn heads(checks: &Checks) -> GdnDims {
    if checks.full() {
        gdn_dims(16, 48)
    } else {
        gdn_dims(2, 4)
    }
}

/// Shapes with few heads: what ranks of a small model have, whose rows begin anywhere.
fn few_heads() -> Vec<(GdnDims, Vec<Shape>)> {
    let shapes = vec![Shape::chain(2, 7), Shape::tree(15, 3), Shape::chain(1, 9)];
    let heads = [(1, 1), (1, 2), (1, 3), (2, 6)];
    heads
        .map(|(keys, values)| (gdn_dims(keys, values), shapes.clone()))
        .into()
}

/// All batches at the usual heads, one of them at few.
fn gdn_cases(checks: &Checks) -> Vec<(GdnDims, Vec<Shape>)> {
    let dims = heads(checks);
    let batches = gdn_batches(checks).into_iter();
    batches
        .map(|shapes| (dims, shapes))
        .chain(few_heads())
        .collect()
}

/// What a case is called.
fn case(dims: GdnDims, shapes: &[Shape]) -> String {
    format!(
        "{} of {} heads, {shapes:?}",
        dims.key_heads, dims.value_heads
    )
}

pub fn gdn_prepare(checks: &mut Checks) {
    // Prompts too, of which a warp takes several rows.
    let chain = Shape::chain;
    let mut prompts = vec![vec![chain(301, 3), chain(214, 0)]];
    if checks.full() {
        prompts.push(vec![chain(5, 0), chain(2044, 2)]);
    }
    let dims = heads(checks);
    let prompts = prompts.into_iter().map(|shapes| (dims, shapes));
    for (dims, shapes) in gdn_cases(checks).into_iter().chain(prompts) {
        checks.case("gdn_prepare", case(dims, &shapes), |d| {
            let (batch, _, slots) = batch(d, &shapes);
            let (n, heads) = (batch.rows(), dims.value_heads);
            let proj = d.random(n, dims.proj_width(), 4.0)?;
            let conv_w = d.random_f32(dims.conv_channels(), 4, 1.0)?;
            let a_log = d.random_f32(1, heads, 2.0)?;
            let dt_bias = d.random_f32(1, heads, 20.0)?;
            let state = d.random(slots, dims.conv_state_len(), 4.0)?;
            let out = |d: &Devices, width| d.output(n, width, Dtype::F32);
            let (mut cpu, mut gpu) = split(GdnRows {
                q: out(d, dims.key_heads * 128)?,
                k: out(d, dims.key_heads * 128)?,
                v: out(d, dims.value_width())?,
                g: out(d, heads)?,
                beta: out(d, heads)?,
                u: out(d, dims.value_width())?,
            });
            let (c, g) = (d.cpu, d.gpu);
            let (w, a, b, s) = (&conv_w, &a_log, &dt_bias, &state);
            c.gdn_prepare(
                dims, &proj.cpu, &w.cpu, &a.cpu, &b.cpu, &s.cpu, &batch, &mut cpu,
            )?;
            g.gdn_prepare(
                dims, &proj.gpu, &w.gpu, &a.gpu, &b.gpu, &s.gpu, &batch, &mut gpu,
            )?;
            let pairs = [
                (cpu.q, gpu.q),
                (cpu.k, gpu.k),
                (cpu.v, gpu.v),
                (cpu.g, gpu.g),
                (cpu.beta, gpu.beta),
            ];
            distances(d, n, pairs)
        });
    }
}

fn distances<const N: usize>(
    d: &Devices,
    n: usize,
    pairs: [(volley_ops_candle::Buf, volley_kernels::Buf); N],
) -> Result<Vec<(f64, f64)>> {
    let pairs = pairs.into_iter().map(|(cpu, gpu)| Pair::new(cpu, gpu));
    pairs.map(|pair| Ok((d.distance(&pair, n)?, F32))).collect()
}

pub fn gdn_verify(checks: &mut Checks) {
    for (dims, shapes) in gdn_cases(checks) {
        checks.case("gdn_verify", case(dims, &shapes), |d| {
            let (batch, _, slots) = batch(d, &shapes);
            let n = batch.rows();
            let (mut cpu, mut gpu) = split(d.gdn_rows(n, dims.key_heads, dims.value_heads)?);
            let state = d.random_f32(slots, dims.state_len(), 0.5)?;
            let mut out = d.output(n, dims.value_width(), Dtype::Activation)?;
            d.cpu
                .gdn_verify(dims, &mut cpu, &batch, &state.cpu, &mut out.cpu)?;
            d.gpu
                .gdn_verify(dims, &mut gpu, &batch, &state.gpu, &mut out.gpu)?;
            let mut outputs = distances(d, n, [(cpu.u, gpu.u)])?;
            outputs.push((d.distance(&out, n)?, BF16));
            Ok(outputs)
        });
    }
}

pub fn gdn_commit(checks: &mut Checks) {
    for (dims, shapes) in gdn_cases(checks) {
        checks.case("gdn_commit", case(dims, &shapes), |d| {
            let (batch, _, slots) = batch(d, &shapes);
            let keep = keep(d, &batch);
            let n = batch.rows();
            let mut rows = d.gdn_rows(n, dims.key_heads, dims.value_heads)?;
            rows.u = d.random_f32(n, dims.value_width(), 1.0)?;
            let (cpu, gpu) = split(rows);
            let mut state = d.random_f32(slots, dims.state_len(), 0.5)?;
            d.cpu
                .gdn_commit(dims, &cpu, &batch, &keep, &mut state.cpu)?;
            d.gpu
                .gdn_commit(dims, &gpu, &batch, &keep, &mut state.gpu)?;
            Ok(vec![(d.distance(&state, slots)?, F32)])
        });
    }
}

pub fn commit_layers(checks: &mut Checks) {
    let dims = heads(checks);
    let (chain, tree) = (Shape::chain, Shape::tree);
    // More layers than one launch takes.
    let mut cases = vec![
        (1, dims, vec![tree(16, 20)]),
        (3, dims, vec![chain(2, 7), tree(15, 3), chain(1, 9)]),
        (66, dims, vec![chain(1, 4)]),
    ];
    cases.extend(
        few_heads()
            .into_iter()
            .map(|(dims, shapes)| (2, dims, shapes)),
    );
    for (layers, dims, shapes) in cases {
        let name = format!("{layers} of {}", case(dims, &shapes));
        checks.case("commit_layers", name, |d| {
            let (batch, _, slots) = batch(d, &shapes);
            let keep = keep(d, &batch);
            let n = batch.rows();
            let mut all = Vec::new();
            for _ in 0..layers {
                let mut rows = d.gdn_rows(n, dims.key_heads, dims.value_heads)?;
                rows.u = d.random_f32(n, dims.value_width(), 1.0)?;
                let proj = d.random(n, dims.proj_width(), 4.0)?;
                let state = d.random_f32(slots, dims.state_len(), 0.5)?;
                let conv_state = d.random(slots, dims.conv_state_len(), 4.0)?;
                all.push((split(rows), proj, state, conv_state));
            }
            let (mut cpu, mut gpu) = (Vec::new(), Vec::new());
            for ((cpu_rows, gpu_rows), proj, state, conv_state) in &mut all {
                cpu.push(GdnStates {
                    dims,
                    rows: cpu_rows,
                    proj: &proj.cpu,
                    state: &mut state.cpu,
                    conv_state: &mut conv_state.cpu,
                });
                gpu.push(GdnStates {
                    dims,
                    rows: gpu_rows,
                    proj: &proj.gpu,
                    state: &mut state.gpu,
                    conv_state: &mut conv_state.gpu,
                });
            }
            d.cpu.commit_layers(&mut cpu, &batch, &keep)?;
            d.gpu.commit_layers(&mut gpu, &batch, &keep)?;
            let mut distances = Vec::new();
            for (_, _, state, conv_state) in &all {
                distances.push((d.distance(state, slots)?, F32));
                distances.push((d.distance(conv_state, slots)?, 0.0));
            }
            Ok(distances)
        });
    }
}

pub fn gdn_prefill(checks: &mut Checks) {
    let dims = heads(checks);
    let chain = Shape::chain;
    let mut all = vec![
        vec![chain(1, 0)],
        vec![chain(64, 0), chain(63, 5)],
        vec![chain(65, 0), chain(17, 4), chain(200, 30)],
    ];
    if checks.full() {
        all.extend([vec![chain(1000, 0)], vec![chain(300, 9); 3]]);
    }
    let all = all.into_iter().map(|shapes| (dims, shapes));
    let few = few_heads().into_iter();
    let few = few.map(|(dims, _)| (dims, vec![chain(65, 0), chain(17, 4)]));
    for (dims, shapes) in all.chain(few) {
        checks.case("gdn_prefill", case(dims, &shapes), |d| {
            let (batch, _, slots) = batch(d, &shapes);
            let n = batch.rows();
            let (cpu, gpu) = split(d.gdn_rows(n, dims.key_heads, dims.value_heads)?);
            let mut state = d.random_f32(slots, dims.state_len(), 0.5)?;
            let mut out = d.output(n, dims.value_width(), Dtype::Activation)?;
            d.cpu
                .gdn_prefill(dims, &cpu, &batch, &mut state.cpu, &mut out.cpu)?;
            d.gpu
                .gdn_prefill(dims, &gpu, &batch, &mut state.gpu, &mut out.gpu)?;
            Ok(vec![
                (d.distance(&state, slots)?, F32),
                (d.distance(&out, n)?, BF16),
            ])
        });
    }
}

pub fn conv_commit(checks: &mut Checks) {
    for (dims, shapes) in gdn_cases(checks) {
        checks.case("conv_commit", case(dims, &shapes), |d| {
            let (batch, _, slots) = batch(d, &shapes);
            let keep = keep(d, &batch);
            let proj = d.random(batch.rows(), dims.proj_width(), 4.0)?;
            let mut state = d.random(slots, dims.conv_state_len(), 4.0)?;
            d.cpu
                .conv_commit(dims, &proj.cpu, &batch, &keep, &mut state.cpu)?;
            d.gpu
                .conv_commit(dims, &proj.gpu, &batch, &keep, &mut state.gpu)?;
            Ok(vec![(d.distance(&state, slots)?, 0.0)])
        });
    }
}

pub fn gated_norm(checks: &mut Checks) {
    let usual = [1, 15, 33].map(|n| (heads(checks), n));
    let few = few_heads().into_iter().map(|(dims, _)| (dims, 15));
    for (dims, n) in usual.into_iter().chain(few) {
        checks.case("gated_norm", case(dims, &[Shape::chain(n, 0)]), |d| {
            let x = d.random(n, dims.value_width(), 0.1)?;
            let proj = d.random(n, dims.proj_width(), 4.0)?;
            let w = d.random_f32(1, 128, 1.0)?;
            let mut out = d.output(n, dims.value_width(), Dtype::Activation)?;
            let (cpu, gpu) = (d.cpu, d.gpu);
            cpu.gated_norm(dims, &x.cpu, &proj.cpu, n, &w.cpu, 1e-6, &mut out.cpu)?;
            gpu.gated_norm(dims, &x.gpu, &proj.gpu, n, &w.gpu, 1e-6, &mut out.gpu)?;
            Ok(vec![(d.distance(&out, n)?, BF16)])
        });
    }
}
