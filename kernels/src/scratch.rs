//! Memory that an operation may use while it runs.

use std::sync::Arc;

use volley_ops::Result;

use crate::buf::Memory;
use crate::driver::Driver;

/// One piece for all operations of a rank, which run one after the other.
pub struct Scratch {
    pub memory: Memory,
    pub bytes: usize,
}

impl Scratch {
    pub fn new(driver: &Arc<dyn Driver>, bytes: usize) -> Result<Self> {
        let memory = Memory::new(driver, "scratch", bytes)?;
        Ok(Self { memory, bytes })
    }
}
