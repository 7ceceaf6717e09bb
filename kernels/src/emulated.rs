use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_void};
use std::sync::Mutex;
use std::time::Instant;

use half::bf16;

use crate::driver::{Address, Driver, Product};
use crate::error::{Error, Result};
use crate::kernel::KERNELS;

unsafe extern "C" {
    fn volley_emulate_launch(
        name: *const c_char,
        x: u32,
        y: u32,
        z: u32,
        params: *const c_void,
    ) -> bool;
}

/// The kernels on the CPU, their threads as fibers; device memory is host memory. Every byte of an
/// allocation starts as NaN, so that what is read before it is written shows. Threads of the process
/// run kernels at the same time, so ranks can wait for each other as on GPUs.
pub struct Emulated {
    multiprocessors: usize,
    allocations: Mutex<HashMap<Address, Layout>>,
}

impl Emulated {
    /// A device that claims so many multiprocessors (which decides how attention is split).
    pub fn new(multiprocessors: usize) -> Self {
        Self {
            multiprocessors,
            allocations: Mutex::default(),
        }
    }

    fn allocations(&self) -> std::sync::MutexGuard<'_, HashMap<Address, Layout>> {
        self.allocations
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Driver for Emulated {
    fn alloc(&self, bytes: usize) -> Result<Address> {
        let layout = Layout::from_size_align(bytes, 256).map_err(|error| Error::Call {
            call: "alloc",
            message: error.to_string(),
        })?;
        // SAFETY: the size is not zero (callers ask for at least one byte).
        let pointer = unsafe { alloc(layout) };
        if pointer.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: just allocated with this size.
        unsafe { pointer.write_bytes(0xff, bytes) };
        let address = pointer as Address;
        self.allocations().insert(address, layout);
        Ok(address)
    }

    fn free(&self, address: Address) {
        if let Some(layout) = self.allocations().remove(&address) {
            // SAFETY: allocated by `alloc` with this layout.
            unsafe { dealloc(address as *mut u8, layout) };
        }
    }

    fn alloc_host(&self, bytes: usize) -> Result<Address> {
        let address = self.alloc(bytes)?;
        self.zero(address, bytes)?;
        Ok(address)
    }

    fn free_host(&self, address: Address) {
        self.free(address);
    }

    fn write(&self, to: Address, data: &[u8]) -> Result<()> {
        // SAFETY: callers stay inside an allocation.
        unsafe { (to as *mut u8).copy_from(data.as_ptr(), data.len()) };
        Ok(())
    }

    fn stage(&self, to: Address, data: &[u8]) -> Result<()> {
        self.write(to, data)
    }

    fn stage_bytes(&self) -> usize {
        usize::MAX
    }

    fn read(&self, from: Address, data: &mut [u8]) -> Result<()> {
        // SAFETY: callers stay inside an allocation.
        unsafe { (from as *const u8).copy_to(data.as_mut_ptr(), data.len()) };
        Ok(())
    }

    fn zero(&self, at: Address, bytes: usize) -> Result<()> {
        // SAFETY: callers stay inside an allocation.
        unsafe { (at as *mut u8).write_bytes(0, bytes) };
        Ok(())
    }

    fn copy(&self, from: Address, to: Address, bytes: usize) -> Result<()> {
        // SAFETY: callers stay inside an allocation.
        unsafe { (from as *const u8).copy_to(to as *mut u8, bytes) };
        Ok(())
    }

    unsafe fn launch(&self, kernel: usize, grid: [u32; 3], params: *const c_void) -> Result<()> {
        let name = KERNELS[kernel].1;
        let c_name = CString::new(name).expect("names have no zero bytes: this is a bug");
        let [x, y, z] = grid;
        // SAFETY: the caller vouches for the parameters.
        if unsafe { volley_emulate_launch(c_name.as_ptr(), x, y, z, params) } {
            return Ok(());
        }
        Err(Error::Call {
            call: "launch",
            message: format!("there is no kernel {name}"),
        })
    }

    unsafe fn multiply(&self, p: &Product) -> Result<()> {
        // SAFETY: the caller vouches for the addresses and shapes.
        let (x, w) = unsafe {
            (
                std::slice::from_raw_parts(p.x as *const bf16, p.rows * p.input),
                std::slice::from_raw_parts(p.w as *const bf16, p.output * p.input),
            )
        };
        for (row, x) in x.chunks_exact(p.input).enumerate() {
            for (column, w) in w.chunks_exact(p.input).enumerate() {
                let sum: f32 = x.iter().zip(w).map(|(x, w)| x.to_f32() * w.to_f32()).sum();
                let at = row * p.output + column;
                // SAFETY: inside the rows and columns of out.
                unsafe {
                    if p.out_f32 {
                        (p.out as *mut f32).add(at).write(sum);
                    } else {
                        (p.out as *mut bf16).add(at).write(bf16::from_f32(sum));
                    }
                }
            }
        }
        Ok(())
    }

    unsafe fn library_reduce(&self, _: Address, _: usize) -> Result<()> {
        Err(Error::MissingLibrary {
            library: "libnccl.so.2",
        })
    }

    fn multiprocessors(&self) -> usize {
        self.multiprocessors
    }

    fn blocks_per_multiprocessor(&self, _: usize) -> usize {
        2
    }

    fn overlaps(&self, _: usize) -> bool {
        false
    }

    fn time(&self, run: &mut dyn FnMut() -> Result<()>) -> Result<f32> {
        let begun = Instant::now();
        run()?;
        Ok(begun.elapsed().as_secs_f32() * 1e3)
    }
}
