//! Small copies through pinned memory: to the device without waiting, by slots in a ring, each with
//! an event that says when its copy is done; and to the host.

use std::time::Duration;

use cudarc::driver::{result, sys};

use super::modules::Modules;
use super::{call, pinned};
use crate::driver::Address;
use crate::error::{Error, Result};
use crate::kernel::LAND;
use crate::params::{LAND_PARTS, LandParams};

const SLOTS: usize = 16;
/// Reads up to this size land by a kernel.
const LAND_BYTES: usize = 256 << 10;

pub struct Staging {
    memory: *mut u8,
    slot_bytes: usize,
    events: Vec<sys::CUevent>,
    next: usize,
}

impl Staging {
    pub fn new(slot_bytes: usize) -> Result<Self> {
        let slot_bytes = slot_bytes.next_multiple_of(256);
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
        let events = (0..SLOTS).map(|_| call("cuEventCreate", result::event::create(flags)));
        Ok(Self {
            memory: pinned(SLOTS * slot_bytes, 0)?,
            slot_bytes,
            events: events.collect::<Result<_>>()?,
            next: 0,
        })
    }

    pub fn copy(&mut self, stream: sys::CUstream, to: Address, data: &[u8]) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        if data.len() > self.slot_bytes {
            return Err(Error::Call {
                call: "stage",
                message: format!("{} bytes, at most {}", data.len(), self.slot_bytes),
            });
        }
        // A recorded copy would repeat what the slot holds later.
        // SAFETY: the stream lives.
        let status = call("cuStreamIsCapturing", unsafe {
            result::stream::is_capturing(stream)
        })?;
        if status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
            return Err(Error::Call {
                call: "stage",
                message: "a graph is being recorded; run the same pass once before".to_string(),
            });
        }
        let slot = self.next % SLOTS;
        let event = self.events[slot];
        // SAFETY: the slot lies inside the pinned memory, and nothing reads it once its event has
        // passed; the event and the stream live.
        unsafe {
            if self.next >= SLOTS {
                call("cuEventSynchronize", result::event::synchronize(event))?;
            }
            let at = self.memory.add(slot * self.slot_bytes);
            at.copy_from(data.as_ptr(), data.len());
            let pinned = std::slice::from_raw_parts(at, data.len());
            call(
                "cuMemcpyHtoDAsync",
                result::memcpy_htod_async(to, pinned, stream),
            )?;
            call("cuEventRecord", result::event::record(event, stream))?;
        }
        self.next += 1;
        Ok(())
    }

    /// Gives everything back; nothing may be copied afterwards.
    pub unsafe fn free(&mut self) {
        for event in self.events.drain(..) {
            // SAFETY: created by `new`, drained here.
            _ = unsafe { result::event::destroy(event) };
        }
        // SAFETY: from `pinned`; the caller calls this once.
        _ = unsafe { result::free_host(self.memory.cast()) };
    }
}

/// Pinned memory that small reads land in, one at a time.
pub struct Landing {
    memory: *mut u8,
    bytes: usize,
    /// Passes once the last read has landed.
    landed: sys::CUevent,
    /// Passes once all is done that had been begun when it was waited for.
    done: sys::CUevent,
    turn: u64,
}

impl Landing {
    pub fn new(bytes: usize) -> Result<Self> {
        let flags = sys::CUevent_flags::CU_EVENT_DEFAULT;
        let event = || call("cuEventCreate", result::event::create(flags));
        Ok(Self {
            memory: pinned(bytes, sys::CU_MEMHOSTALLOC_DEVICEMAP)?,
            bytes,
            landed: event()?,
            done: event()?,
            turn: 0,
        })
    }

