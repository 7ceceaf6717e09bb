//! The tables of passes in fixed device memory. A batch that is not among the last few is copied, in
//! stream order; the operations of a pass share one copy.

use std::cell::RefCell;
use std::sync::Arc;

use bytemuck::cast_slice;
use volley_ops::{Batch, Draw, Keep, Result, is_walked, walked};

use crate::batch::{Encoded, Facts, Layout, encode, encode_keep};
use crate::buf::Memory;
use crate::dims::{check, check_index, refuse};
use crate::driver::{Address, Driver};
use crate::error::in_op;
use crate::kernel::{PLACE, PLANT};
use crate::params::{DrawRow, PLACE_THREADS, PlaceParams, PlantParams, Tables};
use crate::rank::Limits;
use crate::upload::upload;

/// A pass whose tables are on the device.
#[derive(Clone, Copy)]
pub struct Pass {
    /// Addresses of the tables.
    pub tables: Tables,
    /// What the host needs to know.
    pub facts: Facts,
}

/// Batches whose tables are held at the same time: a step goes back and forth between a few.
const SLOTS: usize = 4;

pub struct PassTables {
    driver: Arc<dyn Driver>,
    limits: Limits,
    index: Memory,
    draws: Memory,
    words: Memory,
    /// Changes of rows that are drawn from, and the logits that were changed.
    edits: Memory,
    own: Memory,
    /// Nobody reads it.
    fence: Memory,
    slots: RefCell<Vec<Slot>>,
    /// Where recorded passes find their tables, all in the same place.
    recorded: Slot,
    /// The recorded pass that runs.
    open: RefCell<Option<Known>>,
    /// The one that ran last: its tables are still there.
    closed: RefCell<Option<Known>>,
}

/// Tables of one batch.
struct Slot {
    memory: Memory,
    known: Option<Known>,
}

struct Known {
    batch: Batch,
    layout: Layout,
    pass: Pass,
    keep: Option<Keep>,
    /// Whether a kernel wrote some of it after the last copy.
    planted: bool,
}

impl PassTables {
    /// Bytes of the changes of some rows; those of one, changes of all tokens and a mask, fit with room.
    pub const EDIT_BYTES: usize = 8 << 20;
    /// Bytes of [`PassTables::words`].
    const WORD_BYTES: usize = 1 << 20;

    pub fn new(driver: &Arc<dyn Driver>, limits: Limits) -> Result<Self> {
        let memory = |bytes| Memory::new(driver, "tables", bytes);
        let slot = || -> Result<Slot> {
            Ok(Slot {
                memory: memory(Self::batch_bytes(limits))?,
                known: None,
            })
        };
        Ok(Self {
            driver: Arc::clone(driver),
            limits,
            index: memory(4 * limits.rows)?,
            draws: memory(size_of::<DrawRow>() * limits.rows)?,
            words: memory(Self::WORD_BYTES)?,
            edits: memory(Self::EDIT_BYTES)?,
            // A change takes 16 bytes.
            own: memory(Self::EDIT_BYTES / 4)?,
            fence: memory(4)?,
            slots: RefCell::new((0..SLOTS).map(|_| slot()).collect::<Result<_>>()?),
            recorded: slot()?,
            open: RefCell::default(),
            closed: RefCell::default(),
        })
    }

    /// Bytes of the tables of the largest batch.
    pub fn batch_bytes(limits: Limits) -> usize {
        Layout::new(limits.rows, limits.segments).blocks() + 4 * limits.blocks
    }

    /// For tables: kernels look at them before the ones ahead have ended, so no kernel may write them
    /// ahead of others.
    fn stage(&self, op: &'static str, to: Address, bytes: &[u8]) -> Result<()> {
        self.driver.stage(to, bytes).map_err(in_op(op))
    }

    /// The tables of this batch, copied unless they are there.
    pub fn pass(&self, op: &'static str, batch: &Batch) -> Result<Pass> {
        if let Some(pass) = self.open_pass(op, batch, None)? {
            return Ok(pass);
        }
        self.find(op, batch, &mut self.slots.borrow_mut())
    }

