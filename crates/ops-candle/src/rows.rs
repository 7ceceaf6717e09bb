//! Operations that move or cut rows, and the feed-forward gate.

use volley_ops::{Batch, Error, Result};

use crate::buf::{Buf, check_index};
use crate::math::silu_times;

pub fn gather(x: &Buf, rows: &[u32], out: &mut Buf) -> Result<()> {
    let (op, width) = ("gather", x.width());
    let out = out.view_mut(op, "out", rows.len(), width)?;
    for (i, &row) in rows.iter().enumerate() {
        let row = row as usize;
        check_index(op, "row", row, x.rows())?;
        out[i * width..(i + 1) * width].copy_from_slice(x.range(op, row..row + 1)?);
    }
    Ok(())
}

pub fn copy_columns(x: &Buf, rows: usize, out: &mut Buf, column: usize) -> Result<()> {
    let (op, width, out_width) = ("copy_columns", x.width(), out.width());
    if column + width > out_width {
        return Err(Error::Shape {
            op,
            what: "width of out",
            expected: format!("at least {}", column + width),
            got: out_width.to_string(),
        });
    }
    let x = x.view(op, "x", rows, width)?;
    let out = out.view_mut(op, "out", rows, out_width)?;
    if width > 0 {
        for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(out_width)) {
            out[column..column + width].copy_from_slice(x);
        }
    }
    Ok(())
}

/// `out = silu(x[:, ..m]) * x[:, m..]`.
pub fn swiglu(x: &Buf, rows: usize, out: &mut Buf) -> Result<()> {
    let (op, width) = ("swiglu", out.width());
    let x = x.view(op, "x", rows, 2 * width)?;
    let out = out.view_mut(op, "out", rows, width)?;
    if width > 0 {
        for (x, out) in x.chunks_exact(2 * width).zip(out.chunks_exact_mut(width)) {
            let (gate, up) = x.split_at(width);
            silu_times(gate, up, out);
        }
    }
    Ok(())
}

/// `rows`, `width` wide, cut into one list of `head`-wide pieces per segment and head.
pub fn head_rows<'a>(
    batch: &Batch,
    rows: &'a mut [f32],
    width: usize,
    head: usize,
) -> Vec<Vec<&'a mut [f32]>> {
    let heads = width / head;
    let mut parts: Vec<Vec<&mut [f32]>> = Vec::new();
    let mut rows = rows.chunks_exact_mut(width);
    for segment in &batch.segments {
        let first = parts.len();
        parts.resize_with(first + heads, || Vec::with_capacity(segment.rows.len()));
        for row in rows.by_ref().take(segment.rows.len()) {
            for (part, list) in row.chunks_exact_mut(head).zip(&mut parts[first..]) {
                list.push(part);
            }
        }
    }
    parts
}
