//! The tables of passes in fixed device memory. A batch that is not among the last few is copied, in
//! stream order; the operations of a pass share one copy.

use std::cell::RefCell;
use std::sync::Arc;

use bytemuck::cast_slice;
use volley_ops::{Batch, Keep, Result};

use crate::batch::{Facts, Layout, encode, encode_keep};
use crate::buf::Memory;
use crate::dims::check_index;
use crate::driver::{Address, Driver};
use crate::error::in_op;
use crate::ops::Limits;
use crate::params::Tables;

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
    slots: RefCell<Vec<Slot>>,
}

/// Tables of one batch.
struct Slot {
    batch: Memory,
    keep: Memory,
    known: Option<Known>,
}

struct Known {
    batch: Batch,
    pass: Pass,
    keep: Option<Keep>,
}

impl PassTables {
    pub fn new(driver: &Arc<dyn Driver>, limits: Limits) -> Result<Self> {
        let memory = |bytes| Memory::new(driver, "tables", bytes);
        let slot = || -> Result<Slot> {
            Ok(Slot {
                batch: memory(Self::batch_bytes(limits))?,
                keep: memory(4 * (limits.rows + limits.segments))?,
                known: None,
            })
        };
        Ok(Self {
            driver: Arc::clone(driver),
            limits,
            index: memory(4 * limits.rows)?,
            slots: RefCell::new((0..SLOTS).map(|_| slot()).collect::<Result<_>>()?),
        })
    }

    /// Bytes of the tables of the largest batch.
    pub fn batch_bytes(limits: Limits) -> usize {
        Layout::new(limits.rows, limits.segments).blocks() + 4 * limits.blocks
    }

    fn stage(&self, op: &'static str, to: Address, bytes: &[u8]) -> Result<()> {
        self.driver.stage(to, bytes).map_err(in_op(op))
    }

    /// The tables of this batch, copied unless they are there.
    pub fn pass(&self, op: &'static str, batch: &Batch) -> Result<Pass> {
        self.find(op, batch, &mut self.slots.borrow_mut())
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
            let pass = self.copy(op, batch, &slots[0])?;
            slots[0].known = Some(Known {
                batch: batch.clone(),
                pass,
                keep: None,
            });
        }
        let known = slots[0].known.as_ref();
        Ok(known.expect("found or copied above: this is a bug").pass)
    }

    fn copy(&self, op: &'static str, batch: &Batch, slot: &Slot) -> Result<Pass> {
        let encoded = encode(op, batch)?;
        let facts = encoded.facts;
        let blocks = (encoded.bytes.len() - encoded.layout.blocks()) / 4;
        check_index(op, "rows of a pass", facts.rows, self.limits.rows + 1)?;
        check_index(
            op,
            "segments of a pass",
            facts.segments,
            self.limits.segments + 1,
        )?;
        check_index(op, "cache blocks of a pass", blocks, self.limits.blocks + 1)?;
        self.stage(op, slot.batch.address(), &encoded.bytes)?;
        let at = |offset: usize| slot.batch.address() + offset as u64;
        let layout = encoded.layout;
        let tables = Tables {
            segments: at(layout.segments()),
            row_segment: at(layout.row_segment()),
            row_position: at(layout.row_position()),
            row_parent: at(layout.row_parent()),
            row_place: at(layout.row_place()),
            row_ancestors: at(layout.row_ancestors()),
            blocks: at(layout.blocks()),
            kept_ends: slot.keep.address(),
            kept: slot.keep.address() + 4 * facts.segments as u64,
        };
        Ok(Pass { tables, facts })
    }

    /// The tables of this batch and its kept rows.
    pub fn pass_keeping(&self, op: &'static str, batch: &Batch, keep: &Keep) -> Result<Pass> {
        let mut slots = self.slots.borrow_mut();
        let pass = self.find(op, batch, &mut slots)?;
        let Slot {
            keep: memory,
            known,
            ..
        } = &mut slots[0];
        let known = known.as_mut().expect("found above: this is a bug");
        if known.keep.as_ref() != Some(keep) {
            let bytes = encode_keep(op, batch, keep)?;
            known.keep = None;
            self.stage(op, memory.address(), &bytes)?;
            known.keep = Some(keep.clone());
        }
        Ok(pass)
    }

    /// Row or token numbers in device memory, until the next call.
    pub fn index(&self, op: &'static str, rows: &[u32]) -> Result<Address> {
        check_index(op, "rows of a pass", rows.len(), self.limits.rows + 1)?;
        self.stage(op, self.index.address(), cast_slice(rows))?;
        Ok(self.index.address())
    }
}
