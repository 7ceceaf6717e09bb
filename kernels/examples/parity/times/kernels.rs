//! Every kernel by itself.

use volley_kernels::LinearKernel;
use volley_ops::{
    AttentionDims, AttentionMask, Batch, Dtype, GdnRows, Keep, NormKind, Ops, Result, RopeTable,
    Segment,
};

use super::{Buf, Clock, DRAFTER, GDN, TARGET, batch, sets};

pub fn linear(clock: &mut Clock) -> Result<()> {
    let gpu = clock.gpu;
    let shapes = [
        ("gdn in", 5120, GDN.proj_width(), Dtype::Activation),
        ("gdn out, attention out", 6144, 5120, Dtype::Activation),
        ("attention in", 5120, TARGET.proj_width(), Dtype::Activation),
        ("gate, up", 5120, 34_816, Dtype::Activation),
        ("down", 17_408, 5120, Dtype::Activation),
        ("lm_head", 5120, 248_320, Dtype::F32),
    ];
    for (name, input, output, dtype) in shapes {
        let weights = (0..sets(2 * input * output))
            .map(|_| clock.weight(output, input))
            .collect::<Result<Vec<_>>>()?;
        let rows: &[usize] = if output > 100_000 {
            &[1, 16]
        } else {
            &[1, 16, 32, 64, 2048]
        };
        for &n in rows {
            let x = clock.buf(n, input, Dtype::Activation)?;
            let mut out = gpu.alloc(n, output, dtype)?;
            let bytes = 2 * (input * output + n * input + n * output);
            let flop = 2 * n * input * output;
            for (op, kernel) in [
                ("linear, own", LinearKernel::Own),
                ("linear, cuBLASLt", LinearKernel::Library),
            ] {
                if kernel == LinearKernel::Own && n > 64 {
                    continue;
                }
                gpu.choose_linear(kernel);
                let case = format!("{name}: {n} x {input} -> {output}");
                clock.time(op, case, weights.len(), bytes, flop, |set| {
                    gpu.linear(&x, n, &weights[set], &mut out)
                })?;
            }
        }
    }
    Ok(())
}

pub fn norms(clock: &mut Clock) -> Result<()> {
    let gpu = clock.gpu;
    for n in [1, 16, 2048] {
        let (x, w) = (
            clock.buf(n, 5120, Dtype::Activation)?,
            clock.buf(1, 5120, Dtype::Activation)?,
        );
        let (mut residual, mut out) = (
            clock.buf(n, 5120, Dtype::Activation)?,
            clock.buf(n, 5120, Dtype::Activation)?,
        );
        let kind = NormKind::ZeroCentred;
        clock.time(
            "rms_norm",
            format!("{n} x 5120"),
            1,
            n * 5120 * 4,
            0,
            |_| gpu.rms_norm(&x, n, &w, kind, 1e-6, &mut out),
        )?;
        clock.time(
            "add_rms_norm",
            format!("{n} x 5120"),
            1,
            n * 5120 * 8,
            0,
            |_| gpu.add_rms_norm(&x, n, &mut residual, &w, kind, 1e-6, &mut out),
        )?;
        let wide = clock.buf(n, 34_816, Dtype::Activation)?;
        let mut narrow = gpu.alloc(n, 17_408, Dtype::Activation)?;
        clock.time(
            "swiglu",
            format!("{n} x 17408"),
            1,
            n * 17_408 * 6,
            0,
            |_| gpu.swiglu(&wide, n, &mut narrow),
        )?;
        let proj = clock.buf(n, GDN.proj_width(), Dtype::Activation)?;
        let (y, head) = (
            clock.buf(n, 6144, Dtype::Activation)?,
            clock.buf(1, 128, Dtype::F32)?,
        );
        let mut normed = gpu.alloc(n, 6144, Dtype::Activation)?;
        clock.time(
            "gated_norm",
            format!("{n} x 6144"),
            1,
            n * 6144 * 6,
            0,
            |_| gpu.gated_norm(GDN, &y, &proj, n, &head, 1e-6, &mut normed),
        )?;
    }
    Ok(())
}

