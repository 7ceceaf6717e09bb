//! The gated-delta-net operations.

use volley_ops::{GdnDims, GdnRows, GdnStates, Result};

use crate::buf::Buf;
use crate::dims::{check_gdn, check_index, refuse};
use crate::driver::Driver;
use crate::error::in_op;
use crate::kernel::{
    COMMIT_LAYERS, CONV_COMMIT, GDN_COMMIT, GDN_PREPARE, GDN_PREPARE_PROMPT, GDN_VERIFY_1,
    GDN_VERIFY_16, GDN_VERIFY_16_FEW, GDN_VERIFY_32, GDN_VERIFY_64,
};
use crate::params::{
    CommitLayer, CommitLayersParams, ConvCommitParams, GDN_COLUMNS, GDN_DIM, GDN_MANY_COLUMNS,
    GdnParams, GdnPrepareParams, MOST_LAYERS, PREPARE_ROWS, TREE_ROWS,
};
use crate::tables::Pass;

/// Warps of a block of `gdn_prepare`, one channel group each.
const PREPARE_WARPS: usize = 4;
/// Rows from which on a warp takes several.
const PREPARE_MANY: usize = 512;
/// Threads of a block of `conv_commit`, eight channels each.
const CONV_COMMIT_THREADS: usize = 128;
/// Key dimensions of a block of `gdn_commit`.
const COMMIT_KEYS: usize = 32;

/// Weights of the convolution and the gates.
pub struct Gates<'a> {
    pub conv_w: &'a Buf,
    pub a_log: &'a Buf,
    pub dt_bias: &'a Buf,
}

/// Every slot exists, and none belongs to two segments when `exclusive`.
pub fn check_slots(op: &'static str, pass: &Pass, states: &Buf, exclusive: bool) -> Result<()> {
    if pass.facts.slots > 0 {
        check_index(op, "slot", pass.facts.slots - 1, states.rows())?;
    }
    if exclusive && pass.facts.shared_slot {
        return refuse(op, "slot of a segment", "one of its own", "one of two");
    }
    Ok(())
}

pub fn prepare(
    driver: &dyn Driver,
    dims: GdnDims,
    proj: &Buf,
    gates: &Gates,
    conv_state: &Buf,
    pass: &Pass,
    rows: &GdnRows<Buf>,
) -> Result<()> {
    let op = "gdn_prepare";
    check_gdn(op, dims)?;
    check_slots(op, pass, conv_state, false)?;
    let (n, heads) = (pass.facts.rows, dims.value_heads);
    let key_width = dims.key_heads * dims.key_dim;
    let (kernel, rows_each) = match n < PREPARE_MANY {
        true => (GDN_PREPARE, 1),
        false => (GDN_PREPARE_PROMPT, PREPARE_ROWS),
    };
    let params = GdnPrepareParams {
        tables: pass.tables,
        proj: proj.activation(op, "proj", n, dims.proj_width())?,
        conv_w: gates
            .conv_w
            .float(op, "conv_w", dims.conv_channels(), dims.conv_kernel)?,
        a_log: gates.a_log.float(op, "a_log", 1, heads)?,
        dt_bias: gates.dt_bias.float(op, "dt_bias", 1, heads)?,
        conv_state: conv_state.activation(op, "conv_state", 0, dims.conv_state_len())?,
        q: rows.q.float(op, "q", n, key_width)?,
        k: rows.k.float(op, "k", n, key_width)?,
        v: rows.v.float(op, "v", n, dims.value_width())?,
        g: rows.g.float(op, "g", n, heads)?,
        beta: rows.beta.float(op, "beta", n, heads)?,
        rows: n as i32,
        key_heads: dims.key_heads as i32,
        value_heads: heads as i32,
        padding: 0,
    };
    // One warp more for the gates.
    let groups = 2 * dims.key_heads + heads + 1;
    let grid = [groups.div_ceil(PREPARE_WARPS), n.div_ceil(rows_each), 1];
    // SAFETY: all buffers and slots were checked.
    unsafe { kernel.launch(driver, grid, &params) }.map_err(in_op(op))
}

/// Parameters of the three state operations, all buffers checked.
pub fn params(
    op: &'static str,
    dims: GdnDims,
    rows: &GdnRows<Buf>,
    pass: &Pass,
    state: &Buf,
    out: Option<&Buf>,
) -> Result<GdnParams> {
    check_gdn(op, dims)?;
    let n = pass.facts.rows;
    let key_width = dims.key_heads * dims.key_dim;
    Ok(GdnParams {
        tables: pass.tables,
        q: rows.q.float(op, "q", n, key_width)?,
        k: rows.k.float(op, "k", n, key_width)?,
        v: rows.v.float(op, "v", n, dims.value_width())?,
        g: rows.g.float(op, "g", n, dims.value_heads)?,
        beta: rows.beta.float(op, "beta", n, dims.value_heads)?,
        u: rows.u.float(op, "u", n, dims.value_width())?,
        state: state.float(op, "state", 0, dims.state_len())?,
        out: match out {
            Some(out) => out.activation(op, "out", n, dims.value_width())?,
            None => 0,
        },
        key_heads: dims.key_heads as i32,
        value_heads: dims.value_heads as i32,
    })
}