    /// Opens a recorded pass: copies its tables, all at once, and answers with its shape; of a pass over
    /// the batch of the last one, as a commit is, only what is kept. Until [`PassTables::close`] every
    /// operation belongs to it. `repeats` says whether a record of a shape is repeated, which begins when
    /// all before it has ended.
    pub fn open(
        &self,
        op: &'static str,
        batch: &Batch,
        keep: Option<&Keep>,
        repeats: impl Fn(Shape) -> bool,
    ) -> Result<Shape> {
        let same = |last: &Known| last.batch == *batch || last.batch.becomes(batch);
        let last = self.closed.take().filter(same);
        let planted = last.as_ref().is_some_and(|last| last.planted);
        let found = |last: &Known| last.keep.as_ref().is_some_and(is_walked);
        if keep.is_some_and(is_walked) && !last.as_ref().is_some_and(found) {
            return refuse(op, "batch", "the one that was walked last", "another");
        }
        // What was walked is there.
        let known = keep.filter(|keep| !is_walked(keep));
        let kept = |layout| known.map(|keep| encode_keep(op, layout, batch, keep));
        let (facts, layout, bytes, at) = match last {
            Some(Known { layout, pass, .. }) => {
                let kept = kept(layout).transpose()?.unwrap_or_default();
                (pass.facts, layout, kept, layout.kept_counts())
            }
            None => {
                let mut encoded = self.encode_whole(op, batch)?;
                check_known(op, batch)?;
                let (facts, layout) = (encoded.facts, encoded.layout);
                if let Some(kept) = kept(layout).transpose()? {
                    encoded.bytes[layout.kept_counts()..][..kept.len()].copy_from_slice(&kept);
                }
                (facts, layout, encoded.bytes, 0)
            }
        };
        let shape = Shape {
            rows: facts.rows,
            segments: facts.segments,
            longest: facts.longest,
            tokens: facts.tokens,
            trees: facts.trees > 0,
        };
        let to = self.recorded.memory.address() + at as u64;
        match repeats(shape) {
            true if bytes.is_empty() => {}
            true => upload(&*self.driver, op, to, &bytes)?,
            // A copy lets all before it end, a kernel that wrote tables, too.
            false if bytes.is_empty() && planted => {
                self.stage(op, self.fence.address(), &[0; 4])?
            }
            false if bytes.is_empty() => {}
            false => self.stage(op, to, &bytes)?,
        }
        *self.open.borrow_mut() = Some(Known {
            batch: batch.clone(),
            layout,
            pass: pass_at(&self.recorded.memory, layout, facts),
            keep: keep.cloned(),
            planted: false,
        });
        Ok(shape)
    }

    /// Copies the tables of the recorded pass that comes next, and writes into them the parents that are known
    /// by their rows of `drafts` only.
    pub fn plant(&self, op: &'static str, batch: &Batch, drafts: Address) -> Result<()> {
        self.closed.take();
        let Encoded {
            layout,
            facts,
            bytes,
        } = self.encode_whole(op, batch)?;
        let memory = &self.recorded.memory;
        upload(&*self.driver, op, memory.address(), &bytes)?;
        let pass = pass_at(memory, layout, facts);
        let params = PlantParams {
            segments: pass.tables.segments,
            drafts,
            row_parent: pass.tables.row_parent,
            row_position: pass.tables.row_position,
            row_ancestors: pass.tables.row_ancestors,
        };
        // SAFETY: the tables were copied, and the caller vouches for the drafts.
        unsafe { PLANT.launch(&*self.driver, [facts.segments, 1, 1], &params) }
            .map_err(in_op(op))?;
        *self.closed.borrow_mut() = Some(Known {
            batch: batch.clone(),
            layout,
            pass,
            keep: None,
            planted: true,
        });
        Ok(())
    }

    /// The tables of the recorded pass that ran last, over this batch, for a walk that writes the kept rows there.
    pub fn walk(&self, op: &'static str, batch: &Batch) -> Result<Pass> {
        let mut closed = self.closed.borrow_mut();
        let Some(last) = closed.as_mut().filter(|last| last.batch == *batch) else {
            return refuse(op, "batch", "that of the recorded pass before", "another");
        };
        last.keep = Some(walked(batch));
        last.planted = true;
        Ok(last.pass)
    }

