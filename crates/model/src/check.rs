//! Checks of calls: what a caller can get wrong becomes an error before anything runs.

use std::fmt::Display;

use volley_ops::{Batch, Keep};

use crate::{Error, Result};

/// How much a model holds; buffers and caches are allocated once, at load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rows of a pass.
    pub max_rows: usize,
    /// Rows of a [`crate::Target::verify`]; each costs memory in every GDN layer.
    pub verify_rows: usize,
    /// Sequences whose recurrent states are held.
    pub slots: usize,
    /// Cache blocks, each of [`volley_ops::Ops::block_size`] tokens.
    pub blocks: usize,
}

impl Limits {
    pub(crate) fn check(&self, call: &'static str) -> Result<()> {
        let positive = |what, n: usize| match n {
            0 => Err(error(call, what, "at least 1", n)),
            _ => Ok(()),
        };
        positive("limits.max_rows", self.max_rows)?;
        positive("limits.verify_rows", self.verify_rows)?;
        positive("limits.slots", self.slots)?;
        positive("limits.blocks", self.blocks)?;
        if self.verify_rows > self.max_rows {
            let expected = format!("at most max_rows = {}", self.max_rows);
            return Err(error(
                call,
                "limits.verify_rows",
                expected,
                self.verify_rows,
            ));
        }
        Ok(())
    }
}

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

pub(crate) fn ids(what: &'static str, ids: &[u32], vocab: usize) -> Result<()> {
    match ids.iter().find(|&&id| id as usize >= vocab) {
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
