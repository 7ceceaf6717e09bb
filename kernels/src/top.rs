//! The largest logits of rows.

use volley_ops::{Result, TOP_WIDTH};

use crate::buf::Buf;
use crate::dims::check_index;
use crate::driver::{Address, Driver};
use crate::error::in_op;
use crate::kernel::{TOP_PARTS, TOP_ROWS};
use crate::params::{TOP_GROUPS, TOP_SLICE, TOP_SLICES, TopParams};
use crate::scratch::Scratch;

/// As [`volley_ops::Ops::top`] says; what the slices give lies in the scratch memory.
pub fn top(
    driver: &dyn Driver,
    scratch: &Scratch,
    logits: &Buf,
    rows: usize,
    first: u32,
    allowed: u32,
    out: &Buf,
) -> Result<()> {
    let (op, width) = ("top", logits.width());
    let from = logits.float(op, "logits", rows, width)?;
    let to = out.float(op, "out", rows, TOP_WIDTH)?;
    // SAFETY: both buffers were checked.
    unsafe { top_at(driver, scratch, from, [rows, width], first, allowed, to) }
}

/// As [`top`], of rows at an address.
///
/// # Safety
/// There are as many rows as `[rows, width]` says, and room for what is found.
pub unsafe fn top_at(
    driver: &dyn Driver,
    scratch: &Scratch,
    from: Address,
    [rows, width]: [usize; 2],
    first: u32,
    allowed: u32,
    to: Address,
) -> Result<()> {
    let op = "top";
    let slices = width.div_ceil(TOP_SLICE);
    check_index(op, "slices of a row of logits", slices, TOP_SLICES + 1)?;
    let row_bytes = slices * (TOP_GROUPS + 1) * 8;
    let most = scratch.bytes / row_bytes.max(1);
    check_index(op, "bytes of scratch memory", row_bytes, scratch.bytes + 1)?;
    for first_row in (0..rows).step_by(most.max(1)) {
        let rows = most.min(rows - first_row);
        let key_bytes = rows * slices * TOP_GROUPS * 8;
        let params = TopParams {
            logits: from + (4 * first_row * width) as u64,
            keys: scratch.memory.address(),
            sums: scratch.memory.address() + key_bytes as u64,
            out: to + (4 * first_row * TOP_WIDTH) as u64,
            width: width as i32,
            columns: width.min(allowed.saturating_sub(first) as usize) as i32,
            slices: slices as i32,
            first,
        };
        // SAFETY: the caller vouches for the rows; the scratch memory was checked.
        unsafe {
            TOP_PARTS
                .launch(driver, [slices, rows, 1], &params)
                .map_err(in_op(op))?;
            TOP_ROWS
                .launch(driver, [rows, 1, 1], &params)
                .map_err(in_op(op))?;
        }
    }
    Ok(())
}
