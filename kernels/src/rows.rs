//! Operations that move rows.

use volley_ops::{DRAWN, Dtype, Result};

use crate::buf::{Buf, Weight};
use crate::dims::{check_index, check_multiple, refuse};
use crate::driver::{Address, Driver};
use crate::error::in_op;
use crate::kernel::{COPY_COLUMNS_2, COPY_COLUMNS_16, GATHER_2, GATHER_16, NOISE};
use crate::params::{CopyParams, GatherParams, NoiseParams};

/// `out[i] = from[index[i] - first]`, rows of `row_bytes`.
struct Gather {
    from: Address,
    /// Rows of `from`.
    limit: usize,
    index: Address,
    /// Where indices with the bit [`volley_ops::DRAWN`] are, or 0.
    drawn: Address,
    first: u32,
    out: Address,
    rows: usize,
    row_bytes: usize,
}

impl Gather {
    fn run(&self, op: &'static str, driver: &dyn Driver) -> Result<()> {
        let wide = self.row_bytes.is_multiple_of(16);
        let params = GatherParams {
            from: self.from,
            index: self.index,
            drawn: self.drawn,
            out: self.out,
            row_units: (self.row_bytes / if wide { 16 } else { 2 }) as i32,
            first: self.first,
            limit: self.limit as u32,
            padding: 0,
        };
        let kernel = if wide { GATHER_16 } else { GATHER_2 };
        // SAFETY: the callers checked both buffers; indices outside `limit` are not followed.
        unsafe { kernel.launch(driver, [self.rows, 1, 1], &params) }.map_err(in_op(op))
    }
}

/// Rows `ids - first` of a table; `index` holds the ids on the device, or says where in `drawn` they
/// are.
pub fn embed(
    driver: &dyn Driver,
    index: Address,
    drawn: Address,
    rows: usize,
    table: &Weight,
    first: u32,
    out: &Buf,
) -> Result<()> {
    let op = "embed";
    let gather = Gather {
        from: table.memory.address(),
        limit: table.out,
        index,
        drawn,
        first,
        out: out.activation(op, "out", rows, table.input)?,
        rows,
        row_bytes: 2 * table.input,
    };
    gather.run(op, driver)
}

/// An error unless all rows exist and the formats agree.
pub fn check_gather(x: &Buf, rows: &[u32], out: &Buf) -> Result<()> {
    let op = "gather";
    for &row in rows {
        check_index(op, "row", row as usize, x.rows())?;
    }
    out.view(op, "out", rows.len(), x.width(), x.dtype())?;
    Ok(())
}

/// `out[i] = x[index[i]]`, checked by [`check_gather`].
pub fn gather(driver: &dyn Driver, x: &Buf, index: Address, rows: usize, out: &Buf) -> Result<()> {
    let gather = Gather {
        from: x.address(),
        limit: x.rows(),
        index,
        drawn: 0,
        first: 0,
        out: out.address(),
        rows,
        row_bytes: x.row_bytes(),
    };
    gather.run("gather", driver)
}

pub fn copy_columns(
    driver: &dyn Driver,
    x: &Buf,
    rows: usize,
    out: &Buf,
    column: usize,
) -> Result<()> {
    let op = "copy_columns";
    if column + x.width() > out.width() {
        let expected = format!("at least {}", column + x.width());
        return refuse(op, "width of out", expected, out.width().to_string());
    }
    let from = x.any(op, "x", rows, x.width())?;
    let to = out.view(op, "out", rows, out.width(), x.dtype())?;
    let size = if x.dtype() == Dtype::F32 { 4 } else { 2 };
    let bytes = [x.row_bytes(), out.row_bytes(), column * size];
    let wide = bytes.iter().all(|bytes| bytes.is_multiple_of(16));
    let [row_units, out_units, out_column] =
        bytes.map(|bytes| (bytes / if wide { 16 } else { 2 }) as i32);
    let params = CopyParams {
        from,
        out: to,
        rows: rows as i32,
        row_units,
        out_units,
        out_column,
    };
    let kernel = if wide {
        COPY_COLUMNS_16
    } else {
        COPY_COLUMNS_2
    };
    // SAFETY: both buffers were checked.
    unsafe { kernel.launch(driver, [rows, 1, 1], &params) }.map_err(in_op(op))
}

/// Rows of drafts that some ids, or parents, name.
pub fn drawn_rows(ids: impl Iterator<Item = u32>) -> usize {
    let rows = ids.filter(|id| id & DRAWN != 0);
    rows.map(|id| (id ^ DRAWN) as usize + 1).max().unwrap_or(0)
}

/// Fills a weight with numbers between `-scale` and `scale` that depend on `seed` only.
pub fn noise(driver: &dyn Driver, weight: &Weight, seed: u32, scale: f32) -> Result<()> {
    let op = "noise";
    let values = weight.out * weight.input;
    check_multiple(op, "values of a weight", values, 8)?;
    let params = NoiseParams {
        out: weight.memory.address(),
        values: values as i64,
        seed,
        scale,
    };
    let blocks = (8 * driver.multiprocessors()).min(values.div_ceil(8 * 256));
    // SAFETY: the weight has room for its values.
    unsafe { NOISE.launch(driver, [blocks, 1, 1], &params) }.map_err(in_op(op))
}