    /// The tables of the recorded pass that ran last, over this batch, with the rows that a walk kept.
    pub fn walked(&self, op: &'static str, batch: &Batch) -> Result<Pass> {
        let closed = self.closed.borrow();
        let keeps = |last: &&Known| last.keep.as_ref().is_some_and(is_walked);
        match closed.as_ref().filter(keeps) {
            Some(last) if last.batch == *batch => Ok(last.pass),
            _ => refuse(op, "batch", "the one that was walked last", "another"),
        }
    }

    /// A batch of which no block is missing, as recorded passes need it.
    fn encode_whole(&self, op: &'static str, batch: &Batch) -> Result<Encoded> {
        let encoded = encode(op, batch)?;
        let missing = encoded.facts.missing_blocks;
        check(op, "missing blocks of the segments", missing, 0)?;
        self.check(op, &encoded)?;
        Ok(encoded)
    }

    /// Ends what [`PassTables::open`] began.
    pub fn close(&self) {
        *self.closed.borrow_mut() = self.open.take();
    }

    /// The open pass, which must be that of this batch and these kept rows.
    fn open_pass(
        &self,
        op: &'static str,
        batch: &Batch,
        keep: Option<&Keep>,
    ) -> Result<Option<Pass>> {
        match &*self.open.borrow() {
            None => Ok(None),
            Some(open)
                if open.batch == *batch && (keep.is_none() || open.keep.as_ref() == keep) =>
            {
                Ok(Some(open.pass))
            }
            Some(_) => refuse(op, "batch", "that of the recorded pass", "another"),
        }
    }

    /// As [`PassTables::pass`]; the slot of the batch comes to the front, the one used longest ago
    /// is at the back.
    fn find(&self, op: &'static str, batch: &Batch, slots: &mut [Slot]) -> Result<Pass> {
        let holds = |slot: &Slot| slot.known.as_ref().is_some_and(|k| k.batch == *batch);
        if let Some(at) = slots.iter().position(holds) {
            slots[..=at].rotate_right(1);
        } else {
            slots.rotate_right(1);
            slots[0].known = None;
            slots[0].known = Some(self.copy(op, batch, &slots[0].memory)?);
        }
        let known = slots[0].known.as_ref();
        Ok(known.expect("found or copied above: this is a bug").pass)
    }

    fn copy(&self, op: &'static str, batch: &Batch, memory: &Memory) -> Result<Known> {
        check_known(op, batch)?;
        let encoded = encode(op, batch)?;
        self.check(op, &encoded)?;
        self.stage(op, memory.address(), &encoded.bytes)?;
        Ok(Known {
            batch: batch.clone(),
            layout: encoded.layout,
            pass: pass_at(memory, encoded.layout, encoded.facts),
            keep: None,
            planted: false,
        })
    }

    fn check(&self, op: &'static str, encoded: &Encoded) -> Result<()> {
        let (facts, limits) = (encoded.facts, self.limits);
        let blocks = (encoded.bytes.len() - encoded.layout.blocks()) / 4;
        check_index(op, "rows of a pass", facts.rows, limits.rows + 1)?;
        check_index(
            op,
            "segments of a pass",
            facts.segments,
            limits.segments + 1,
        )?;
        check_index(op, "cache blocks of a pass", blocks, limits.blocks + 1)
    }

    /// The tables of this batch and its kept rows.
    pub fn pass_keeping(&self, op: &'static str, batch: &Batch, keep: &Keep) -> Result<Pass> {
        if let Some(pass) = self.open_pass(op, batch, Some(keep))? {
            return Ok(pass);
        }
        if is_walked(keep) {
            return refuse(
                op,
                "kept rows",
                "known outside of recorded passes",
                "walked",
            );
        }
        let mut slots = self.slots.borrow_mut();
        let pass = self.find(op, batch, &mut slots)?;
        let known = slots[0].known.as_mut();
        let known = known.expect("found above: this is a bug");
        if known.keep.as_ref() != Some(keep) {
            let bytes = encode_keep(op, known.layout, batch, keep)?;
            known.keep = None;
            self.stage(op, pass.tables.kept_counts, &bytes)?;
            known.keep = Some(keep.clone());
        }
        Ok(pass)
    }

