//! Microseconds per operation at the shapes of the demo models, for one row (decode), sixteen rows
//! (verify) and a prompt: `cargo run --release -p volley-ops-candle --example ops_speed`.

use std::time::Instant;

use candle_core::Device;
use volley_ops::{
    AttentionDims, AttentionMask, Batch, Dtype, GdnDims, GdnRows, NormKind, Ops, Result, RopeTable,
    Segment,
};
use volley_ops_candle::{Buf, CandleOps};

const HIDDEN: usize = 256;
const INTERMEDIATE: usize = 384;
const VOCABULARY: usize = 2048;
const CONTEXT: usize = 512;

const GDN: GdnDims = GdnDims {
    key_heads: 2,
    value_heads: 4,
    key_dim: 128,
    value_dim: 128,
    conv_kernel: 4,
};

const ATTENTION: AttentionDims = AttentionDims {
    heads: 2,
    kv_heads: 1,
    head_dim: 256,
    rotary_dim: 64,
    gated: true,
    norm: NormKind::ZeroCentred,
    eps: 1e-6,
};

fn main() -> Result<()> {
    let ops = CandleOps::single(Device::Cpu);
    println!(
        "{:<34} {:>10} {:>10} {:>10}",
        "us per call", "1 row", "16 rows", "256 rows"
    );
    for (name, out, input) in [
        ("linear 256 -> 1024", 1024, HIDDEN),
        ("linear gdn projection", GDN.proj_width(), HIDDEN),
        (
            "linear attention projection",
            ATTENTION.proj_width(),
            HIDDEN,
        ),
        ("linear gate and up", 2 * INTERMEDIATE, HIDDEN),
        ("linear down", HIDDEN, INTERMEDIATE),
        ("linear head", VOCABULARY, HIDDEN),
    ] {
        let w = ops.weight(noise(out * input), out, input)?;
        print(name, |rows| {
            let (x, mut y) = (random(&ops, rows, input)?, random(&ops, rows, out)?);
            time(|| ops.linear(&x, rows, &w, &mut y))
        })?;
    }
    every_linear(&ops)?;
    print("add_rms_norm", |rows| {
        let (delta, w) = (random(&ops, rows, HIDDEN)?, random(&ops, 1, HIDDEN)?);
        let (mut sum, mut y) = (random(&ops, rows, HIDDEN)?, random(&ops, rows, HIDDEN)?);
        time(|| ops.add_rms_norm(&delta, rows, &mut sum, &w, NormKind::Plain, 1e-6, &mut y))
    })?;
    print("swiglu", |rows| {
        let (x, mut y) = (
            random(&ops, rows, 2 * INTERMEDIATE)?,
            random(&ops, rows, INTERMEDIATE)?,
        );
        time(|| ops.swiglu(&x, rows, &mut y))
    })?;
    gdn(&ops)?;
    attention(&ops)
}

/// All weights of a pass one after another, which no small cache holds.
fn every_linear(ops: &CandleOps) -> Result<()> {
    let mlp = [(2 * INTERMEDIATE, HIDDEN), (HIDDEN, INTERMEDIATE)];
    let gdn = [(GDN.proj_width(), HIDDEN), (HIDDEN, GDN.value_width())];
    let attention = [
        (ATTENTION.proj_width(), HIDDEN),
        (HIDDEN, ATTENTION.query_width()),
    ];
    let layers = (0..8).flat_map(|i| [if i % 4 == 3 { attention } else { gdn }, mlp].concat());
    let mut weights = Vec::new();
    for (out, input) in layers.chain([(VOCABULARY, HIDDEN)]) {
        weights.push(ops.weight(noise(out * input), out, input)?);
    }
    print("linear maps of a whole pass", |rows| {
        let mut buffers = Vec::new();
        for w in &weights {
            buffers.push((random(ops, rows, w.input())?, random(ops, rows, w.out())?));
        }
        time(|| {
            let all = weights.iter().zip(&mut buffers);
            all.into_iter()
                .try_for_each(|(w, (x, y))| ops.linear(x, rows, w, y))
        })
    })
}

