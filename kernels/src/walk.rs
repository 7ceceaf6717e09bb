//! Walks down verified drafts.

use bytemuck::cast_slice;
use volley_ops::{Batch, Chosen, DRAWN_WIDTH, MOST_WALKED, Result, TOP_WIDTH, WALKED_WIDTH, Walk};

use crate::buf::Buf;
use crate::dims::{check, check_index};
use crate::driver::Driver;
use crate::error::in_op;
use crate::kernel::{GATHER_WALKED_2, GATHER_WALKED_16, WALK};
use crate::params::{GatherWalkedParams, MOST_RANKS, TREE_ROWS, WalkEnd, WalkParams};
use crate::rows::drawn_rows;
use crate::tables::PassTables;

const _: () = assert!(MOST_WALKED == TREE_ROWS, "a thread per row");

/// As [`volley_ops::Ops::walk`] says.
pub fn walk(
    driver: &dyn Driver,
    tables: &PassTables,
    ranks: usize,
    batch: &Batch,
    walk: &Walk<'_, Buf>,
    out: &Buf,
) -> Result<()> {
    let (op, rows, segments) = ("walk", batch.rows(), batch.segments.len());
    check_index(op, "ranks", ranks, MOST_RANKS + 1)?;
    check(op, "ids", walk.ids.len(), rows)?;
    check(op, "ends", walk.ends.len(), segments)?;
    for (segment, end) in batch.segments.iter().zip(walk.ends) {
        let count = segment.rows.len();
        check_index(op, "rows of a segment", count, MOST_WALKED + 1)?;
        check(op, "segments without rows", usize::from(count == 0), 0)?;
        let none = usize::from(end.most == 0);
        check(op, "ends before the first row", none, 0)?;
    }
    let drafts = drawn_rows(walk.ids.iter().copied());
    let drafts = walk.drafts.float(op, "drafts", drafts, DRAWN_WIDTH)?;
    let (chosen, ranks) = match walk.chosen {
        Chosen::Likeliest(tops) => (tops.float(op, "tops", rows, ranks * TOP_WIDTH)?, ranks),
        Chosen::Drawn(drawn) => (drawn.float(op, "drawn", rows, DRAWN_WIDTH)?, 0),
    };
    let mut stops: Vec<u32> = Vec::new();
    let ends = walk.ends.iter().map(|end| {
        let first_stop = stops.len() as i32;
        stops.extend(end.stops);
        WalkEnd {
            most: end.most.min(TREE_ROWS) as i32,
            first_stop,
            stops: end.stops.len() as i32,
        }
    });
    let ends: Vec<WalkEnd> = ends.collect();
    let mut words: Vec<u32> = cast_slice(&ends).to_vec();
    words.extend(walk.ids);
    words.extend(stops);
    let out = out.float(op, "out", segments, WALKED_WIDTH)?;
    let pass = tables.walk(op, batch)?;
    let at = tables.words(op, cast_slice(&words))?;
    let ids = at + (size_of::<WalkEnd>() * segments) as u64;
    let params = WalkParams {
        segments: pass.tables.segments,
        row_parent: pass.tables.row_parent,
        kept_counts: pass.tables.kept_counts,
        kept: pass.tables.kept,
        ends: at,
        ids,
        stops: ids + 4 * rows as u64,
        drafts,
        chosen,
        out,
        ranks: ranks as i32,
        padding: 0,
    };
    // SAFETY: tables, words and buffers have the rows and segments of the batch.
    unsafe { WALK.launch(driver, [segments, 1, 1], &params) }.map_err(in_op(op))
}

/// As [`volley_ops::Ops::gather_walked`] says.
pub fn gather(
    driver: &dyn Driver,
    tables: &PassTables,
    x: &Buf,
    batch: &Batch,
    counts: &[usize],
    out: &Buf,
) -> Result<()> {
    let op = "gather_walked";
    check(op, "counts", counts.len(), batch.segments.len())?;
    let mut index = Vec::new();
    for (i, (segment, &count)) in batch.segments.iter().zip(counts).enumerate() {
        check_index(op, "count", count, segment.rows.len() + 1)?;
        index.extend((0..count).map(|place| (i * TREE_ROWS + place) as u32));
    }
    let wide = x.row_bytes().is_multiple_of(16);
    let params = GatherWalkedParams {
        tables: tables.walked(op, batch)?.tables,
        from: x.any(op, "x", batch.rows(), x.width())?,
        out: out.view(op, "out", index.len(), x.width(), x.dtype())?,
        index: tables.index(op, &index)?,
        row_units: (x.row_bytes() / if wide { 16 } else { 2 }) as i32,
        padding: 0,
    };
    let kernel = if wide {
        GATHER_WALKED_16
    } else {
        GATHER_WALKED_2
    };
    // SAFETY: a walk wrote the kept rows of this batch, and the buffers have the rows that are named.
    unsafe { kernel.launch(driver, [index.len(), 1, 1], &params) }.map_err(in_op(op))
}
