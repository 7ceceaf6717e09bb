//! What a batch must satisfy before an operation indexes by it.

use volley_ops::{Batch, Error, Keep, Result, Segment};

use crate::buf::check;

fn refuse<T>(
    op: &'static str,
    what: &'static str,
    expected: impl Into<String>,
    got: impl Into<String>,
) -> Result<T> {
    Err(Error::Shape {
        op,
        what,
        expected: expected.into(),
        got: got.into(),
    })
}

/// The ranges of the segments tile `0..rows`, and parents come before their children.
pub fn check_batch(op: &'static str, batch: &Batch) -> Result<()> {
    let mut next = 0;
    for segment in &batch.segments {
        check(op, "first row of a segment", segment.rows.start, next)?;
        if segment.rows.end < next {
            let got = segment.rows.end.to_string();
            return refuse(op, "last row of a segment", format!("at least {next}"), got);
        }
        next = segment.rows.end;
        check_parents(op, segment)?;
    }
    Ok(())
}

fn check_parents(op: &'static str, segment: &Segment) -> Result<()> {
    let Some(parents) = &segment.parents else {
        return Ok(());
    };
    check(op, "number of parents", parents.len(), segment.rows.len())?;
    for (i, parent) in parents.iter().enumerate() {
        if let Some(parent) = parent.filter(|&p| p as usize >= i) {
            let expected = format!("a row before {i}");
            return refuse(op, "parent of a row", expected, parent.to_string());
        }
    }
    Ok(())
}

/// Every slot exists, and none belongs to two segments when `exclusive`.
pub fn check_slots(op: &'static str, batch: &Batch, slots: usize, exclusive: bool) -> Result<()> {
    for (i, segment) in batch.segments.iter().enumerate() {
        crate::buf::check_index(op, "slot", segment.slot, slots)?;
        if exclusive && batch.segments[..i].iter().any(|s| s.slot == segment.slot) {
            let got = format!("slot {} twice", segment.slot);
            return refuse(op, "slot of a segment", "one of its own", got);
        }
    }
    Ok(())
}

/// The kept rows of each segment are a path that begins at the context.
pub fn check_keep(op: &'static str, batch: &Batch, keep: &Keep) -> Result<()> {
    check_batch(op, batch)?;
    check(op, "segments of keep", keep.len(), batch.segments.len())?;
    for (segment, kept) in batch.segments.iter().zip(keep) {
        let mut last = None;
        for &row in kept {
            let row = row as usize;
            crate::buf::check_index(op, "kept row", row, segment.rows.len())?;
            if segment.parent(row) != last {
                let expected = format!("a child of {last:?}");
                return refuse(op, "kept row", expected, row.to_string());
            }
            last = Some(row);
        }
    }
    Ok(())
}

/// Key heads divide the value (or query) heads.
pub fn check_groups(op: &'static str, heads: usize, shared: usize) -> Result<()> {
    if shared > 0 && heads.is_multiple_of(shared) {
        return Ok(());
    }
    let expected = format!("a multiple of {shared} heads");
    refuse(op, "number of heads", expected, heads.to_string())
}
