//! The compiled kernels.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::mem::size_of;

use bytemuck::{Pod, Zeroable, bytes_of_mut};
use cudarc::driver::{result, sys};

use super::call;
use crate::error::{Error, Result};
use crate::kernel::NAMES;

/// Name and fat binary of every file in kernels/cuda.
const BINARIES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/binaries.rs"));
/// Dynamic shared memory that a block may have without asking.
const FREE_SHARED_BYTES: u32 = 48 * 1024;

/// What a kernel says of itself (native.cuh).
#[repr(C)]
#[derive(Clone, Copy, Default, Pod, Zeroable)]
struct KernelInfo {
    threads: u32,
    shared_bytes: u32,
}

struct Loaded {
    function: sys::CUfunction,
    info: KernelInfo,
}

pub struct Modules {
    modules: Vec<sys::CUmodule>,
    /// In the order of [`NAMES`].
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
        let mut kernels = Vec::with_capacity(NAMES.len());
        for &(file, name) in NAMES {
            let Some(&module) = modules.get(file) else {
                return Err(Error::Call {
                    call: "cuModuleLoadData",
                    message: format!("there is no module {file}"),
                });
            };
            // SAFETY: the module is loaded.
            kernels.push(unsafe { Loaded::find(module, name)? });
        }
        Ok(Self {
            modules: modules.into_values().collect(),
            kernels,
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
        let Loaded { function, info } = &self.kernels[kernel];
        let [x, y, z] = grid;
        let mut arguments = [params.cast_mut()];
        // SAFETY: the caller vouches for the parameters; the function is loaded.
        let launched = unsafe {
            result::launch_kernel(
                *function,
                (x, y, z),
                (info.threads, 1, 1),
                info.shared_bytes,
                stream,
                &mut arguments,
            )
        };
        call(NAMES[kernel].1, launched)
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
    unsafe fn find(module: sys::CUmodule, name: &'static str) -> Result<Self> {
        let mut info = KernelInfo::default();
        // SAFETY: the module is loaded; the symbol is as large as `info`.
        unsafe {
            let function = result::module::get_function(module, c_string(name.into()));
            let function = call(name, function)?;
            let symbol = result::module::get_global(module, c_string(format!("{name}_info")));
            let (address, bytes) = call(name, symbol)?;
            if bytes != size_of::<KernelInfo>() {
                return Err(Error::Call {
                    call: name,
                    message: format!("its description has {bytes} bytes"),
                });
            }
            call("cuMemcpyDtoH", result::memcpy_dtoh_sync(bytes_of_mut(&mut info), address))?;
            if info.shared_bytes > FREE_SHARED_BYTES {
                use sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as MOST;
                let shared_bytes = info.shared_bytes as i32;
                let set = result::function::set_function_attribute(function, MOST, shared_bytes);
                call("cuFuncSetAttribute", set)?;
            }
            Ok(Self { function, info })
        }
    }
}