fn grid(slices: usize, dims: GdnDims, pass: &Pass) -> [usize; 3] {
    [slices, dims.value_heads, pass.facts.segments]
}

pub fn verify(
    driver: &dyn Driver,
    dims: GdnDims,
    rows: &GdnRows<Buf>,
    pass: &Pass,
    state: &Buf,
    out: &Buf,
) -> Result<()> {
    let op = "gdn_verify";
    check_slots(op, pass, state, false)?;
    check_index(op, "rows of a segment", pass.facts.longest, TREE_ROWS + 1)?;
    let params = params(op, dims, rows, pass, state, Some(out))?;
    let blocks = |columns| grid(GDN_DIM / columns, dims, pass);
    let (kernel, grid) = match (pass.facts.longest, blocks(GDN_COLUMNS)) {
        (0..=1, grid) => (GDN_VERIFY_1, grid),
        (2..=16, grid)
            if grid.iter().product::<usize>() <= GDN_VERIFY_16_FEW.resident_blocks(driver) =>
        {
            (GDN_VERIFY_16_FEW, grid)
        }
        (2..=16, grid) => (GDN_VERIFY_16, grid),
        (17..=32, _) => (GDN_VERIFY_32, blocks(GDN_MANY_COLUMNS)),
        _ => (GDN_VERIFY_64, blocks(GDN_MANY_COLUMNS)),
    };
    // SAFETY: all buffers, slots and the number of rows were checked.
    unsafe { kernel.launch(driver, grid, &params) }.map_err(in_op(op))
}

/// `most` is the longest path of kept rows.
pub fn commit(
    driver: &dyn Driver,
    dims: GdnDims,
    rows: &GdnRows<Buf>,
    pass: &Pass,
    most: usize,
    state: &Buf,
) -> Result<()> {
    let op = "gdn_commit";
    check_slots(op, pass, state, true)?;
    check_index(op, "kept rows of a segment", most, TREE_ROWS + 1)?;
    let params = params(op, dims, rows, pass, state, None)?;
    // SAFETY: all buffers, slots and the number of rows were checked.
    unsafe { GDN_COMMIT.launch(driver, grid(GDN_DIM / COMMIT_KEYS, dims, pass), &params) }
        .map_err(in_op(op))
}

pub fn conv_commit(
    driver: &dyn Driver,
    dims: GdnDims,
    proj: &Buf,
    pass: &Pass,
    conv_state: &Buf,
) -> Result<()> {
    let op = "conv_commit";
    check_gdn(op, dims)?;
    check_slots(op, pass, conv_state, true)?;
    let channels = dims.conv_channels();
    let params = ConvCommitParams {
        tables: pass.tables,
        proj: proj.activation(op, "proj", pass.facts.rows, dims.proj_width())?,
        conv_state: conv_state.activation(op, "conv_state", 0, dims.conv_state_len())?,
        channels: channels as i32,
        proj_stride: dims.proj_width() as i32,
    };
    let grid = [
        (channels / 8).div_ceil(CONV_COMMIT_THREADS),
        pass.facts.segments,
        1,
    ];
    // SAFETY: all buffers and slots were checked.
    unsafe { CONV_COMMIT.launch(driver, grid, &params) }.map_err(in_op(op))
}

/// Both commits of layers of the same shapes, many in one launch; `most` as in [`commit`].
pub fn commit_layers(
    driver: &dyn Driver,
    layers: &[GdnStates<Buf>],
    pass: &Pass,
    most: usize,
) -> Result<()> {
    let op = "commit_layers";
    check_index(op, "kept rows of a segment", most, TREE_ROWS + 1)?;
    let n = pass.facts.rows;
    for some in layers.chunks(MOST_LAYERS) {
        let dims = some[0].dims;
        let mut params = CommitLayersParams {
            tables: pass.tables,
            layers: [CommitLayer::NONE; MOST_LAYERS],
            key_heads: dims.key_heads as i32,
            value_heads: dims.value_heads as i32,
            segments: pass.facts.segments as i32,
            padding: 0,
        };
        for (to, layer) in params.layers.iter_mut().zip(some) {
            if layer.dims != dims {
                return refuse(
                    op,
                    "shapes of a layer",
                    format!("{dims:?}"),
                    format!("{:?}", layer.dims),
                );
            }
            check_slots(op, pass, layer.state, true)?;
            check_slots(op, pass, layer.conv_state, true)?;
            let states = self::params(op, dims, layer.rows, pass, layer.state, None)?;
            let conv_state = &*layer.conv_state;
            *to = CommitLayer {
                k: states.k,
                g: states.g,
                u: states.u,
                state: states.state,
                proj: layer.proj.activation(op, "proj", n, dims.proj_width())?,
                conv_state: conv_state.activation(op, "conv_state", 0, dims.conv_state_len())?,
            };
        }
        let slices = GDN_DIM / COMMIT_KEYS;
        let channels = (dims.conv_channels() / 8).div_ceil(CONV_COMMIT_THREADS * slices);
        let grid = [
            slices,
            dims.value_heads + channels,
            some.len() * pass.facts.segments,
        ];
        // SAFETY: all buffers, slots and the number of rows were checked.
        unsafe { COMMIT_LAYERS.launch(driver, grid, &params) }.map_err(in_op(op))?;
    }
    Ok(())
}
