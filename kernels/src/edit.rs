//! Tokens drawn from rows that are changed first.

use std::ops::Range;

use bytemuck::{bytes_of, cast_slice};
use volley_ops::{DRAWN_WIDTH, Draw, Edit, EditedRows, Result, TOP_WIDTH};

use crate::buf::Buf;
use crate::dims::{check, check_index};
use crate::draw::{DrawRows, WholeRows, draw_at};
use crate::driver::{Address, Driver};
use crate::error::in_op;
use crate::kernel::{CHANGE_TOKENS, MASK_ROWS, RESTORE_DRAWN};
use crate::params::{DRAW_SLICE, DrawRow, EditParams, EditRow, TokenChange};
use crate::scratch::Scratch;
use crate::tables::PassTables;
use crate::top::top_at;

/// Threads of a block of edit.cu.
const THREADS: usize = 256;

/// As [`volley_ops::Ops::draw_edited`] says, as many rows at a time as the table of changes holds.
pub fn draw_edited(
    driver: &dyn Driver,
    scratch: &Scratch,
    tables: &PassTables,
    from: EditedRows<'_, Buf>,
    edits: &[Edit],
    draws: &[Draw],
    out: &Buf,
) -> Result<()> {
    let (op, n, width) = ("draw_edited", draws.len(), from.whole.width());
    let at = tables.draws(op, from.first, draws)?;
    check(op, "edits", edits.len(), n)?;
    let tokens = edits.iter().flat_map(|edit| &edit.changes);
    if let Some(largest) = tokens.map(|change| change.token as usize).max() {
        check_index(op, "token of a change", largest, width)?;
    }
    let logits = from.whole.float(op, "whole", n, width)?;
    let tops = from.tops.float(op, "tops", n, TOP_WIDTH)?;
    let out = out.float(op, "out", from.first + n, DRAWN_WIDTH)?;
    let row = |address: Address, row: usize, bytes: usize| address + (row * bytes) as Address;
    for part in parts(edits, PassTables::EDIT_BYTES) {
        let (rows, draws) = (part.len(), &draws[part.clone()]);
        let logits = row(logits, part.start, 4 * width);
        let tops = row(tops, part.start, 4 * TOP_WIDTH);
        let out = row(out, from.first + part.start, 4 * DRAWN_WIDTH);
        let edits = &edits[part.clone()];
        let table = Table::of(edits, width);
        let (address, own) = tables.edits(op, &table.bytes)?;
        let params = EditParams {
            logits,
            rows: address,
            changes: row(address, rows, size_of::<EditRow>()),
            masks: row(address, table.masks, 1),
            own,
            drawn: out,
            width: width as i32,
            padding: 0,
        };
        let most = edits.iter().map(|edit| edit.changes.len()).max();
        let changes = [most.unwrap_or(0).div_ceil(THREADS), rows, 1];
        let masked = edits.iter().any(|edit| edit.mask.is_some());
        let slices = if masked {
            width.div_ceil(DRAW_SLICE)
        } else {
            0
        };
        let drawn = DrawRows {
            tops,
            ranks: 1,
            whole: Some(WholeRows {
                logits,
                width,
                allowed: from.allowed,
            }),
            out,
        };
        // SAFETY: buffers and tokens were checked, the table is that of these rows, and there are as many
        // draws.
        unsafe {
            MASK_ROWS
                .launch(driver, [slices, rows, 1], &params)
                .map_err(in_op(op))?;
            CHANGE_TOKENS
                .launch(driver, changes, &params)
                .map_err(in_op(op))?;
            top_at(
                driver,
                scratch,
                logits,
                [rows, width],
                0,
                from.allowed,
                tops,
            )?;
            let at = row(at, part.start, size_of::<DrawRow>());
            draw_at(driver, scratch, &drawn, draws, at)?;
            let changed = if changes[0] > 0 { rows } else { 0 };
            RESTORE_DRAWN
                .launch(driver, [changed, 1, 1], &params)
                .map_err(in_op(op))?;
        }
    }
    Ok(())
}