    /// Row or token numbers in device memory, until the next call.
    pub fn index(&self, op: &'static str, rows: &[u32]) -> Result<Address> {
        check_index(op, "rows of a pass", rows.len(), self.limits.rows + 1)?;
        upload(&*self.driver, op, self.index.address(), cast_slice(rows))?;
        Ok(self.index.address())
    }

    /// Words in device memory, until the next call.
    pub fn words(&self, op: &'static str, words: &[u32]) -> Result<Address> {
        check_index(op, "bytes of words", 4 * words.len(), Self::WORD_BYTES + 1)?;
        upload(&*self.driver, op, self.words.address(), cast_slice(words))?;
        Ok(self.words.address())
    }

    /// How tokens are drawn from rows from `first` on, in device memory, until the next call.
    pub fn draws(&self, op: &'static str, first: usize, draws: &[Draw]) -> Result<Address> {
        check_index(op, "rows of a pass", draws.len(), self.limits.rows + 1)?;
        let rows: Vec<DrawRow> = draws.iter().map(DrawRow::from).collect();
        let at = self.draws.address();
        upload(&*self.driver, op, at, cast_slice(&rows))?;
        let mut positions = draws.iter().map(|draw| draw.position);
        if positions.any(|position| position == Draw::BEHIND_ROW) {
            self.place(op, first, draws.len(), at)?;
        }
        Ok(at)
    }

    /// Gives draws from rows of the recorded pass that ran last the positions that it knows.
    fn place(&self, op: &'static str, first: usize, rows: usize, draws: Address) -> Result<()> {
        let closed = self.closed.borrow();
        let Some(last) = closed.as_ref().filter(|last| last.batch.is_grown()) else {
            let expected = "behind a pass over trees that were planted";
            return refuse(op, "a draw behind a row", expected, "another");
        };
        let end = (first + rows).saturating_sub(1);
        check_index(op, "row of a draw", end, last.pass.facts.rows)?;
        let params = PlaceParams {
            draws,
            row_position: last.pass.tables.row_position + 4 * first as Address,
            rows: rows as i32,
            padding: 0,
        };
        let grid = [rows.div_ceil(PLACE_THREADS), 1, 1];
        // SAFETY: draws and positions have so many rows.
        unsafe { PLACE.launch(&*self.driver, grid, &params) }.map_err(in_op(op))
    }

    /// A table of changes in device memory, until the next call, and room for the logits that they change.
    pub fn edits(&self, op: &'static str, table: &[u8]) -> Result<(Address, Address)> {
        let what = "bytes of the changes of a row";
        check_index(op, what, table.len(), Self::EDIT_BYTES + 1)?;
        let piece = self.driver.stage_bytes().min(Self::EDIT_BYTES);
        for (i, bytes) in table.chunks(piece).enumerate() {
            let to = self.edits.address() + (i * piece) as Address;
            upload(&*self.driver, op, to, bytes)?;
        }
        Ok((self.edits.address(), self.own.address()))
    }

    /// What [`PassTables::draws`] answered last.
    #[cfg(feature = "cuda")]
    pub fn last_draws(&self) -> Address {
        self.draws.address()
    }
}

/// An error where parents are to be grown yet.
fn check_known(op: &'static str, batch: &Batch) -> Result<()> {
    match batch.is_grown() {
        true => refuse(op, "batch", "one that was planted just before", "another"),
        false => Ok(()),
    }
}

/// What decides the launches of a recorded pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    rows: usize,
    segments: usize,
    longest: usize,
    tokens: usize,
    trees: bool,
}

/// A pass whose tables begin there.
fn pass_at(memory: &Memory, layout: Layout, facts: Facts) -> Pass {
    let at = |offset: usize| memory.address() + offset as u64;
    let tables = Tables {
        segments: at(layout.segments()),
        row_segment: at(layout.row_segment()),
        row_position: at(layout.row_position()),
        row_parent: at(layout.row_parent()),
        row_place: at(layout.row_place()),
        row_ancestors: at(layout.row_ancestors()),
        blocks: at(layout.blocks()),
        kept_counts: at(layout.kept_counts()),
        kept: at(layout.kept()),
    };
    Pass { tables, facts }
}
