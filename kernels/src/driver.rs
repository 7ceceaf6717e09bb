use std::time::Duration;

use crate::error::{Error, Result};

/// Address in device memory.
pub type Address = u64;

/// `out = x w^T`: x `[rows, input]` and w `[output, input]` in bf16, out `[rows, output]` in bf16 or
/// f32, sums in f32.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// Rows of x.
    pub rows: usize,
    /// Columns of x.
    pub input: usize,
    /// Columns of out.
    pub output: usize,
    /// Address of x.
    pub x: Address,
    /// Address of w.
    pub w: Address,
    /// Address of out.
    pub out: Address,
    /// Whether out is f32.
    pub out_f32: bool,
}

/// Writes the bytes from an offset on.
pub type Source<'a> = dyn Fn(usize, &mut [u8]) + Sync + 'a;

/// A copy to the host.
#[derive(Debug)]
pub enum Reading {
    /// It is there.
    Done(Vec<Vec<u8>>),
    /// It is under way.
    Begun {
        /// Bytes of its parts.
        parts: Vec<usize>,
        /// Which of all copies it is.
        turn: u64,
    },
}

/// What the operations need of a device: one memory, one stream in which everything happens in
/// order. Addresses are those of [`Driver::alloc`], with offsets inside them.
pub trait Driver: Send + Sync {
    /// Device memory of at least `bytes`, aligned to 256; `what` says for what.
    fn alloc(&self, what: &'static str, bytes: usize) -> Result<Address>;
    /// Gives memory back, once the work using it is done.
    fn free(&self, address: Address);
    /// Zeroed memory of the host, at the same address for the host and for every device.
    fn alloc_host(&self, bytes: usize) -> Result<Address>;
    /// Gives memory of [`Driver::alloc_host`] back, once the work using it is done.
    fn free_host(&self, address: Address);
    /// Copies to the device and waits.
    fn write(&self, to: Address, data: &[u8]) -> Result<()>;
    /// Fills device memory piece by piece: `source` writes the bytes from an offset on, on any
    /// thread. Returns when `source` is needed no more.
    fn fill(&self, to: Address, bytes: usize, source: &Source<'_>) -> Result<()> {
        let mut all = vec![0; bytes];
        source(0, &mut all);
        self.write(to, &all)
    }
    /// Copies at most [`Driver::stage_bytes`] to the device, in stream order and without waiting;
    /// `data` is free at once.
    fn stage(&self, to: Address, data: &[u8]) -> Result<()>;
    /// Most bytes that one [`Driver::stage`] takes.
    fn stage_bytes(&self) -> usize;
    /// Copies to the host, once the work before is done.
    fn read(&self, from: Address, data: &mut [u8]) -> Result<()>;
    /// Begins to copy from several places to the host what the work before leaves there; one such copy at a
    /// time is under way.
    fn begin_read(&self, parts: &[(Address, usize)]) -> Result<Reading> {
        let read = |&(from, bytes): &(Address, usize)| {
            let mut data = vec![0; bytes];
            self.read(from, &mut data).map(|()| data)
        };
        let parts = parts.iter().map(read).collect::<Result<_>>()?;
        Ok(Reading::Done(parts))
    }
    /// Waits for what was copied, and for nothing that was begun since.
    fn end_read(&self, reading: Reading) -> Result<Vec<Vec<u8>>> {
        match reading {
            Reading::Done(parts) => Ok(parts),
            Reading::Begun { .. } => Err(Error::Call {
                call: "end_read",
                message: "another device has begun it".to_string(),
            }),
        }
    }
    /// Zeroes memory, in stream order.
    fn zero(&self, at: Address, bytes: usize) -> Result<()>;
    /// Copies inside device memory, in stream order; the ranges do not overlap.
    fn copy(&self, from: Address, to: Address, bytes: usize) -> Result<()>;
    /// Launches the kernel of this index in [`crate::KERNELS`].
    ///
    /// # Safety
    /// `params` are the bytes of the parameter struct of that kernel, at its alignment; the
    /// addresses in it are live and large enough for the grid.
    unsafe fn launch(&self, kernel: usize, grid: [u32; 3], params: &[u8]) -> Result<()>;
    /// A matrix product, in stream order.
    ///
    /// # Safety
    /// The addresses are live and large enough for the shapes.
    unsafe fn multiply(&self, product: &Product) -> Result<()>;
    /// Whether a library can sum over the devices of the group.
    fn has_library_reduce(&self) -> bool {
        false
    }
    /// Sum over the devices of the group by a library, in place, in stream order.
    ///
    /// # Safety
    /// `x` holds so many bf16, and all devices make the same call.
    unsafe fn library_reduce(&self, x: Address, values: usize) -> Result<()>;
    /// Records the work of `run` without doing it; `run` must neither allocate, stage nor wait.
    fn record(&self, run: &mut dyn FnMut() -> Result<()>) -> Result<Box<dyn Recording>>;
    /// Number of multiprocessors.
    fn multiprocessors(&self) -> usize;
    /// Blocks of a kernel that fit one multiprocessor at the same time.
    fn blocks_per_multiprocessor(&self, kernel: usize) -> usize;
    /// Whether the device has the instructions of a kernel.
    fn has(&self, kernel: usize) -> bool;
    /// Whether a kernel may start before the one ahead of it has ended, and prepare itself.
    fn overlaps(&self, kernel: usize) -> bool;
    /// Time from the ends of reads to the next launches, since the start: the device waits for the
    /// host.
    fn idle(&self) -> Duration {
        Duration::ZERO
    }
    /// Milliseconds that the work of `run` takes on the device; waits for it.
    fn time(&self, run: &mut dyn FnMut() -> Result<()>) -> Result<f32>;
}

/// Work that was recorded; lives no longer than the memory that it names.
pub trait Recording {
    /// Does the work once more, in stream order.
    fn replay(&self) -> Result<()>;
}
