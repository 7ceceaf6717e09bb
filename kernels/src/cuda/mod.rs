//! The CUDA driver: one context, one stream, modules, pinned staging, cuBLASLt.

mod graph;
mod libraries;
mod loading;
mod modules;
mod nccl;
mod peers;
mod probe;
mod products;
mod staging;

use std::mem::MaybeUninit;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use cudarc::driver::{result, sys};

use crate::driver::{Address, Driver, Product, Reading, Recording, Source};
use crate::error::{Error, Result};
pub use graph::Graph;
use libraries::find_libraries;
pub use libraries::load_libraries;
use loading::Loading;
use modules::Modules;
use nccl::Nccl;
pub use probe::{Bandwidth, DeviceReport};
use products::Products;
use staging::{Landing, Staging};

/// Reads up to this size go through pinned memory.
const READ_BYTES: usize = 1 << 20;

/// An error of the driver under the name of the call.
fn call<T>(call: &'static str, result: std::result::Result<T, result::DriverError>) -> Result<T> {
    result.map_err(|error| Error::Call {
        call,
        message: match error.error_string() {
            Ok(text) => format!("{} ({:?})", text.to_string_lossy(), error.0),
            Err(_) => format!("{:?}", error.0),
        },
    })
}

/// One GPU. Everything goes through one stream; calls may come from any one thread at a time.
pub struct Cuda {
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    multiprocessors: usize,
    modules: Modules,
    staging: Mutex<Staging>,
    stage_bytes: usize,
    landing: Mutex<Landing>,
    loading: Mutex<Option<Loading>>,
    products: Mutex<Products>,
    nccl: OnceLock<Nccl>,
    idle: Mutex<Idle>,
}

/// How long the device has waited for the host.
#[derive(Default)]
struct Idle {
    total: Duration,
    /// When a read ended, unless something was launched since.
    since: Option<Instant>,
    /// Whether something was launched between the begin of a read and its end.
    behind: bool,
}

// SAFETY: the handles may be used from any thread once the context is current, which every method
// sees to; what changes lies behind mutexes.
unsafe impl Send for Cuda {}
// SAFETY: as above.
unsafe impl Sync for Cuda {}

