use std::ops::Range;

use crate::DRAWN;

/// One sequence's rows within a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Rows of the pass that belong to this sequence.
    pub rows: Range<usize>,
    /// Slot of its recurrent and convolution states.
    pub slot: usize,
    /// Committed tokens before the first row.
    pub past: usize,
    /// Cache blocks in order; they cover `past + rows.len()` tokens.
    pub blocks: Vec<u32>,
    /// For a tree: parent of each row as an index within the segment, `None` for a child of the
    /// committed context. Parents come before children. Without it the rows are a chain. A parent with
    /// the bit [`DRAWN`] is one that the device grew in that row of its drafts ([`crate::Ops::plant`]).
    pub parents: Option<Vec<Option<u32>>>,
}

impl Segment {
    /// Parent of row `i` (index within the segment), `None` when it continues the context.
    pub fn parent(&self, i: usize) -> Option<usize> {
        match &self.parents {
            Some(parents) => parents[i].map(|p| p as usize),
            None => i.checked_sub(1),
        }
    }

    /// Whether it is a tree that the device grew: nobody else knows the parents.
    pub fn is_grown(&self) -> bool {
        let mut parents = self.parents.iter().flatten().flatten();
        parents.any(|parent| parent & DRAWN != 0)
    }

    /// Number of ancestors of row `i` within the segment.
    pub fn depth(&self, i: usize) -> usize {
        match &self.parents {
            Some(_) => std::iter::successors(self.parent(i), |&p| self.parent(p)).count(),
            None => i,
        }
    }

    /// Position of row `i` in the text: committed length plus depth.
    pub fn position(&self, i: usize) -> usize {
        self.past + self.depth(i)
    }
}

/// The rows of one pass, sequence by sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Sequences in row order; their ranges tile `0..rows()`.
    pub segments: Vec<Segment>,
}

impl Batch {
    /// Total number of rows.
    pub fn rows(&self) -> usize {
        self.segments.last().map_or(0, |s| s.rows.end)
    }

    /// Whether there are trees that the device grew.
    pub fn is_grown(&self) -> bool {
        self.segments.iter().any(Segment::is_grown)
    }

    /// Whether this is `known` but for parents that only the device knew.
    pub fn becomes(&self, known: &Self) -> bool {
        let rows = |parents: &Option<Vec<_>>| parents.as_ref().map(Vec::len);
        self.segments.len() == known.segments.len()
            && self.segments.iter().zip(&known.segments).all(|(a, b)| {
                let same =
                    (&a.rows, a.slot, a.past, &a.blocks) == (&b.rows, b.slot, b.past, &b.blocks);
                let grown = a.is_grown() && rows(&a.parents) == rows(&b.parents);
                same && (grown || a.parents == b.parents)
            })
    }
}

/// Accepted rows of each segment, as indices within the segment, in path order; or [`crate::walked`].
pub type Keep = Vec<Vec<u32>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grown_batch_becomes_what_was_grown() {
        let segment = |parents: &[u32]| Segment {
            rows: 0..3,
            slot: 1,
            past: 7,
            blocks: vec![4],
            parents: Some(
                [None]
                    .into_iter()
                    .chain(parents.iter().copied().map(Some))
                    .collect(),
            ),
        };
        let batch = |segment| Batch {
            segments: vec![segment],
        };
        let grown = batch(segment(&[DRAWN | 5, DRAWN | 6]));
        assert!(grown.is_grown());
        assert!(grown.becomes(&batch(segment(&[0, 0]))) && grown.becomes(&grown));
        assert!(!grown.becomes(&batch(segment(&[0]))));
        let elsewhere = Segment {
            slot: 2,
            ..segment(&[0, 1])
        };
        assert!(!grown.becomes(&batch(elsewhere)));
        let known = batch(segment(&[0, 1]));
        assert!(!known.is_grown() && !known.becomes(&batch(segment(&[0, 0]))));
    }
}
