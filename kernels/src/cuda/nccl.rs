//! NVIDIA's library of collectives, by its real name: for large messages where it is faster.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use cudarc::driver::sys::CUstream;
use libloading::{Library, Symbol};

use super::Cuda;
use crate::driver::Address;
use crate::error::{Error, Result};

const NAME: &str = "libnccl.so.2";
/// `ncclBfloat16`, `ncclSum` and `ncclSuccess` of nccl.h.
const BF16: c_int = 9;
const SUM: c_int = 0;
const SUCCESS: c_int = 0;

type Comm = *mut c_void;
type CommInitAll = unsafe extern "C" fn(*mut Comm, c_int, *const c_int) -> c_int;
type AllReduce =
    unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Comm, CUstream) -> c_int;
type CommAbort = unsafe extern "C" fn(Comm) -> c_int;
type ErrorString = unsafe extern "C" fn(c_int) -> *const c_char;

struct Functions {
    comm_init_all: CommInitAll,
    all_reduce: AllReduce,
    comm_abort: CommAbort,
    error_string: ErrorString,
    /// Keeps the functions alive.
    _library: Library,
}

impl Functions {
    fn load() -> Result<Self> {
        let missing = |_| Error::MissingLibrary { library: NAME };
        // SAFETY: the library's initialisers only set it up; the types are those of nccl.h.
        unsafe {
            let library = Library::new(NAME).map_err(missing)?;
            fn get<T: Copy>(library: &Library, name: &CStr) -> Result<T> {
                // SAFETY: the caller names the function's type.
                let symbol = unsafe { library.get::<T>(name.to_bytes_with_nul()) };
                let symbol: Symbol<T> = symbol.map_err(|error| Error::Call {
                    call: NAME,
                    message: error.to_string(),
                })?;
                Ok(*symbol)
            }
            Ok(Self {
                comm_init_all: get(&library, c"ncclCommInitAll")?,
                all_reduce: get(&library, c"ncclAllReduce")?,
                comm_abort: get(&library, c"ncclCommAbort")?,
                error_string: get(&library, c"ncclGetErrorString")?,
                _library: library,
            })
        }
    }

    fn call(&self, call: &'static str, status: c_int) -> Result<()> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: the library answers any number with a static text.
        let text = unsafe { CStr::from_ptr((self.error_string)(status)) };
        Err(Error::Call {
            call,
            message: text.to_string_lossy().into_owned(),
        })
    }
}

/// One rank's communicator.
pub struct Nccl {
    functions: Arc<Functions>,
    comm: Comm,
}

// SAFETY: a communicator may be used from any one thread at a time, and the mutex or the owner of the
// rank sees to that.
unsafe impl Send for Nccl {}
// SAFETY: as above.
unsafe impl Sync for Nccl {}

impl Nccl {
    /// Sum over the ranks, in place, in stream order.
    ///
    /// # Safety
    /// `x` holds so many bf16, and the other ranks make the same call.
    pub unsafe fn all_reduce(&self, x: Address, values: usize, stream: CUstream) -> Result<()> {
        let x = x as *mut c_void;
        // SAFETY: the caller's promise; the communicator lives.
        let status =
            unsafe { (self.functions.all_reduce)(x, x, values, BF16, SUM, self.comm, stream) };
        self.functions.call("ncclAllReduce", status)
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        // Unlike a destruction, it does not wait for ranks that are gone.
        // SAFETY: made by `join`, given back once.
        _ = unsafe { (self.functions.comm_abort)(self.comm) };
    }
}

impl Cuda {
    /// Gives each device its rank in a group of NCCL, if the library is there. To be called before
    /// the devices go to their threads.
    pub fn join_nccl(devices: &[Arc<Self>]) -> Result<()> {
        let functions = Arc::new(Functions::load()?);
        let ordinals: Vec<c_int> = devices.iter().map(|device| device.device).collect();
        let mut comms: Vec<Comm> = vec![null_mut(); devices.len()];
        // SAFETY: there is room for as many communicators as devices.
        let status = unsafe {
            (functions.comm_init_all)(
                comms.as_mut_ptr(),
                ordinals.len() as c_int,
                ordinals.as_ptr(),
            )
        };
        functions.call("ncclCommInitAll", status)?;
        for (device, comm) in devices.iter().zip(comms) {
            let functions = Arc::clone(&functions);
            // A second group would replace nothing: the first stays.
            _ = device.nccl.set(Nccl { functions, comm });
        }
        Ok(())
    }
}