/// Bytes of a row in the table.
fn bytes(edit: &Edit) -> usize {
    let words = edit.mask.as_ref().map_or(0, Vec::len);
    size_of::<EditRow>() + edit.changes.len() * size_of::<TokenChange>() + 4 * words
}

/// Rows that fit the table together, one after the other; one that does not fit it alone is left to be
/// refused.
fn parts(edits: &[Edit], most: usize) -> Vec<Range<usize>> {
    let mut parts: Vec<Range<usize>> = Vec::new();
    let mut held = 0;
    for (row, edit) in edits.iter().enumerate() {
        held += bytes(edit);
        match parts.last_mut() {
            Some(part) if held <= most => part.end = row + 1,
            _ => {
                parts.push(row..row + 1);
                held = bytes(edit);
            }
        }
    }
    parts
}

/// The table of some rows: what is changed in each, all changes, all masks.
struct Table {
    bytes: Vec<u8>,
    /// Where the masks begin.
    masks: usize,
}

impl Table {
    /// No mask is longer than a row.
    fn of(edits: &[Edit], width: usize) -> Self {
        let mut rows = Vec::with_capacity(edits.len());
        let (mut first, mut mask) = (0, 0);
        let words = |edit: &Edit| {
            let words = edit.mask.as_ref().map_or(0, Vec::len);
            words.min(width.div_ceil(32))
        };
        for edit in edits {
            rows.push(EditRow {
                first: first as i32,
                changes: edit.changes.len() as i32,
                masked: i32::from(edit.mask.is_some()),
                mask: mask as i32,
                words: words(edit) as i32,
                padding: 0,
            });
            first += edit.changes.len();
            mask += words(edit);
        }
        let masks = rows.len() * size_of::<EditRow>() + first * size_of::<TokenChange>();
        let mut bytes = Vec::with_capacity(masks + 4 * mask);
        bytes.extend_from_slice(cast_slice(&rows));
        for change in edits.iter().flat_map(|edit| &edit.changes) {
            bytes.extend_from_slice(bytes_of(&TokenChange::from(change)));
        }
        for edit in edits {
            if let Some(mask) = &edit.mask {
                bytes.extend_from_slice(cast_slice(&mask[..words(edit)]));
            }
        }
        Self { bytes, masks }
    }
}

#[cfg(test)]
mod tests {
    use volley_ops::Change;

    use super::*;

    fn edit(changes: u32, words: Option<usize>) -> Edit {
        let change = |token| Change {
            token,
            bias: 0.5,
            scale: 1.0,
            penalty: 0.0,
        };
        Edit {
            changes: (0..changes).map(change).collect(),
            mask: words.map(|words| vec![7; words]),
        }
    }

    #[test]
    fn rows_are_taken_as_far_as_the_table_holds_them() {
        let edits = [
            edit(2, None),
            edit(0, Some(4)),
            edit(0, None),
            edit(9, None),
            edit(1, None),
        ];
        let sizes: Vec<usize> = edits.iter().map(bytes).collect();
        assert_eq!(sizes, [56, 40, 24, 168, 40]);
        assert_eq!(parts(&edits, 1000), vec![0..edits.len()]);
        assert_eq!(parts(&edits, 120), [0..3, 3..4, 4..5]);
        assert_eq!(parts(&edits, 96), [0..2, 2..3, 3..4, 4..5]);
        assert_eq!(parts(&[], 96), []);
    }

    #[test]
    fn a_table_holds_rows_then_changes_then_masks() {
        let table = Table::of(&[edit(2, Some(5)), edit(1, None), edit(0, Some(1))], 70);
        assert_eq!(table.masks, 3 * 24 + 3 * 16);
        let words: Vec<u32> = table
            .bytes
            .chunks_exact(4)
            .map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]))
            .collect();
        // A row of 70 tokens has three words.
        assert_eq!(
            words[..18],
            [0, 2, 1, 0, 3, 0, 2, 1, 0, 3, 0, 0, 3, 0, 1, 3, 1, 0]
        );
        assert_eq!(words[table.masks / 4..], [7; 4]);
    }
}
