use volley_ops::{Dtype, Ops, Segment};

use crate::EngineError;

/// Committed rows that a drafter takes in later: those of copies that were right, behind which the next
/// step goes on copying, and the last ones of an answer. Their taps are kept in buffers of one step's rows.
pub(super) struct Later<O: Ops> {
    rows: usize,
    free: Vec<O::Buf>,
    kept: Vec<Kept<O>>,
}

/// Rows of one step.
pub(super) struct Kept<O: Ops> {
    /// As the drafter has to take them in: rows of `taps`.
    pub segment: Segment,
    /// `[rows, taps * hidden_size]`.
    pub taps: O::Buf,
}

impl<O: Ops> Later<O> {
    /// With room for so many steps of `rows` rows, `width` wide.
    pub(super) fn new(
        ops: &O,
        steps: usize,
        rows: usize,
        width: usize,
    ) -> Result<Self, EngineError> {
        let buffers = (0..steps).map(|_| ops.alloc(rows, width, Dtype::Activation));
        Ok(Self {
            rows,
            free: buffers.collect::<Result<_, _>>()?,
            kept: Vec::new(),
        })
    }

    /// Most rows of a step.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Keeps rows of `taps` as those of a segment. False if there is no room.
    pub(super) fn keep(
        &mut self,
        ops: &O,
        taps: &O::Buf,
        rows: &[u32],
        segment: Segment,
    ) -> Result<bool, EngineError> {
        let Some(mut buffer) = self.free.pop() else {
            return Ok(false);
        };
        ops.gather(taps, rows, &mut buffer)?;
        self.kept.push(Kept {
            segment,
            taps: buffer,
        });
        Ok(true)
    }

    /// The first of a slot's rows.
    pub(super) fn first(&self, slot: usize) -> Option<&Kept<O>> {
        self.kept.iter().find(|kept| kept.segment.slot == slot)
    }

    /// Drops the first of a slot's rows; false if there are none.
    pub(super) fn drop_first(&mut self, slot: usize) -> bool {
        let of_slot = |kept: &Kept<O>| kept.segment.slot == slot;
        let Some(first) = self.kept.iter().position(of_slot) else {
            return false;
        };
        self.free.push(self.kept.remove(first).taps);
        true
    }

    /// Drops a slot's rows.
    pub(super) fn forget(&mut self, slot: usize) {
        while self.drop_first(slot) {}
    }
}