impl Cuda {
    /// Number of GPUs that the driver sees.
    pub fn count() -> Result<usize> {
        // SAFETY: loading libcuda runs no code of ours.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::NoDriver);
        }
        check_version()?;
        let begun = result::init();
        if let Err(result::DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) = begun {
            return Err(Error::NoGpu);
        }
        call("cuInit", begun)?;
        let count = call("cuDeviceGetCount", result::device::get_count())?;
        Ok(count.max(0) as usize)
    }

    /// Opens GPU `ordinal`; `stage_bytes` is the most that one staged copy may hold.
    pub fn new(ordinal: usize, stage_bytes: usize) -> Result<Self> {
        let count = Self::count()?;
        if count == 0 {
            return Err(Error::NoGpu);
        }
        if ordinal >= count {
            let count = count as i32;
            return Err(Error::NoDevice { ordinal, count });
        }
        let device = call("cuDeviceGet", result::device::get(ordinal as i32))?;
        check_device(device)?;
        find_libraries()?;
        // SAFETY: `device` is a device; the context is released once, when this is dropped.
        let context = call("cuDevicePrimaryCtxRetain", unsafe {
            result::primary_ctx::retain(device)
        })?;
        // SAFETY: the context was just retained.
        call("cuCtxSetCurrent", unsafe {
            result::ctx::set_current(context)
        })?;
        let kind = result::stream::StreamKind::NonBlocking;
        let stream = call("cuStreamCreate", result::stream::create(kind))?;
        Ok(Self {
            device,
            context,
            stream,
            multiprocessors: attribute(
                device,
                sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
            )? as usize,
            modules: Modules::load()?,
            staging: Mutex::new(Staging::new(stage_bytes)?),
            stage_bytes,
            landing: Mutex::new(Landing::new(READ_BYTES)?),
            loading: Mutex::default(),
            products: Mutex::new(Products::new()?),
            nccl: OnceLock::new(),
            idle: Mutex::default(),
        })
    }

    /// Name of the device.
    pub fn name(&self) -> Result<String> {
        call("cuDeviceGetName", result::device::get_name(self.device))
    }

    fn enter(&self) -> Result<()> {
        // SAFETY: the context is retained as long as this lives.
        call("cuCtxSetCurrent", unsafe {
            result::ctx::set_current(self.context)
        })
    }

    /// Waits for all work.
    pub fn synchronize(&self) -> Result<()> {
        self.enter()?;
        // SAFETY: the stream lives as long as this.
        call("cuStreamSynchronize", unsafe {
            result::stream::synchronize(self.stream)
        })
    }

    /// The work of `run` as a graph; `run` must neither allocate nor wait.
    pub fn capture(&self, run: impl FnOnce() -> Result<()>) -> Result<Graph> {
        self.enter()?;
        Graph::capture(self.stream, run)
    }

    /// Repeats a graph's work.
    pub fn replay(&self, graph: &Graph) -> Result<()> {
        self.enter()?;
        graph.launch(self.stream)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn attribute(device: sys::CUdevice, attribute: sys::CUdevice_attribute) -> Result<i32> {
    // SAFETY: `device` is a device.
    call("cuDeviceGetAttribute", unsafe {
        result::device::get_attribute(device, attribute)
    })
}

fn check_version() -> Result<()> {
    let mut version = 0;
    // SAFETY: the pointer is valid; this works before cuInit.
    call(
        "cuDriverGetVersion",
        unsafe { sys::cuDriverGetVersion(&mut version) }.result(),
    )?;
    Error::of_driver(version).map_or(Ok(()), Err)
}

fn check_device(device: sys::CUdevice) -> Result<()> {
    use sys::CUdevice_attribute as A;
    let major = attribute(device, A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(device, A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    if major >= 8 {
        return Ok(());
    }
    let name = call("cuDeviceGetName", result::device::get_name(device))?;
    Err(Error::DeviceTooOld { name, major, minor })
}

impl Drop for Cuda {
    fn drop(&mut self) {
        if self.enter().is_err() {
            return;
        }
        // SAFETY: the stream and the context were made by `new` and are given back once. A failure
        // here means that the process has lost the device already.
        unsafe {
            _ = result::stream::synchronize(self.stream);
            drop(self.nccl.take());
            lock(&self.staging).free();
            lock(&self.landing).free();
            if let Some(mut loading) = lock(&self.loading).take() {
                loading.free();
            }
            lock(&self.products).free();
            self.modules.free();
            _ = result::stream::destroy(self.stream);
            _ = result::primary_ctx::release(self.device);
        }
    }
}

impl Driver for Cuda {
    fn alloc(&self, _: &'static str, bytes: usize) -> Result<Address> {
        self.enter()?;
        // SAFETY: the size is not zero (callers ask for at least one byte).
        call("cuMemAlloc", unsafe { result::malloc_sync(bytes) })
    }

    fn free(&self, address: Address) {
        if self.enter().is_ok() {
            // SAFETY: from `alloc`; cuMemFree waits for the work that uses it. A failure means that
            // the device is lost.
            _ = unsafe { result::free_sync(address) };
        }
    }

    fn alloc_host(&self, bytes: usize) -> Result<Address> {
        self.enter()?;
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        let pointer = pinned(bytes, flags)?;
        // SAFETY: just allocated with this size.
        unsafe { pointer.write_bytes(0, bytes) };
        Ok(pointer as Address)
    }

    fn free_host(&self, address: Address) {
        if self.synchronize().is_ok() {
            // SAFETY: from `alloc_host`; the work of this device is done, and callers see to the
            // other devices.
            _ = unsafe { result::free_host(address as *mut _) };
        }
    }

    fn write(&self, to: Address, data: &[u8]) -> Result<()> {
        self.enter()?;
        // SAFETY: callers stay inside an allocation; the data outlives the wait.
        call("cuMemcpyHtoDAsync", unsafe {
            result::memcpy_htod_async(to, data, self.stream)
        })?;
        self.synchronize()
    }

    fn fill(&self, to: Address, bytes: usize, source: &Source<'_>) -> Result<()> {
        self.enter()?;
        let mut loading = lock(&self.loading);
        let loading = match &mut *loading {
            Some(loading) => loading,
            none => none.insert(Loading::new()?),
        };
        loading.fill(self.stream, to, bytes, source)
    }

    fn stage(&self, to: Address, data: &[u8]) -> Result<()> {
        self.enter()?;
        lock(&self.staging).copy(self.stream, to, data)
    }

    fn stage_bytes(&self) -> usize {
        self.stage_bytes
    }

    fn begin_read(&self, parts: &[(Address, usize)]) -> Result<Reading> {
        self.enter()?;
        lock(&self.idle).behind = false;
        if parts.iter().map(|(_, bytes)| bytes).sum::<usize>() <= READ_BYTES {
            let turn = lock(&self.landing).begin(self.stream, &self.modules, parts)?;
            let parts = parts.iter().map(|(_, bytes)| *bytes).collect();
            return Ok(Reading::Begun { parts, turn });
        }
        let mut read = Vec::with_capacity(parts.len());
        for &(from, bytes) in parts {
            let mut data = vec![0; bytes];
            self.read(from, &mut data)?;
            read.push(data);
        }
        Ok(Reading::Done(read))
    }

    fn end_read(&self, reading: Reading) -> Result<Vec<Vec<u8>>> {
        self.enter()?;
        let behind = lock(&self.idle).behind;
        let parts = match reading {
            Reading::Done(parts) => parts,
            Reading::Begun { parts, turn } => {
                lock(&self.landing).end(self.stream, turn, &parts, behind)?
            }
        };
        lock(&self.idle).since = Some(Instant::now());
        Ok(parts)
    }

    fn read(&self, from: Address, data: &mut [u8]) -> Result<()> {
        self.enter()?;
        // SAFETY: callers stay inside an allocation; the data outlives the wait.
        call("cuMemcpyDtoHAsync", unsafe {
            result::memcpy_dtoh_async(data, from, self.stream)
        })?;
        self.synchronize()
    }

    fn zero(&self, at: Address, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.enter()?;
        // SAFETY: callers stay inside an allocation.
        call("cuMemsetD8Async", unsafe {
            result::memset_d8_async(at, 0, bytes, self.stream)
        })
    }

    fn copy(&self, from: Address, to: Address, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.enter()?;
        // SAFETY: callers stay inside an allocation.
        call("cuMemcpyDtoDAsync", unsafe {
            result::memcpy_dtod_async(to, from, bytes, self.stream)
        })
    }

    unsafe fn launch(&self, kernel: usize, grid: [u32; 3], params: &[u8]) -> Result<()> {
        self.enter()?;
        let params = params.as_ptr().cast();
        // SAFETY: the caller vouches for the parameters.
        let launched = unsafe { self.modules.launch(self.stream, kernel, grid, params) };
        let mut idle = lock(&self.idle);
        if let Some(since) = idle.since.take() {
            let waited = since.elapsed();
            let worked = match idle.behind {
                true => lock(&self.landing).worked().unwrap_or(waited),
                false => Duration::ZERO,
            };
            idle.total += waited.saturating_sub(worked);
        }
        idle.behind = true;
        launched
    }

    unsafe fn multiply(&self, product: &Product) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller vouches for the addresses and shapes.
        unsafe { lock(&self.products).multiply(self.stream, product) }
    }

    fn has_library_reduce(&self) -> bool {
        self.nccl.get().is_some()
    }

    unsafe fn library_reduce(&self, x: Address, values: usize) -> Result<()> {
        self.enter()?;
        let nccl = self.nccl.get().ok_or(Error::MissingLibrary {
            library: "libnccl.so.2",
        })?;
        // SAFETY: the caller vouches for the address, and all ranks make the same calls.
        unsafe { nccl.all_reduce(x, values, self.stream) }
    }

    fn record(&self, run: &mut dyn FnMut() -> Result<()>) -> Result<Box<dyn Recording>> {
        let graph = self.capture(run)?;
        let (context, stream) = (self.context, self.stream);
        Ok(Box::new(Recorded {
            graph,
            context,
            stream,
        }))
    }

    fn multiprocessors(&self) -> usize {
        self.multiprocessors
    }

    fn blocks_per_multiprocessor(&self, kernel: usize) -> usize {
        self.modules.blocks_per_multiprocessor(kernel)
    }

    fn has(&self, kernel: usize) -> bool {
        self.modules.has(kernel)
    }

    fn overlaps(&self, kernel: usize) -> bool {
        self.modules.overlaps(kernel)
    }

    fn idle(&self) -> Duration {
        lock(&self.idle).total
    }

    fn time(&self, run: &mut dyn FnMut() -> Result<()>) -> Result<f32> {
        self.enter()?;
        graph::time(self.stream, run)
    }
}

/// A graph with the stream it is launched on. It is kept beside the driver that made it.
struct Recorded {
    graph: Graph,
    context: sys::CUcontext,
    stream: sys::CUstream,
}

impl Recording for Recorded {
    fn replay(&self) -> Result<()> {
        // SAFETY: the context is retained as long as the driver lives.
        call("cuCtxSetCurrent", unsafe {
            result::ctx::set_current(self.context)
        })?;
        self.graph.launch(self.stream)
    }
}

/// Pinned host memory.
fn pinned(bytes: usize, flags: u32) -> Result<*mut u8> {
    let mut pointer = MaybeUninit::uninit();
    // SAFETY: the pointer is written on success.
    call("cuMemHostAlloc", unsafe {
        sys::cuMemHostAlloc(pointer.as_mut_ptr(), bytes, flags).result()
    })?;
    // SAFETY: written by the call.
    Ok(unsafe { pointer.assume_init() }.cast())
}
