//! Wrong operands are errors that name them, never a panic.

use volley_ops::{
    AttentionDims, AttentionMask, Batch, Dtype, Error, GdnDims, GdnRows, NormKind, Ops, Result,
    RopeTable, Segment,
};

use crate::common::{alone, chains, cpu, zeros};

const GDN: GdnDims = GdnDims {
    key_heads: 1,
    value_heads: 2,
    key_dim: 4,
    value_dim: 4,
    conv_kernel: 4,
};

const ATTENTION: AttentionDims = AttentionDims {
    heads: 2,
    kv_heads: 1,
    head_dim: 8,
    rotary_dim: 4,
    gated: false,
    norm: NormKind::Plain,
    eps: 1e-6,
};

#[track_caller]
fn shape(result: Result<()>, op: &str, what: &str) {
    match result.unwrap_err() {
        Error::Shape { op: o, what: w, .. } => assert_eq!((o, w), (op, what)),
        other => panic!("{other}"),
    }
}

#[track_caller]
fn index(result: Result<()>, op: &str, what: &str, at: usize, length: usize) {
    match result.unwrap_err() {
        Error::Index {
            op: o,
            what: w,
            index,
            len,
        } => {
            assert_eq!((o, w, index, len), (op, what, at, length));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn buffers_and_weights() {
    let ops = cpu();
    let x = zeros(&ops, 2, 8);
    let w = ops.weight(vec![0.0; 24], 3, 8).unwrap();
    let norm = zeros(&ops, 1, 8);
    let (mut out, mut narrow) = (zeros(&ops, 2, 3), zeros(&ops, 2, 2));
    shape(
        ops.upload(&[0.0; 5], 2, 3, Dtype::F32).map(|_| ()),
        "upload",
        "number of values",
    );
    shape(
        ops.weight(vec![0.0; 5], 2, 3).map(|_| ()),
        "weight",
        "number of values",
    );
    shape(ops.linear(&x, 3, &w, &mut out), "linear", "x");
    shape(ops.linear(&out, 2, &w, &mut narrow), "linear", "x");
    shape(ops.linear(&x, 2, &w, &mut narrow), "linear", "out");
    shape(
        ops.embed(&[0, 1, 2], &w, 0, &mut zeros(&ops, 2, 8)),
        "embed",
        "out",
    );
    shape(
        ops.rms_norm(
            &x,
            2,
            &zeros(&ops, 1, 7),
            NormKind::Plain,
            0.0,
            &mut zeros(&ops, 2, 8),
        ),
        "rms_norm",
        "w",
    );
    shape(
        ops.rms_norm(&x, 2, &norm, NormKind::Plain, 0.0, &mut out),
        "rms_norm",
        "out",
    );
    shape(ops.add(&x, 2, &mut out), "add", "delta");
    let mut residual = zeros(&ops, 2, 8);
    shape(
        ops.add_rms_norm(
            &out,
            2,
            &mut residual,
            &norm,
            NormKind::Plain,
            0.0,
            &mut zeros(&ops, 2, 8),
        ),
        "add_rms_norm",
        "delta",
    );
    shape(ops.swiglu(&x, 2, &mut out), "swiglu", "x");
    shape(
        ops.copy_columns(&x, 2, &mut zeros(&ops, 2, 9), 2),
        "copy_columns",
        "width of out",
    );
    shape(
        ops.all_gather(&x, 2, &mut out),
        "all_gather",
        "width of out",
    );
    index(
        ops.gather(&x, &[1, 2], &mut zeros(&ops, 2, 8)),
        "gather",
        "row",
        2,
        2,
    );
    index(ops.read(&x, 1..4).map(|_| ()), "read", "end of rows", 4, 3);
    index(ops.zero(&mut residual, 2..3), "zero", "end of rows", 3, 3);
}

fn gdn_rows(ops: &volley_ops_candle::CandleOps, n: usize) -> GdnRows<volley_ops_candle::Buf> {
    GdnRows {
        q: zeros(ops, n, 4),
        k: zeros(ops, n, 4),
        v: zeros(ops, n, 8),
        g: zeros(ops, n, 2),
        beta: zeros(ops, n, 2),
        u: zeros(ops, n, 8),
    }
}

#[test]
fn batches_slots_and_kept_rows() {
    let ops = cpu();
    let mut rows = gdn_rows(&ops, 4);
    let mut state = zeros(&ops, 2, GDN.state_len());
    let mut conv_state = zeros(&ops, 2, GDN.conv_state_len());
    let proj = zeros(&ops, 4, GDN.proj_width());
    let mut out = zeros(&ops, 4, 8);

    let gap = Batch {
        segments: vec![Segment {
            rows: 1..3,
            ..alone(3, 0, None).segments.remove(0)
        }],
    };
    shape(ops.begin(&gap), "begin", "first row of a segment");
    shape(
        ops.begin(&alone(2, 0, Some(vec![None]))),
        "begin",
        "number of parents",
    );
    shape(
        ops.begin(&alone(2, 0, Some(vec![None, Some(1)]))),
        "begin",
        "parent of a row",
    );
    shape(
        ops.begin(&alone(2, 0, Some(vec![None, Some(9)]))),
        "begin",
        "parent of a row",
    );

    let tree = alone(3, 0, Some(vec![None, Some(0), Some(0)]));
    shape(
        ops.gdn_prefill(GDN, &rows, &tree, &mut state, &mut out),
        "gdn_prefill",
        "number of trees",
    );
    let twice = chains(&[2, 2], &[1, 1]);
    shape(
        ops.gdn_prefill(GDN, &rows, &twice, &mut state, &mut out),
        "gdn_prefill",
        "slot of a segment",
    );
    let far = alone(2, 2, None);
    index(
        ops.gdn_verify(GDN, &mut rows, &far, &state, &mut out),
        "gdn_verify",
        "slot",
        2,
        2,
    );
    shape(
        ops.gdn_verify(GDN, &mut rows, &alone(5, 0, None), &state, &mut out),
        "gdn_verify",
        "u",
    );
    let odd = GdnDims {
        key_heads: 3,
        ..GDN
    };
    shape(
        ops.gdn_verify(odd, &mut rows, &tree, &state, &mut out),
        "gdn_verify",
        "number of heads",
    );
    assert_eq!(rows.u.width(), 8, "an error leaves the rows whole");

    shape(
        ops.gdn_commit(GDN, &rows, &tree, &vec![], &mut state),
        "gdn_commit",
        "segments of keep",
    );
    shape(
        ops.gdn_commit(GDN, &rows, &tree, &vec![vec![0, 1, 2]], &mut state),
        "gdn_commit",
        "kept row",
    );
    shape(
        ops.conv_commit(GDN, &proj, &tree, &vec![vec![1]], &mut conv_state),
        "conv_commit",
        "kept row",
    );
    index(
        ops.conv_commit(GDN, &proj, &tree, &vec![vec![0, 3]], &mut conv_state),
        "conv_commit",
        "kept row",
        3,
        3,
    );
}

#[test]
fn pages_and_caches() {
    let ops = cpu();
    let mut kv = ops.kv(ATTENTION.kv(), 3).unwrap();
    let proj = zeros(&ops, 2, ATTENTION.proj_width());
    let norm = zeros(&ops, 1, 8);
    let rope = RopeTable {
        inv_freq: zeros(&ops, 1, 2),
        scale: 1.0,
    };
    let mut q = zeros(&ops, 2, 16);
    let batch = |past: usize, blocks: Vec<u32>| Batch {
        segments: vec![Segment {
            rows: 0..2,
            slot: 0,
            past,
            blocks,
            parents: None,
        }],
    };
    let mut prepare = |dims, batch: &Batch, rope: &RopeTable<_>| {
        ops.attention_prepare(dims, &proj, &norm, &norm, rope, batch, &mut q, &mut kv)
    };
    index(
        prepare(ATTENTION, &batch(0, vec![3]), &rope),
        "attention_prepare",
        "block",
        3,
        3,
    );
    shape(
        prepare(ATTENTION, &batch(ops.block_size() - 1, vec![0]), &rope),
        "attention_prepare",
        "number of blocks of a segment",
    );
    prepare(ATTENTION, &batch(ops.block_size() - 2, vec![0]), &rope).unwrap();
    let wide = AttentionDims {
        rotary_dim: 10,
        ..ATTENTION
    };
    index(
        prepare(wide, &batch(0, vec![0]), &rope),
        "attention_prepare",
        "rotary_dim",
        10,
        9,
    );
    let other = AttentionDims {
        head_dim: 16,
        ..ATTENTION
    };
    shape(
        prepare(other, &batch(0, vec![0]), &rope),
        "attention_prepare",
        "head_dim of the cache",
    );
    let short = RopeTable {
        inv_freq: zeros(&ops, 1, 1),
        scale: 1.0,
    };
    shape(
        prepare(ATTENTION, &batch(0, vec![0]), &short),
        "attention_prepare",
        "inv_freq",
    );

    let mut out = zeros(&ops, 2, 16);
    let far = batch(0, vec![7]);
    index(
        ops.attention(
            ATTENTION,
            &q,
            &proj,
            &kv,
            AttentionMask::CAUSAL,
            &far,
            &mut out,
        ),
        "attention",
        "block",
        7,
        3,
    );
    let nothing = AttentionMask {
        causal: true,
        window: Some(0),
    };
    let near = batch(0, vec![0]);
    shape(
        ops.attention(ATTENTION, &q, &proj, &kv, nothing, &near, &mut out),
        "attention",
        "window",
    );
    index(
        ops.kv_commit(ATTENTION.kv(), &far, &vec![vec![0]], &mut kv),
        "kv_commit",
        "block",
        7,
        3,
    );
    shape(
        ops.kv_append(ATTENTION, &proj, &norm, &rope, &batch(0, vec![0]), &mut kv),
        "kv_append",
        "proj",
    );
}
