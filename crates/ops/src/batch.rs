use std::ops::Range;

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
    /// committed context. Parents come before children. Without it the rows are a chain.
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
}

/// Accepted rows of each segment, as indices within the segment, in path order.
pub type Keep = Vec<Vec<u32>>;
