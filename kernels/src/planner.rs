//! A device that holds nothing: what a model would allocate is counted before anything is loaded.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;

use crate::driver::{Address, Driver, Product, Recording, Source};
use crate::error::{Error, Result};

/// Alignment of allocations, bytes.
const GRAIN: usize = 512;
/// Blocks of a kernel that may fit one multiprocessor.
const MOST_BLOCKS: usize = 8;

/// Counts allocations by what they are for. Nothing is computed.
pub struct Planner {
    multiprocessors: usize,
    counted: Mutex<Counted>,
}

#[derive(Default)]
struct Counted {
    bytes: BTreeMap<&'static str, usize>,
    next: Address,
}

impl Planner {
    /// In place of a device with so many multiprocessors.
    pub fn new(multiprocessors: usize) -> Self {
        Self {
            multiprocessors,
            counted: Mutex::default(),
        }
    }

    /// Bytes allocated so far, by what for: "weight", "kv" and names of operations.
    pub fn bytes(&self) -> BTreeMap<&'static str, usize> {
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.bytes.clone()
    }

    fn refuse<T>(call: &'static str) -> Result<T> {
        Err(Error::Call {
            call,
            message: "memory is only planned".to_string(),
        })
    }
}

impl Driver for Planner {
    fn alloc(&self, what: &'static str, bytes: usize) -> Result<Address> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = bytes.next_multiple_of(GRAIN);
        *counted.bytes.entry(what).or_default() += bytes;
        counted.next += bytes as Address;
        Ok(counted.next)
    }

    fn free(&self, _: Address) {}

    fn write(&self, _: Address, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn fill(&self, _: Address, _: usize, _: &Source<'_>) -> Result<()> {
        Ok(())
    }

    fn stage(&self, _: Address, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn stage_bytes(&self) -> usize {
        usize::MAX
    }

    fn read(&self, _: Address, _: &mut [u8]) -> Result<()> {
        Self::refuse("read")
    }

    fn zero(&self, _: Address, _: usize) -> Result<()> {
        Ok(())
    }

    fn copy(&self, _: Address, _: Address, _: usize) -> Result<()> {
        Ok(())
    }

    unsafe fn launch(&self, _: usize, _: [u32; 3], _: &[u8]) -> Result<()> {
        Ok(())
    }

    unsafe fn multiply(&self, _: &Product) -> Result<()> {
        Ok(())
    }

    fn record(&self, _: &mut dyn FnMut() -> Result<()>) -> Result<Box<dyn Recording>> {
        Self::refuse("record")
    }

    fn multiprocessors(&self) -> usize {
        self.multiprocessors
    }

    fn blocks_per_multiprocessor(&self, _: usize) -> usize {
        MOST_BLOCKS
    }

    fn overlaps(&self, _: usize) -> bool {
        false
    }

    fn time(&self, _: &mut dyn FnMut() -> Result<()>) -> Result<f32> {
        Self::refuse("time")
    }
}
