use crate::{Batch, DRAWN, Keep};

/// Most rows of a segment that [`crate::Ops::walk`] goes down.
pub const MOST_WALKED: usize = 64;
/// Width of a row of what it finds: how many rows are kept, and which (exact in f32).
pub const WALKED_WIDTH: usize = 1 + MOST_WALKED;

/// What decides how far drafts stand ([`crate::Ops::walk`]).
#[derive(Debug)]
pub struct Walk<'a, B> {
    /// Token of each row of the batch; one with the bit [`DRAWN`] is in that row of `drafts`.
    pub ids: &'a [u32],
    /// Tokens as [`crate::Ops::draw`] and [`crate::Ops::grow`] leave them.
    pub drafts: &'a B,
    /// The token behind each row.
    pub chosen: Chosen<'a, B>,
    /// Where the walk of each segment ends.
    pub ends: &'a [WalkEnd<'a>],
}

/// Where the tokens behind the rows of a pass are; rows of all ranks side by side.
#[derive(Debug)]
pub enum Chosen<'a, B> {
    /// The first of each row of [`crate::Ops::top`].
    Likeliest(&'a B),
    /// As [`crate::Ops::draw`] leaves them.
    Drawn(&'a B),
}

/// Where a walk ends though drafts stand.
#[derive(Clone, Copy, Debug)]
pub struct WalkEnd<'a> {
    /// Most rows that are kept, at least 1.
    pub most: usize,
    /// Tokens behind which nothing is kept.
    pub stops: &'a [u32],
}

/// Stands for the kept rows that [`crate::Ops::walk`] finds, which need not be known yet.
pub fn walked(batch: &Batch) -> Keep {
    vec![vec![DRAWN]; batch.segments.len()]
}

/// Whether kept rows are those of a walk.
pub fn is_walked(keep: &Keep) -> bool {
    keep.iter().any(|rows| rows.first() == Some(&DRAWN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Segment;

    #[test]
    fn kept_rows_are_known_or_walked() {
        let batch = Batch {
            segments: vec![Segment {
                rows: 0..2,
                slot: 0,
                past: 0,
                blocks: vec![0],
                parents: None,
            }],
        };
        assert!(is_walked(&walked(&batch)));
        assert!(!is_walked(&vec![vec![0, 1]]) && !is_walked(&vec![vec![]]));
    }
}
