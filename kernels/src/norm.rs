//! Norms, the residual sum, and the gate of the feed-forward layer.

use volley_ops::{GdnDims, NormKind, Result};

use crate::buf::Buf;
use crate::dims::{check, check_gdn, check_index, check_multiple, shift};
use crate::driver::Driver;
use crate::error::in_op;
use crate::kernel::{ADD, ADD_RMS_NORM, GATED_NORM, Kernel, RMS_NORM, SWIGLU};
use crate::params::{GatedNormParams, NORM_WIDTH, NormParams, SwigluParams};

/// A norm and its weight.
#[derive(Clone, Copy)]
pub struct Norm<'a> {
    pub weight: &'a Buf,
    pub kind: NormKind,
    pub eps: f32,
}

fn launch_norm(
    op: &'static str,
    driver: &dyn Driver,
    kernel: &Kernel<NormParams>,
    rows: usize,
    params: &NormParams,
) -> Result<()> {
    check_multiple(op, "width", params.width as usize, 8)?;
    check_index(op, "width", params.width as usize, NORM_WIDTH + 1)?;
    // SAFETY: the callers checked all buffers.
    unsafe { kernel.launch(driver, [rows, 1, 1], params) }.map_err(in_op(op))
}

pub fn rms_norm(driver: &dyn Driver, x: &Buf, rows: usize, norm: Norm, out: &Buf) -> Result<()> {
    let (op, width) = ("rms_norm", x.width());
    let params = NormParams {
        x: x.activation(op, "x", rows, width)?,
        residual: 0,
        weight: norm.weight.any(op, "w", 1, width)?,
        out: out.activation(op, "out", rows, width)?,
        width: width as i32,
        weight_f32: i32::from(norm.weight.f32()),
        shift: shift(norm.kind),
        eps: norm.eps,
    };
    launch_norm(op, driver, &RMS_NORM, rows, &params)
}

pub fn add_rms_norm(
    driver: &dyn Driver,
    delta: &Buf,
    rows: usize,
    residual: &Buf,
    norm: Norm,
    out: &Buf,
) -> Result<()> {
    let (op, width) = ("add_rms_norm", residual.width());
    let params = NormParams {
        x: delta.activation(op, "delta", rows, width)?,
        residual: residual.activation(op, "residual", rows, width)?,
        weight: norm.weight.any(op, "w", 1, width)?,
        out: out.activation(op, "out", rows, width)?,
        width: width as i32,
        weight_f32: i32::from(norm.weight.f32()),
        shift: shift(norm.kind),
        eps: norm.eps,
    };
    launch_norm(op, driver, &ADD_RMS_NORM, rows, &params)
}

pub fn add(driver: &dyn Driver, delta: &Buf, rows: usize, residual: &Buf) -> Result<()> {
    let (op, width) = ("add", residual.width());
    let params = NormParams {
        x: delta.activation(op, "delta", rows, width)?,
        residual: residual.activation(op, "residual", rows, width)?,
        weight: 0,
        out: 0,
        width: width as i32,
        weight_f32: 0,
        shift: 0.0,
        eps: 0.0,
    };
    launch_norm(op, driver, &ADD, rows, &params)
}

pub fn swiglu(driver: &dyn Driver, x: &Buf, rows: usize, out: &Buf) -> Result<()> {
    let (op, width) = ("swiglu", out.width());
    check(op, "width of x", x.width(), 2 * width)?;
    check_multiple(op, "width", width, 8)?;
    let params = SwigluParams {
        x: x.activation(op, "x", rows, 2 * width)?,
        out: out.activation(op, "out", rows, width)?,
        rows: rows as i32,
        width: width as i32,
    };
    let grid = [(width / 8).div_ceil(256), rows, 1];
    // SAFETY: both buffers were checked.
    unsafe { SWIGLU.launch(driver, grid, &params) }.map_err(in_op(op))
}

pub fn gated_norm(
    driver: &dyn Driver,
    dims: GdnDims,
    x: &Buf,
    proj: &Buf,
    rows: usize,
    norm: Norm,
    out: &Buf,
) -> Result<()> {
    let (op, width) = ("gated_norm", dims.value_width());
    check_gdn(op, dims)?;
    let proj = proj.activation(op, "proj", rows, dims.proj_width())?;
    let params = GatedNormParams {
        x: x.activation(op, "x", rows, width)?,
        gate: proj + 2 * dims.conv_channels() as u64,
        weight: norm.weight.any(op, "w", 1, dims.value_dim)?,
        out: out.activation(op, "out", rows, width)?,
        rows: rows as i32,
        heads: dims.value_heads as i32,
        gate_stride: dims.proj_width() as i32,
        weight_f32: i32::from(norm.weight.f32()),
        eps: norm.eps,
        padding: 0,
    };
    let grid = [(rows * dims.value_heads).div_ceil(8), 1, 1];
    // SAFETY: all buffers were checked.
    unsafe { GATED_NORM.launch(driver, grid, &params) }.map_err(in_op(op))
}
