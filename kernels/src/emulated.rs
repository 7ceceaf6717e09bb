use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use half::bf16;

use crate::driver::{Address, Driver, Product, Recording};
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
    /// What is being recorded.
    open: Mutex<Option<Vec<Work>>>,
    replays: Arc<AtomicUsize>,
}

/// One thing to do.
enum Work {
    /// A kernel with its parameters, at their alignment.
    Launch(usize, [u32; 3], Vec<u64>),
    Multiply(Product),
    Zero(Address, usize),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Emulated {
    /// A device that claims so many multiprocessors (which decides how attention is split).
    pub fn new(multiprocessors: usize) -> Self {
        Self {
            multiprocessors,
            allocations: Mutex::default(),
            open: Mutex::default(),
            replays: Arc::default(),
        }
    }

    /// How often a recording was replayed.
    pub fn replays(&self) -> usize {
        self.replays.load(Ordering::Relaxed)
    }

    /// Does the work, or records it.
    unsafe fn enqueue(&self, work: Work) -> Result<()> {
        if let Some(open) = lock(&self.open).as_mut() {
            open.push(work);
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { work.run() }
    }

    /// An error while work is recorded, as on a GPU.
    fn refuse_recording(&self, call: &'static str) -> Result<()> {
        match *lock(&self.open) {
            None => Ok(()),
            Some(_) => Err(Error::Call {
                call,
                message: "work is being recorded".to_string(),
            }),
        }
    }
}

/// A list of work.
struct Recorded {
    work: Vec<Work>,
    replays: Arc<AtomicUsize>,
}

impl Recording for Recorded {
    fn replay(&self) -> Result<()> {
        self.replays.fetch_add(1, Ordering::Relaxed);
        // SAFETY: what is recorded was vouched for.
        self.work.iter().try_for_each(|work| unsafe { work.run() })
    }
}

impl Work {
    /// # Safety
    /// As [`Driver::launch`] and [`Driver::multiply`].
    unsafe fn run(&self) -> Result<()> {
        match self {
            // SAFETY: the caller vouches for the parameters.
            Self::Launch(kernel, [x, y, z], params) => unsafe {
                let name = KERNELS[*kernel].1;
                let c_name = CString::new(name).expect("names have no zero bytes: this is a bug");
                let params = params.as_ptr().cast();
                if volley_emulate_launch(c_name.as_ptr(), *x, *y, *z, params) {
                    return Ok(());
                }
                Err(Error::Call {
                    call: "launch",
                    message: format!("there is no kernel {name}"),
                })
            },
            // SAFETY: the caller vouches for the addresses and shapes.
            Self::Multiply(product) => unsafe {
                multiply(product);
                Ok(())
            },
            // SAFETY: callers stay inside an allocation.
            &Self::Zero(at, bytes) => unsafe {
                (at as *mut u8).write_bytes(0, bytes);
                Ok(())
            },
        }
    }
}

impl Driver for Emulated {
    fn alloc(&self, _: &'static str, bytes: usize) -> Result<Address> {
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
        lock(&self.allocations).insert(address, layout);
        Ok(address)
    }

    fn free(&self, address: Address) {
        if let Some(layout) = lock(&self.allocations).remove(&address) {
            // SAFETY: allocated by `alloc` with this layout.
            unsafe { dealloc(address as *mut u8, layout) };
        }
    }

    fn alloc_host(&self, bytes: usize) -> Result<Address> {
        let address = self.alloc("host", bytes)?;
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
        self.refuse_recording("stage")?;
        self.write(to, data)
    }

    fn stage_bytes(&self) -> usize {
        usize::MAX
    }

    fn read(&self, from: Address, data: &mut [u8]) -> Result<()> {
        self.refuse_recording("read")?;
        // SAFETY: callers stay inside an allocation.
        unsafe { (from as *const u8).copy_to(data.as_mut_ptr(), data.len()) };
        Ok(())
    }

    fn zero(&self, at: Address, bytes: usize) -> Result<()> {
        // SAFETY: callers stay inside an allocation.
        unsafe { self.enqueue(Work::Zero(at, bytes)) }
    }

    fn copy(&self, from: Address, to: Address, bytes: usize) -> Result<()> {
        self.refuse_recording("copy")?;
        // SAFETY: callers stay inside an allocation.
        unsafe { (from as *const u8).copy_to(to as *mut u8, bytes) };
        Ok(())
    }

    unsafe fn launch(&self, kernel: usize, grid: [u32; 3], params: &[u8]) -> Result<()> {
        let mut aligned = vec![0u64; params.len().div_ceil(8)];
        bytemuck::cast_slice_mut(&mut aligned)[..params.len()].copy_from_slice(params);
        // SAFETY: the caller vouches for the parameters.
        unsafe { self.enqueue(Work::Launch(kernel, grid, aligned)) }
    }

    unsafe fn multiply(&self, product: &Product) -> Result<()> {
        // SAFETY: the caller vouches for the addresses and shapes.
        unsafe { self.enqueue(Work::Multiply(*product)) }
    }

    fn record(&self, run: &mut dyn FnMut() -> Result<()>) -> Result<Box<dyn Recording>> {
        *lock(&self.open) = Some(Vec::new());
        let ran = run();
        let work = lock(&self.open).take().unwrap_or_default();
        ran?;
        Ok(Box::new(Recorded {
            work,
            replays: Arc::clone(&self.replays),
        }))
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

    fn has(&self, _: usize) -> bool {
        true
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

/// # Safety
/// The addresses are live and large enough for the shapes.
unsafe fn multiply(p: &Product) {
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
}