fn gdn(ops: &CandleOps) -> Result<()> {
    let conv_w = random(ops, GDN.conv_channels(), GDN.conv_kernel)?;
    let head = random(ops, 1, GDN.value_heads)?;
    let conv_state = random(ops, 1, GDN.conv_state_len())?;
    let mut state = random(ops, 1, GDN.state_len())?;
    let keys = GDN.key_heads * GDN.key_dim;
    let all = |rows| -> Result<_> {
        let prepared = GdnRows {
            q: random(ops, rows, keys)?,
            k: random(ops, rows, keys)?,
            v: random(ops, rows, GDN.value_width())?,
            g: random(ops, rows, GDN.value_heads)?,
            beta: random(ops, rows, GDN.value_heads)?,
            u: random(ops, rows, GDN.value_width())?,
        };
        let proj = random(ops, rows, GDN.proj_width())?;
        let mut rows = prepared;
        ops.gdn_prepare(
            GDN,
            &proj,
            &conv_w,
            &head,
            &head,
            &conv_state,
            &one(rows.q.rows()),
            &mut rows,
        )?;
        let out = random(ops, rows.q.rows(), GDN.value_width())?;
        Ok((proj, rows, out))
    };
    print("gdn_prepare", |n| {
        let (proj, mut rows, _) = all(n)?;
        time(|| {
            ops.gdn_prepare(
                GDN,
                &proj,
                &conv_w,
                &head,
                &head,
                &conv_state,
                &one(n),
                &mut rows,
            )
        })
    })?;
    print("gdn_verify", |n| {
        let (_, mut rows, mut out) = all(n)?;
        time(|| ops.gdn_verify(GDN, &mut rows, &one(n), &state, &mut out))
    })?;
    print("gdn_commit", |n| {
        let (_, rows, _) = all(n)?;
        let keep = vec![(0..n as u32).collect()];
        time(|| ops.gdn_commit(GDN, &rows, &one(n), &keep, &mut state))
    })?;
    print("gdn_prefill", |n| {
        let (_, rows, mut out) = all(n)?;
        time(|| ops.gdn_prefill(GDN, &rows, &one(n), &mut state, &mut out))
    })?;
    print("gated_norm", |n| {
        let (proj, rows, mut out) = all(n)?;
        let w = random(ops, 1, GDN.value_dim)?;
        time(|| ops.gated_norm(GDN, &rows.v, &proj, n, &w, 1e-6, &mut out))
    })
}

fn attention(ops: &CandleOps) -> Result<()> {
    let mut kv = ops.kv(ATTENTION.kv(), 64)?;
    let norm = random(ops, 1, ATTENTION.head_dim)?;
    let rope = RopeTable {
        inv_freq: random(ops, 1, ATTENTION.rotary_dim / 2)?,
        scale: 1.0,
    };
    let batch = |n| {
        let mut batch = one(n);
        batch.segments[0].past = CONTEXT;
        batch.segments[0].blocks = (0..64).collect();
        batch
    };
    print("attention_prepare", |n| {
        let (proj, mut q) = (
            random(ops, n, ATTENTION.proj_width())?,
            random(ops, n, ATTENTION.query_width())?,
        );
        time(|| {
            ops.attention_prepare(
                ATTENTION,
                &proj,
                &norm,
                &norm,
                &rope,
                &batch(n),
                &mut q,
                &mut kv,
            )
        })
    })?;
    print("attention, 512 tokens of context", |n| {
        let (proj, q) = (
            random(ops, n, ATTENTION.proj_width())?,
            random(ops, n, ATTENTION.query_width())?,
        );
        let mut out = random(ops, n, ATTENTION.query_width())?;
        time(|| {
            ops.attention(
                ATTENTION,
                &q,
                &proj,
                &kv,
                AttentionMask::CAUSAL,
                &batch(n),
                &mut out,
            )
        })
    })
}

fn one(rows: usize) -> Batch {
    let segment = Segment {
        rows: 0..rows,
        slot: 0,
        past: 0,
        blocks: Vec::new(),
        parents: None,
    };
    Batch {
        segments: vec![segment],
    }
}

fn noise(n: usize) -> Vec<f32> {
    (0..n)
        .map(|i| ((i * 7919 % 1013) as f32 / 1013.0 - 0.5) * 0.2)
        .collect()
}

fn random(ops: &CandleOps, rows: usize, width: usize) -> Result<Buf> {
    ops.upload(&noise(rows * width), rows, width, Dtype::F32)
}

/// Median microseconds of a call.
fn time(mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut times = Vec::new();
    let begin = Instant::now();
    while times.len() < 20 || (begin.elapsed().as_millis() < 200 && times.len() < 2000) {
        let start = Instant::now();
        call()?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

fn print(name: &str, mut measure: impl FnMut(usize) -> Result<f64>) -> Result<()> {
    let (one, sixteen, prompt) = (measure(1)?, measure(16)?, measure(256)?);
    println!("{name:<34} {one:>10.1} {sixteen:>10.1} {prompt:>10.1}");
    Ok(())
}
