//! The compiled kernels.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::mem::size_of;
use std::ptr::{self, from_mut};

use bytemuck::{Pod, Zeroable, bytes_of_mut};
use cudarc::driver::{result, sys};

use super::call;
use crate::error::{Error, Result};
use crate::kernel::KERNELS;

/// Name and fat binary of every file in kernels/cuda.
const BINARIES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/binaries.rs"));
/// Dynamic shared memory that a block may have without asking.
const FREE_SHARED_BYTES: u32 = 48 * 1024;

/// What a kernel says of itself (native.cuh): no threads where it does not exist.
#[repr(C)]
#[derive(Clone, Copy, Default, Pod, Zeroable)]
struct KernelInfo {
    threads: u32,
    shared_bytes: u32,
    overlaps: u32,
}

struct Loaded {
    function: sys::CUfunction,
    info: KernelInfo,
    blocks_per_multiprocessor: usize,
}

pub struct Modules {
    modules: Vec<sys::CUmodule>,
    /// In the order of [`KERNELS`].
    kernels: Vec<Loaded>,
}

fn c_string(name: String) -> CString {
    CString::new(name).expect("names have no zero bytes: this is a bug")
}

impl Modules {
    /// Loads all binaries into the current context.
    pub fn load() -> Result<Self> {
        let mut modules = HashMap::new();
        for (name, binary) in BINARIES {
            // SAFETY: the binary is a whole fat binary made by nvcc.
            let module = unsafe { result::module::load_data(binary.as_ptr().cast()) };
            modules.insert(*name, call("cuModuleLoadData", module)?);
        }
        // SAFETY: the size is not zero; freed below, after the last use.
        let answer = unsafe { result::malloc_sync(size_of::<KernelInfo>()) };
        let answer = call("cuMemAlloc", answer)?;
        let kernels = KERNELS.iter().map(|&(file, name)| {
            let module = *modules.get(file).ok_or_else(|| Error::Call {
                call: "cuModuleLoadData",
                message: format!("there is no module {file}"),
            })?;
            // SAFETY: the module is loaded, and `answer` holds a `KernelInfo`.
            unsafe { Loaded::find(module, name, answer) }
        });
        let kernels = kernels.collect::<Result<_>>();
        // SAFETY: allocated above, no longer used.
        call("cuMemFree", unsafe { result::free_sync(answer) })?;
        Ok(Self {
            modules: modules.into_values().collect(),
            kernels: kernels?,
        })
    }

    /// # Safety
    /// `params` points to the parameters of this kernel, with addresses large enough for the grid.
    pub unsafe fn launch(
        &self,
        stream: sys::CUstream,
        kernel: usize,
        grid: [u32; 3],
        params: *const c_void,
    ) -> Result<()> {
        let Loaded { function, info, .. } = &self.kernels[kernel];
        let [x, y, z] = grid;
        let mut arguments = [params.cast_mut()];
        let mut overlap = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue {
                programmaticStreamSerializationAllowed: 1,
            },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: info.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: info.shared_bytes,
            hStream: stream,
            attrs: &mut overlap,
            numAttrs: info.overlaps,
        };
        // SAFETY: the caller vouches for the parameters; the function is loaded; a kernel that
        // `overlaps` waits for those ahead itself.
        let launched = unsafe {
            sys::cuLaunchKernelEx(&config, *function, arguments.as_mut_ptr(), ptr::null_mut())
        };
        call(KERNELS[kernel].1, launched.result())
    }

    /// Blocks of a kernel that fit one multiprocessor.
    pub fn blocks_per_multiprocessor(&self, kernel: usize) -> usize {
        self.kernels[kernel].blocks_per_multiprocessor
    }

    /// Whether a kernel was compiled for this device.
    pub fn has(&self, kernel: usize) -> bool {
        self.kernels[kernel].info.threads != 0
    }

    /// Whether a kernel may start before the one ahead of it has ended.
    pub fn overlaps(&self, kernel: usize) -> bool {
        self.kernels[kernel].info.overlaps != 0
    }

    /// Unloads; nothing may be launched afterwards.
    pub unsafe fn free(&self) {
        for &module in &self.modules {
            // SAFETY: loaded by `load`; the caller calls this once.
            _ = unsafe { result::module::unload(module) };
        }
    }
}

impl Loaded {
    /// Looks a kernel up and asks it what it needs; `answer` is device memory for the answer.
    unsafe fn find(
        module: sys::CUmodule,
        name: &'static str,
        mut answer: sys::CUdeviceptr,
    ) -> Result<Self> {
        let mut info = KernelInfo::default();
        // SAFETY: the module is loaded; `name_info` takes the address of a `KernelInfo`.
        unsafe {
            let function = result::module::get_function(module, c_string(name.into()));
            let function = call(name, function)?;
            let asked = result::module::get_function(module, c_string(format!("{name}_info")));
            let asked = call(name, asked)?;
            let mut arguments = [from_mut(&mut answer).cast()];
            let one = (1, 1, 1);
            let stream = result::stream::null();
            let launched = result::launch_kernel(asked, one, one, 0, stream, &mut arguments);
            call("cuLaunchKernel", launched)?;
            call(
                "cuMemcpyDtoH",
                result::memcpy_dtoh_sync(bytes_of_mut(&mut info), answer),
            )?;
            if info.shared_bytes > FREE_SHARED_BYTES {
                use sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as MOST;
                let shared_bytes = info.shared_bytes as i32;
                let set = result::function::set_function_attribute(function, MOST, shared_bytes);
                call("cuFuncSetAttribute", set)?;
            }
            if info.threads == 0 {
                let blocks_per_multiprocessor = 0;
                return Ok(Self {
                    function,
                    info,
                    blocks_per_multiprocessor,
                });
            }
            let blocks = result::occupancy::max_active_block_per_multiprocessor(
                function,
                info.threads as i32,
                info.shared_bytes as usize,
            );
            let blocks = call("cuOccupancyMaxActiveBlocksPerMultiprocessor", blocks)?;
            Ok(Self {
                function,
                info,
                blocks_per_multiprocessor: blocks.max(1) as usize,
            })
        }
    }
}