pub fn gdn_rows(clock: &Clock, n: usize) -> Result<GdnRows<Buf>> {
    let key = |scale| {
        clock
            .gpu
            .upload(&clock.numbers(n * 2048, scale), n, 2048, Dtype::F32)
    };
    let value = || clock.buf(n, 6144, Dtype::F32);
    let gate = |from: f32, to: f32| {
        let numbers = clock.numbers(n * 48, 0.5).into_iter();
        let data: Vec<f32> = numbers.map(|x| from + (to - from) * (x + 0.5)).collect();
        clock.gpu.upload(&data, n, 48, Dtype::F32)
    };
    Ok(GdnRows {
        q: key(0.01)?,
        k: key(0.1)?,
        v: value()?,
        g: gate(-1.0, 0.0)?,
        beta: gate(0.0, 1.0)?,
        u: value()?,
    })
}

pub fn gdn(clock: &mut Clock) -> Result<()> {
    let gpu = clock.gpu;
    let state_bytes = 4 * GDN.state_len();
    for (segments, rows, tree) in [
        (1, 1, false),
        (1, 16, false),
        (1, 16, true),
        (1, 32, true),
        (1, 64, true),
        (8, 1, false),
        (8, 16, false),
    ] {
        let batch = batch(segments, rows, 100, tree);
        let n = batch.rows();
        let case = format!(
            "{segments} x {rows} rows{}",
            if tree { ", tree" } else { "" }
        );
        let mut all = gdn_rows(clock, n)?;
        let sets = sets(segments * state_bytes);
        let mut states = (0..sets)
            .map(|_| clock.buf(segments, GDN.state_len(), Dtype::F32))
            .collect::<Result<Vec<_>>>()?;
        let mut out = gpu.alloc(n, 6144, Dtype::Activation)?;
        let row_bytes = n * (2 * 2048 + 2 * 6144) * 4 + n * 6144 * 2;
        let bytes = segments * state_bytes + row_bytes;
        let flop = 4 * n * GDN.state_len() + 2 * n * rows * 48 * 128 * 3;
        clock.time("gdn_verify", case.clone(), sets, bytes, flop, |set| {
            gpu.gdn_verify(GDN, &mut all, &batch, &states[set], &mut out)
        })?;
        let mut plain = batch.clone();
        plain.segments.iter_mut().for_each(|s| s.parents = None);
        let keep: Keep = vec![(0..rows as u32).collect(); segments];
        let bytes = 2 * segments * state_bytes + n * (2048 + 6144) * 4;
        let flop = 2 * n * GDN.state_len();
        clock.time("gdn_commit", case.clone(), sets, bytes, flop, |set| {
            gpu.gdn_commit(GDN, &all, &plain, &keep, &mut states[set])
        })?;
        let proj = clock.buf(n, GDN.proj_width(), Dtype::Activation)?;
        let conv_w = clock.buf(GDN.conv_channels(), 4, Dtype::F32)?;
        let (a_log, dt_bias) = (clock.buf(1, 48, Dtype::F32)?, clock.buf(1, 48, Dtype::F32)?);
        let mut conv_state = clock.buf(segments, GDN.conv_state_len(), Dtype::Activation)?;
        let bytes = n * (GDN.proj_width() * 2 + GDN.conv_channels() * 4) + GDN.conv_channels() * 16;
        clock.time("gdn_prepare", case.clone(), 1, bytes, 0, |_| {
            gpu.gdn_prepare(
                GDN,
                &proj,
                &conv_w,
                &a_log,
                &dt_bias,
                &conv_state,
                &batch,
                &mut all,
            )
        })?;
        let bytes = segments * GDN.conv_state_len() * 4;
        clock.time("conv_commit", case, 1, bytes, 0, |_| {
            gpu.conv_commit(GDN, &proj, &plain, &keep, &mut conv_state)
        })?;
    }
    Ok(())
}

pub fn gdn_prefill(clock: &mut Clock) -> Result<()> {
    let gpu = clock.gpu;
    for (segments, rows) in [(1, 64), (1, 2048), (4, 512)] {
        let batch = batch(segments, rows, 0, false);
        let n = batch.rows();
        let all = gdn_rows(clock, n)?;
        let mut state = clock.buf(segments, GDN.state_len(), Dtype::F32)?;
        let mut out = gpu.alloc(n, 6144, Dtype::Activation)?;
        let bytes = segments * 8 * GDN.state_len() + n * (2 * 2048 + 6144) * 4 + n * 6144 * 2;
        let flop = 6 * n * GDN.state_len() + 2 * n * 64 * 48 * 128 * 3;
        clock.time(
            "gdn_prefill",
            format!("{segments} x {rows} rows"),
            1,
            bytes,
            flop,
            |_| gpu.gdn_prefill(GDN, &all, &batch, &mut state, &mut out),
        )?;
    }
    Ok(())
}

