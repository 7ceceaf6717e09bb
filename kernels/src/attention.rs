//! The attention operations.

use volley_ops::{AttentionDims, AttentionMask, KvDims, Result, RopeTable};

use crate::attention_plan::{Plan, merge};
use crate::buf::{Buf, Kv};
use crate::dims::{check, check_attention, check_index, check_multiple, shift};
use crate::driver::Driver;
use crate::error::in_op;
use crate::kernel::{ATTENTION_PREPARE_128, ATTENTION_PREPARE_256, KV_COMMIT};
use crate::params::{AttentionParams, AttentionPrepareParams, KvCommitParams};
use crate::scratch::Scratch;
use crate::tables::Pass;

/// Warps of a block of `attention_prepare`, one head each.
const PREPARE_WARPS: usize = 4;
/// Threads of a block of `kv_commit`, eight values each.
const COMMIT_THREADS: usize = 64;

/// The cache has these dims and all blocks of the pass.
fn check_cache(op: &'static str, dims: KvDims, pass: &Pass, kv: &Kv) -> Result<()> {
    check(op, "kv_heads of the cache", dims.kv_heads, kv.dims.kv_heads)?;
    check(op, "head_dim of the cache", dims.head_dim, kv.dims.head_dim)?;
    check(
        op,
        "missing blocks of the segments",
        pass.facts.missing_blocks,
        0,
    )?;
    if pass.facts.blocks > 0 {
        check_index(op, "block", pass.facts.blocks - 1, kv.blocks)?;
    }
    Ok(())
}

/// Norms and rotation of the heads.
pub struct HeadNorms<'a> {
    /// None when only keys and values are taken in.
    pub q_norm: Option<&'a Buf>,
    pub k_norm: &'a Buf,
    pub rope: &'a RopeTable<Buf>,
}

/// Queries into `q` (unless there are none), keys and values into the cache.
pub fn prepare(
    driver: &dyn Driver,
    dims: AttentionDims,
    proj: &Buf,
    norms: &HeadNorms,
    pass: &Pass,
    q: Option<&Buf>,
    kv: &Kv,
) -> Result<()> {
    let op = if q.is_some() {
        "attention_prepare"
    } else {
        "kv_append"
    };
    check_attention(op, dims)?;
    check_cache(op, dims.kv(), pass, kv)?;
    let (n, head) = (pass.facts.rows, dims.head_dim);
    let width = match q {
        Some(_) => dims.proj_width(),
        None => 2 * dims.kv_width(),
    };
    let k_norm = norms.k_norm;
    let params = AttentionPrepareParams {
        tables: pass.tables,
        proj: proj.activation(op, "proj", n, width)?,
        q_norm: match norms.q_norm {
            Some(q_norm) => q_norm.view(op, "q_norm", 1, head, k_norm.dtype())?,
            None => 0,
        },
        k_norm: k_norm.any(op, "k_norm", 1, head)?,
        inv_freq: norms
            .rope
            .inv_freq
            .float(op, "inv_freq", 1, dims.rotary_dim / 2)?,
        q: match q {
            Some(q) => q.activation(op, "q", n, dims.query_width())?,
            None => 0,
        },
        keys: kv.keys.address(),
        values: kv.values.address(),
        rows: n as i32,
        heads: if q.is_some() { dims.heads as i32 } else { 0 },
        kv_heads: dims.kv_heads as i32,
        rotary_dim: dims.rotary_dim as i32,
        gated: i32::from(dims.gated),
        weight_f32: i32::from(k_norm.f32()),
        shift: shift(dims.norm),
        eps: dims.eps,
        rope_scale: norms.rope.scale,
        padding: 0,
    };
    let heads = params.heads as usize + 2 * dims.kv_heads;
    let grid = [heads.div_ceil(PREPARE_WARPS), n, 1];
    let kernel = if head == 128 {
        ATTENTION_PREPARE_128
    } else {
        ATTENTION_PREPARE_256
    };
    // SAFETY: all buffers and blocks were checked.
    unsafe { kernel.launch(driver, grid, &params) }.map_err(in_op(op))
}

#[allow(clippy::too_many_arguments)]
pub fn attention(
    driver: &dyn Driver,
    scratch: &Scratch,
    dims: AttentionDims,
    q: &Buf,
    proj: &Buf,
    kv: &Kv,
    mask: AttentionMask,
    pass: &Pass,
    out: &Buf,
) -> Result<()> {
    let op = "attention";
    check_attention(op, dims)?;
    check_cache(op, dims.kv(), pass, kv)?;
    let n = pass.facts.rows;
    let part_bytes = n * dims.heads * (dims.head_dim + 2) * 4;
    let room = scratch.bytes / part_bytes.max(1);
    let plan = Plan::new(driver, dims, mask, pass, room);
    let values = plan.splits * n * dims.heads * dims.head_dim;
    let params = AttentionParams {
        tables: pass.tables,
        q: q.activation(op, "q", n, dims.query_width())?,
        gate: if dims.gated {
            proj.activation(op, "proj", n, dims.proj_width())? + 2 * dims.head_dim as u64
        } else {
            0
        },
        keys: kv.keys.address(),
        values: kv.values.address(),
        out: out.activation(op, "out", n, dims.query_width())?,
        partial: scratch.memory.address(),
        partial_max: scratch.memory.address() + 4 * values as u64,
        rows: n as i32,
        heads: dims.heads as i32,
        kv_heads: dims.kv_heads as i32,
        gate_stride: dims.proj_width() as i32,
        splits: plan.splits as i32,
        causal: i32::from(mask.causal),
        window: mask.window.unwrap_or(0) as i32,
        row_tiles: plan.row_tiles as i32,
    };
    let grid = [
        plan.splits,
        dims.kv_heads * plan.row_tiles,
        pass.facts.segments,
    ];
    // SAFETY: all buffers and blocks were checked; the parts fit the scratch memory.
    unsafe {
        plan.kernel
            .launch(driver, grid, &params)
            .map_err(in_op(op))?;
        if plan.merged {
            merge(driver, dims, &params).map_err(in_op(op))?;
        }
    }
    Ok(())
}

pub fn commit(driver: &dyn Driver, dims: KvDims, pass: &Pass, kv: &Kv) -> Result<()> {
    let op = "kv_commit";
    check_cache(op, dims, pass, kv)?;
    let width = dims.kv_heads * dims.head_dim;
    check_multiple(op, "width of the cache", width, 8)?;
    let params = KvCommitParams {
        tables: pass.tables,
        keys: kv.keys.address(),
        values: kv.values.address(),
        width: width as i32,
        padding: 0,
    };
    let grid = [(width / 8).div_ceil(COMMIT_THREADS), pass.facts.segments, 1];
    // SAFETY: the cache and its blocks were checked.
    unsafe { KV_COMMIT.launch(driver, grid, &params) }.map_err(in_op(op))
}