    /// Begins to copy parts to the host once the work before is done; comes to the turn of this read.
    pub fn begin(
        &mut self,
        stream: sys::CUstream,
        modules: &Modules,
        parts: &[(Address, usize)],
    ) -> Result<u64> {
        let total: usize = parts.iter().map(|(_, bytes)| bytes).sum();
        assert!(total <= self.bytes, "a read of {total}: this is a bug");
        self.turn += 1;
        let words =
            |(from, bytes): &(Address, usize)| from.is_multiple_of(4) && bytes.is_multiple_of(4);
        let words = parts.iter().all(words);
        // SAFETY: the memory is pinned and large enough, and looked at once the event has passed.
        unsafe {
            match words && parts.len() <= LAND_PARTS && total <= LAND_BYTES {
                true => self.land(stream, modules, parts)?,
                false => self.copy(stream, parts)?,
            }
            call("cuEventRecord", result::event::record(self.landed, stream))?;
        }
        Ok(self.turn)
    }

    /// By a kernel, which leaves less of a gap between those around it than a copy of each part.
    ///
    /// # Safety
    /// The parts are live, and their words have room in the memory.
    unsafe fn land(
        &self,
        stream: sys::CUstream,
        modules: &Modules,
        parts: &[(Address, usize)],
    ) -> Result<()> {
        let mut params = LandParams {
            from: [0; LAND_PARTS],
            to: self.memory as Address,
            ends: [0; LAND_PARTS],
        };
        let mut end = 0;
        for i in 0..LAND_PARTS {
            let (from, bytes) = parts.get(i).copied().unwrap_or_default();
            end += bytes / 4;
            (params.from[i], params.ends[i]) = (from, end as i32);
        }
        if end == 0 {
            return Ok(());
        }
        let grid = [end.div_ceil(256) as u32, 1, 1];
        let params = std::ptr::from_ref(&params).cast();
        // SAFETY: the caller vouches for the parts; the memory is mapped at the address that the host has.
        unsafe { modules.launch(stream, LAND.index(), grid, params) }
    }

    /// # Safety
    /// The parts are live, and their bytes have room in the memory.
    unsafe fn copy(&self, stream: sys::CUstream, parts: &[(Address, usize)]) -> Result<()> {
        let total = parts.iter().map(|(_, bytes)| bytes).sum();
        // SAFETY: the memory is pinned, and large enough as the caller says.
        unsafe {
            let mut rest = std::slice::from_raw_parts_mut(self.memory, total);
            for &(from, bytes) in parts {
                let (part, behind) = rest.split_at_mut(bytes);
                if !part.is_empty() {
                    call(
                        "cuMemcpyDtoHAsync",
                        result::memcpy_dtoh_async(part, from, stream),
                    )?;
                }
                rest = behind;
            }
        }
        Ok(())
    }

    /// Waits for the read of this turn, whose parts have so many bytes. `behind` says whether anything was begun
    /// since, which [`Landing::worked`] is about.
    pub fn end(
        &mut self,
        stream: sys::CUstream,
        turn: u64,
        parts: &[usize],
        behind: bool,
    ) -> Result<Vec<Vec<u8>>> {
        if turn != self.turn {
            return Err(Error::Call {
                call: "end_read",
                message: "another read has taken its place".to_string(),
            });
        }
        // SAFETY: the events and the stream live; the parts are those that have landed.
        unsafe {
            if behind {
                call("cuEventRecord", result::event::record(self.done, stream))?;
            }
            let landed = result::event::synchronize(self.landed);
            call("cuEventSynchronize", landed)?;
            let mut rest = std::slice::from_raw_parts(self.memory, parts.iter().sum());
            let parts = parts.iter().map(|&bytes| {
                let (part, behind) = rest.split_at(bytes);
                rest = behind;
                part.to_vec()
            });
            Ok(parts.collect())
        }
    }

    /// How long the device worked on behind the last read; none while it does.
    pub fn worked(&self) -> Option<Duration> {
        // SAFETY: both events live and were recorded.
        unsafe {
            result::event::query(self.done).ok()?;
            let ms = result::event::elapsed(self.landed, self.done).ok()?;
            Duration::try_from_secs_f32(ms * 1e-3).ok()
        }
    }

    /// Gives everything back; nothing may be read afterwards.
    pub unsafe fn free(&mut self) {
        // SAFETY: made by `new`; the caller calls this once.
        unsafe {
            _ = result::event::destroy(self.landed);
            _ = result::event::destroy(self.done);
            _ = result::free_host(self.memory.cast());
        }
    }
}
