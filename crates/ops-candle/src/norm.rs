//! RMS norms. A row's bits depend on that row only.

use volley_ops::{GdnDims, NormKind, Result};

use crate::buf::Buf;
use crate::math::{silu_times, sum_of_squares};

/// `x / rms(x) * w` (or `1 + w`) of one row or head.
pub fn norm_row(x: &[f32], w: &[f32], kind: NormKind, eps: f32, out: &mut [f32]) {
    let scale = 1.0 / (sum_of_squares(x) / x.len() as f32 + eps).sqrt();
    let shift = match kind {
        NormKind::Plain => 0.0,
        NormKind::ZeroCentred => 1.0,
    };
    for ((out, &x), &w) in out.iter_mut().zip(x).zip(w) {
        *out = x * scale * (shift + w);
    }
}

pub fn rms_norm(
    x: &Buf,
    rows: usize,
    w: &Buf,
    kind: NormKind,
    eps: f32,
    out: &mut Buf,
) -> Result<()> {
    let (op, width) = ("rms_norm", x.width());
    let x = x.view(op, "x", rows, width)?;
    let w = w.view(op, "w", 1, width)?;
    let out = out.view_mut(op, "out", rows, width)?;
    if width > 0 {
        for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
            norm_row(x, w, kind, eps, out);
        }
    }
    Ok(())
}

pub fn add_rms_norm(
    delta: &Buf,
    rows: usize,
    residual: &mut Buf,
    w: &Buf,
    kind: NormKind,
    eps: f32,
    out: &mut Buf,
) -> Result<()> {
    let (op, width) = ("add_rms_norm", residual.width());
    w.view(op, "w", 1, width)?;
    out.view_mut(op, "out", rows, width)?;
    let sum = residual.view_mut(op, "residual", rows, width)?;
    add_into(delta.view(op, "delta", rows, width)?, sum);
    rms_norm(residual, rows, w, kind, eps, out)
}

pub fn add(delta: &Buf, rows: usize, residual: &mut Buf) -> Result<()> {
    let (op, width) = ("add", residual.width());
    let sum = residual.view_mut(op, "residual", rows, width)?;
    add_into(delta.view(op, "delta", rows, width)?, sum);
    Ok(())
}

fn add_into(delta: &[f32], sum: &mut [f32]) {
    sum.iter_mut().zip(delta).for_each(|(sum, d)| *sum += d);
}

/// Per value head: `out = norm(x) * w * silu(z)`.
pub fn gated_norm(
    dims: GdnDims,
    x: &Buf,
    proj: &Buf,
    rows: usize,
    w: &Buf,
    eps: f32,
    out: &mut Buf,
) -> Result<()> {
    let (op, width, head) = ("gated_norm", dims.value_width(), dims.value_dim);
    let x = x.view(op, "x", rows, width)?;
    let proj = proj.view(op, "proj", rows, dims.proj_width())?;
    let w = w.view(op, "w", 1, head)?;
    let out = out.view_mut(op, "out", rows, width)?;
    if width == 0 {
        return Ok(());
    }
    let z = proj
        .chunks_exact(dims.proj_width())
        .map(|row| &row[dims.conv_channels()..][..width]);
    let rows = x.chunks_exact(width).zip(out.chunks_exact_mut(width));
    let mut normed = vec![0.0; width];
    for ((x, out), z) in rows.zip(z) {
        for (x, normed) in x.chunks_exact(head).zip(normed.chunks_exact_mut(head)) {
            norm_row(x, w, NormKind::Plain, eps, normed);
        }
        silu_times(z, &normed, out);
    }
    Ok(())
}
