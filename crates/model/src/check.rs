//! Checks of calls: what a caller can get wrong becomes an error before anything runs.

use std::fmt::Display;

use volley_ops::{Batch, Keep, Segment};

use crate::{Error, Limits, Result};

pub(crate) fn error(
    call: &'static str,
    what: &'static str,
    expected: impl Display,
    got: impl Display,
) -> Error {
    Error::Call {
        call,
        what,
        expected: expected.to_string(),
        got: got.to_string(),
    }
}

/// A pass has one id per row, rows that tile the batch, and no more than `limit` of them.
pub(crate) fn pass(call: &'static str, ids: usize, batch: &Batch, limit: usize) -> Result<()> {
    let rows = batch.rows();
    if rows == 0 || rows > limit {
        return Err(error(call, "number of rows", format!("1..={limit}"), rows));
    }
    if ids != rows {
        return Err(error(
            call,
            "number of ids",
            format!("{rows}, one per row"),
            ids,
        ));
    }
    let mut next = 0;
    for segment in &batch.segments {
        if segment.rows.start != next || segment.rows.is_empty() {
            let expected = format!("rows from {next} on, at least one");
            return Err(error(
                call,
                "segment",
                expected,
                format!("{:?}", segment.rows),
            ));
        }
        next = segment.rows.end;
    }
    Ok(())
}

/// Every segment has a slot that exists, and blocks for its tokens.
pub(crate) fn places(
    call: &'static str,
    batch: &Batch,
    limits: &Limits,
    block_size: usize,
) -> Result<()> {
    for segment in &batch.segments {
        slot(call, segment.slot, limits.slots)?;
        blocks(call, segment, limits, block_size)?;
    }
    Ok(())
}

/// No slot belongs to two segments: states would be written twice.
pub(crate) fn own_slots(call: &'static str, batch: &Batch) -> Result<()> {
    for (i, segment) in batch.segments.iter().enumerate() {
        if batch.segments[..i].iter().any(|s| s.slot == segment.slot) {
            let got = format!("slot {} twice", segment.slot);
            return Err(error(call, "slot of a segment", "one of its own", got));
        }
    }
    Ok(())
}

/// The segment's blocks exist and cover its tokens.
pub(crate) fn blocks(
    call: &'static str,
    segment: &Segment,
    limits: &Limits,
    block_size: usize,
) -> Result<()> {
    let needed = (segment.past + segment.rows.len()).div_ceil(block_size);
    if segment.blocks.len() < needed {
        let expected = format!("at least {needed}");
        return Err(error(
            call,
            "blocks of a segment",
            expected,
            segment.blocks.len(),
        ));
    }
    let used = &segment.blocks[..needed];
    match used.iter().find(|&&block| block as usize >= limits.blocks) {
        Some(block) => {
            let expected = format!("below {}", limits.blocks);
            Err(error(call, "block", expected, block))
        }
        None => Ok(()),
    }
}

pub(crate) fn chains(call: &'static str, batch: &Batch) -> Result<()> {
    match batch.segments.iter().find(|s| s.parents.is_some()) {
        Some(tree) => {
            let got = format!("a tree at rows {:?}", tree.rows);
            Err(error(call, "segment", "a chain", got))
        }
        None => Ok(()),
    }
}

/// Kept rows are a path from the committed context on.
pub(crate) fn keep(call: &'static str, batch: &Batch, keep: &Keep) -> Result<()> {
    if keep.len() != batch.segments.len() {
        let expected = format!("{}, one per segment", batch.segments.len());
        return Err(error(call, "number of kept paths", expected, keep.len()));
    }
    for (segment, path) in batch.segments.iter().zip(keep) {
        let mut parent = None;
        for &row in path {
            let i = row as usize;
            if i >= segment.rows.len() || segment.parent(i) != parent {
                let expected = format!("a path within {} rows", segment.rows.len());
                return Err(error(call, "kept path", expected, format!("{path:?}")));
            }
            parent = Some(i);
        }
    }
    Ok(())
}

pub(crate) fn ids<'a>(
    what: &'static str,
    ids: impl IntoIterator<Item = &'a u32>,
    vocab: usize,
) -> Result<()> {
    match ids.into_iter().find(|&&id| id as usize >= vocab) {
        Some(id) => Err(error("embed", what, format!("token ids below {vocab}"), id)),
        None => Ok(()),
    }
}

pub(crate) fn rows(call: &'static str, rows: &[u32], limit: usize) -> Result<()> {
    match rows.iter().find(|&&row| row as usize >= limit) {
        Some(row) => Err(error(
            call,
            "row",
            format!("below {limit}, the rows of the pass"),
            row,
        )),
        None => Ok(()),
    }
}

pub(crate) fn slot(call: &'static str, slot: usize, slots: usize) -> Result<()> {
    match slot < slots {
        true => Ok(()),
        false => Err(error(call, "slot", format!("below {slots}"), slot)),
    }
}