/// Attention over caches of random tokens, and what comes before it.
fn attend(
    clock: &mut Clock,
    name: &str,
    dims: AttentionDims,
    mask: AttentionMask,
    batch: &Batch,
) -> Result<()> {
    let gpu = clock.gpu;
    let n = batch.rows();
    let segment = &batch.segments[0];
    let (tokens, rows) = (segment.past + segment.rows.len(), segment.rows.len());
    let blocks = batch.segments.iter().map(|s| s.blocks.len()).sum::<usize>();
    let cache_bytes = 4 * blocks * 16 * dims.kv_width();
    let sets = sets(cache_bytes).min(8);
    let half = dims.rotary_dim / 2;
    let inv_freq = gpu.upload(&clock.numbers(half, 0.5), 1, half, Dtype::F32)?;
    let rope = RopeTable {
        inv_freq,
        scale: 1.0,
    };
    let norm = clock.buf(1, dims.head_dim, Dtype::Activation)?;
    let mut caches = (0..sets)
        .map(|_| gpu.kv(dims.kv(), blocks))
        .collect::<Result<Vec<_>>>()?;
    // Every token once, so that no cache is zeros.
    for kv in &mut caches {
        for segment in &batch.segments {
            for past in (0..tokens).step_by(4096) {
                let rows = 4096.min(tokens - past);
                let piece = Batch {
                    segments: vec![Segment {
                        rows: 0..rows,
                        past,
                        parents: None,
                        ..segment.clone()
                    }],
                };
                let proj = clock.buf(rows, 2 * dims.kv_width(), Dtype::Activation)?;
                gpu.kv_append(dims, &proj, &norm, &rope, &piece, kv)?;
            }
        }
    }
    let proj = clock.buf(n, dims.proj_width(), Dtype::Activation)?;
    let mut q = clock.buf(n, dims.query_width(), Dtype::Activation)?;
    let mut out = gpu.alloc(n, dims.query_width(), Dtype::Activation)?;
    let seen = mask
        .window
        .map_or(tokens, |window| tokens.min(window + rows));
    let segments = batch.segments.len();
    let bytes = segments * seen * dims.kv_width() * 4 + n * dims.query_width() * 4;
    let average = if mask.causal {
        seen - (rows - 1).min(seen) / 2
    } else {
        seen
    };
    let flop = 4 * n * average * dims.query_width();
    let case = format!("{name}: {segments} x {rows} rows, {} past", segment.past);
    clock.time("attention", case.clone(), sets, bytes, flop, |set| {
        gpu.attention(dims, &q, &proj, &caches[set], mask, batch, &mut out)
    })?;
    let bytes = n * (dims.proj_width() * 2 + (dims.query_width() + 2 * dims.kv_width()) * 2);
    clock.time("attention_prepare", case, sets, bytes, 0, |set| {
        gpu.attention_prepare(
            dims,
            &proj,
            &norm,
            &norm,
            &rope,
            batch,
            &mut q,
            &mut caches[set],
        )
    })
}

pub fn attention(clock: &mut Clock) -> Result<()> {
    let causal = AttentionMask::CAUSAL;
    for (segments, rows, past, tree) in [
        (1, 1, 512, false),
        (1, 16, 512, false),
        (1, 1, 16_000, false),
        (1, 16, 16_000, false),
        (1, 32, 16_000, true),
        (8, 1, 512, false),
        (8, 16, 512, false),
    ] {
        attend(
            clock,
            "target",
            TARGET,
            causal,
            &batch(segments, rows, past, tree),
        )?;
    }
    let window = AttentionMask {
        causal: true,
        window: Some(2048),
    };
    let both = AttentionMask {
        causal: false,
        window: None,
    };
    for (segments, past) in [(1, 512), (1, 16_000), (8, 512)] {
        attend(
            clock,
            "drafter, window",
            DRAFTER,
            window,
            &batch(segments, 16, past, false),
        )?;
        attend(
            clock,
            "drafter, full",
            DRAFTER,
            both,
            &batch(segments, 16, past, false),
        )?;
    }
    Ok(())
}

pub fn attention_prefill(clock: &mut Clock) -> Result<()> {
    for past in [0, 6000, 14_000] {
        attend(
            clock,
            "target",
            TARGET,
            AttentionMask::CAUSAL,
            &batch(1, 2048, past, false),
        )?;
    }
    Ok(())
}
