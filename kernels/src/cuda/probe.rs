//! What a GPU is and how fast its memory is, measured.

use cudarc::driver::{result, sys};

use super::{Cuda, attribute, call};
use crate::driver::{Address, Driver};
use crate::error::Result;
use crate::kernel::READ;
use crate::params::ReadParams;

/// Bytes that are read and copied: many times the cache.
const PROBE_BYTES: usize = 2 << 30;
/// Bytes that are copied from one device to another.
const LINK_BYTES: usize = 256 << 20;
const REPETITIONS: usize = 7;
/// Blocks of the reading kernel per multiprocessor.
const BLOCKS: usize = 8;

/// One GPU as the driver describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceReport {
    /// Its name.
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (i32, i32),
    /// CUDA version of the driver, major and minor.
    pub driver_cuda: (i32, i32),
    /// Memory, bytes.
    pub total_bytes: usize,
    /// Memory that is free, bytes.
    pub free_bytes: usize,
    /// Multiprocessors.
    pub multiprocessors: usize,
}

/// Speed of a GPU's memory, bytes per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bandwidth {
    /// Of a kernel that reads.
    pub read: f64,
    /// Of a copy on the device, bytes read and written together.
    pub copy: f64,
}

impl Cuda {
    /// What the device is.
    pub fn report(&self) -> Result<DeviceReport> {
        use sys::CUdevice_attribute as A;
        let (free_bytes, total_bytes) = self.memory()?;
        let mut version = 0;
        // SAFETY: the pointer is valid.
        let asked = unsafe { sys::cuDriverGetVersion(&mut version) };
        call("cuDriverGetVersion", asked.result())?;
        let capability = |which| attribute(self.device, which);
        Ok(DeviceReport {
            name: self.name()?,
            capability: (
                capability(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                capability(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            driver_cuda: (version / 1000, version % 1000 / 10),
            total_bytes,
            free_bytes,
            multiprocessors: self.multiprocessors,
        })
    }

    /// Memory that is free, and all of it, bytes.
    pub fn memory(&self) -> Result<(usize, usize)> {
        self.enter()?;
        call("cuMemGetInfo", result::mem_get_info())
    }

    /// Measures the memory: medians over a few gigabytes.
    pub fn bandwidth(&self) -> Result<Bandwidth> {
        let (from, to) = (
            self.alloc("probe", PROBE_BYTES)?,
            self.alloc("probe", PROBE_BYTES)?,
        );
        let measured = self.zero(from, PROBE_BYTES).and_then(|()| {
            Ok(Bandwidth {
                read: self.speed(PROBE_BYTES, || self.read_all(from, to))?,
                copy: self.speed(2 * PROBE_BYTES, || self.copy_all(from, to))?,
            })
        });
        self.free(from);
        self.free(to);
        measured
    }

    /// Bytes per second that a copy from this device to another takes, if it can reach the other.
    pub fn speed_to(&self, other: &Self) -> Result<Option<f64>> {
        if !self.can_reach(other)? {
            return Ok(None);
        }
        self.reach(other)?;
        let to = other.alloc("probe", LINK_BYTES)?;
        let measured = self.alloc("probe", LINK_BYTES).and_then(|from| {
            let speed = self
                .zero(from, LINK_BYTES)
                .and_then(|()| self.speed(LINK_BYTES, || self.copy(from, to, LINK_BYTES)));
            self.free(from);
            speed
        });
        other.free(to);
        measured.map(Some)
    }

    fn speed(&self, bytes: usize, run: impl Fn() -> Result<()>) -> Result<f64> {
        run()?;
        let mut times = Vec::with_capacity(REPETITIONS);
        for _ in 0..REPETITIONS {
            times.push(self.time(&mut || run())?);
        }
        times.sort_by(f32::total_cmp);
        Ok(bytes as f64 / (f64::from(times[REPETITIONS / 2]) * 1e-3))
    }

    fn read_all(&self, from: Address, out: Address) -> Result<()> {
        let params = ReadParams {
            from,
            out,
            units: (PROBE_BYTES / 16) as i64,
        };
        // SAFETY: both are that long.
        unsafe { READ.launch(self, [BLOCKS * self.multiprocessors, 1, 1], &params) }
    }

    fn copy_all(&self, from: Address, to: Address) -> Result<()> {
        // SAFETY: both are that long; the stream lives.
        call("cuMemcpyDtoDAsync", unsafe {
            result::memcpy_dtod_async(to, from, PROBE_BYTES, self.stream)
        })
    }
}
