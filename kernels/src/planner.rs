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
    /// Memory of the host is there: what ranks tell each other by it is read and written.
    host: BTreeMap<Address, Vec<u64>>,
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

    fn alloc_host(&self, bytes: usize) -> Result<Address> {
        let memory = vec![0u64; bytes.div_ceil(8).max(1)];
        let address = memory.as_ptr() as Address;
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.host.insert(address, memory);
        Ok(address)
    }

    fn free_host(&self, address: Address) {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.host.remove(&address);
    }

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

    /// Memory that is only planned reads as zeros.
    fn read(&self, _: Address, data: &mut [u8]) -> Result<()> {
        data.fill(0);
        Ok(())
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

    unsafe fn library_reduce(&self, _: Address, _: usize) -> Result<()> {
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

    fn has(&self, _: usize) -> bool {
        true
    }

    fn overlaps(&self, _: usize) -> bool {
        false
    }

    fn time(&self, _: &mut dyn FnMut() -> Result<()>) -> Result<f32> {
        Self::refuse("time")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use volley_ops::Ops;

    use super::*;
    use crate::{CudaOps, Limits, Wiring};

    #[test]
    fn a_rank_of_a_group_is_counted_by_itself() {
        let planners: Vec<Arc<Planner>> = (0..2).map(|_| Arc::new(Planner::new(4))).collect();
        let drivers = planners.iter().map(|p| Arc::clone(p) as Arc<dyn Driver>);
        let group = CudaOps::group(drivers.collect(), Limits::default(), Wiring::default());
        let group = group.unwrap();
        let before = planners[1].bytes();
        assert_eq!((group[1].rank(), group[1].ranks()), (1, 2));
        let memory = planners[0].alloc("weight", 1000).unwrap();
        assert_ne!(memory, 0);
        assert_eq!(planners[0].bytes()["weight"], 1024);
        assert_eq!(planners[1].bytes(), before);
        drop(group);
    }
}
