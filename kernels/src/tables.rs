//! The tables of the current pass in fixed device memory. A batch that differs from the last one is
//! copied again, in stream order; the operations of a pass share one copy.

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

pub struct PassTables {
    driver: Arc<dyn Driver>,
    limits: Limits,
    batch: Memory,
    keep: Memory,
    index: Memory,
    current: RefCell<Current>,
}

#[derive(Default)]
struct Current {
    batch: Option<(Batch, Pass)>,
    keep: Option<Keep>,
}

impl PassTables {
    pub fn new(driver: &Arc<dyn Driver>, limits: Limits) -> Result<Self> {
        let memory = |bytes| Memory::new(driver, "tables", bytes);
        Ok(Self {
            driver: Arc::clone(driver),
            limits,
            batch: memory(Self::batch_bytes(limits))?,
            keep: memory(4 * (limits.rows + limits.segments))?,
            index: memory(4 * limits.rows)?,
            current: RefCell::default(),
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
        let mut current = self.current.borrow_mut();
        if let Some((known, pass)) = &current.batch
            && known == batch
        {
            return Ok(*pass);
        }
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
        *current = Current::default();
        self.stage(op, self.batch.address(), &encoded.bytes)?;
        let at = |offset: usize| self.batch.address() + offset as u64;
        let layout = encoded.layout;
        let tables = Tables {
            segments: at(layout.segments()),
            row_segment: at(layout.row_segment()),
            row_position: at(layout.row_position()),
            row_parent: at(layout.row_parent()),
            row_place: at(layout.row_place()),
            row_ancestors: at(layout.row_ancestors()),
            blocks: at(layout.blocks()),
            kept_ends: self.keep.address(),
            kept: self.keep.address() + 4 * facts.segments as u64,
        };
        let pass = Pass { tables, facts };
        current.batch = Some((batch.clone(), pass));
        Ok(pass)
    }

    /// The tables of this batch and its kept rows.
    pub fn pass_keeping(&self, op: &'static str, batch: &Batch, keep: &Keep) -> Result<Pass> {
        let pass = self.pass(op, batch)?;
        let mut current = self.current.borrow_mut();
        if current.keep.as_ref() != Some(keep) {
            let bytes = encode_keep(op, batch, keep)?;
            current.keep = None;
            self.stage(op, self.keep.address(), &bytes)?;
            current.keep = Some(keep.clone());
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
