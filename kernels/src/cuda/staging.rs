//! Small copies through pinned memory: to the device without waiting, by slots in a ring, each with
//! an event that says when its copy is done; and to the host, which waits.

use cudarc::driver::{result, sys};

use super::{call, pinned};
use crate::driver::Address;
use crate::error::{Error, Result};

const SLOTS: usize = 16;

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

/// Pinned memory that small reads land in.
pub struct Reading {
    memory: *mut u8,
    bytes: usize,
}

impl Reading {
    pub fn new(bytes: usize) -> Result<Self> {
        Ok(Self {
            memory: pinned(bytes, 0)?,
            bytes,
        })
    }

    /// Copies to the host, once the work before is done.
    pub fn read(&mut self, stream: sys::CUstream, parts: &mut [(Address, Vec<u8>)]) -> Result<()> {
        let total: usize = parts.iter().map(|(_, data)| data.len()).sum();
        assert!(total <= self.bytes, "a read of {total}: this is a bug");
        // SAFETY: the memory is pinned and large enough, and the copies are waited for.
        unsafe {
            let pinned = std::slice::from_raw_parts_mut(self.memory, total);
            let mut rest = &mut pinned[..];
            for (from, data) in parts.iter() {
                let (part, behind) = rest.split_at_mut(data.len());
                if !part.is_empty() {
                    call(
                        "cuMemcpyDtoHAsync",
                        result::memcpy_dtoh_async(part, *from, stream),
                    )?;
                }
                rest = behind;
            }
            call("cuStreamSynchronize", result::stream::synchronize(stream))?;
            let mut rest = &pinned[..];
            for (_, data) in parts {
                let (part, behind) = rest.split_at(data.len());
                data.copy_from_slice(part);
                rest = behind;
            }
        }
        Ok(())
    }

    /// Gives the memory back; nothing may be read afterwards.
    pub unsafe fn free(&mut self) {
        // SAFETY: from `pinned`; the caller calls this once.
        _ = unsafe { result::free_host(self.memory.cast()) };
    }
}
