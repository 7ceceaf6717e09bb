//! Large copies to the device: pieces are written into pinned memory by several threads while the
//! piece before is on its way.

use cudarc::driver::{result, sys};

use super::{call, pinned};
use crate::driver::{Address, Source};
use crate::error::Result;

const PIECE_BYTES: usize = 16 << 20;
const PIECES: usize = 4;
/// Threads that write a piece; bytes that are worth one.
const THREADS: usize = 8;
const THREAD_BYTES: usize = 1 << 20;

pub struct Loading {
    memory: *mut u8,
    events: Vec<sys::CUevent>,
    next: usize,
}

impl Loading {
    pub fn new() -> Result<Self> {
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
        let events = (0..PIECES).map(|_| call("cuEventCreate", result::event::create(flags)));
        Ok(Self {
            memory: pinned(PIECES * PIECE_BYTES)?,
            events: events.collect::<Result<_>>()?,
            next: 0,
        })
    }

    /// Copies what `source` writes; the last pieces are still on their way afterwards.
    pub fn fill(
        &mut self,
        stream: sys::CUstream,
        to: Address,
        bytes: usize,
        source: &Source<'_>,
    ) -> Result<()> {
        for offset in (0..bytes).step_by(PIECE_BYTES) {
            let len = PIECE_BYTES.min(bytes - offset);
            let slot = self.next % PIECES;
            let event = self.events[slot];
            // SAFETY: the slot lies inside the pinned memory, and nothing reads it once its event
            // has passed; the event and the stream live.
            unsafe {
                if self.next >= PIECES {
                    call("cuEventSynchronize", result::event::synchronize(event))?;
                }
                let at = self.memory.add(slot * PIECE_BYTES);
                let piece = std::slice::from_raw_parts_mut(at, len);
                write(offset, piece, source);
                call(
                    "cuMemcpyHtoDAsync",
                    result::memcpy_htod_async(to + offset as u64, piece, stream),
                )?;
                call("cuEventRecord", result::event::record(event, stream))?;
            }
            self.next += 1;
        }
        Ok(())
    }

    /// Gives everything back; nothing may be filled afterwards.
    pub unsafe fn free(&mut self) {
        for event in self.events.drain(..) {
            // SAFETY: created by `new`, drained here.
            _ = unsafe { result::event::destroy(event) };
        }
        // SAFETY: from `pinned`; the caller calls this once.
        _ = unsafe { result::free_host(self.memory.cast()) };
    }
}

/// Writes a piece in parts, which are whole values.
fn write(offset: usize, piece: &mut [u8], source: &Source<'_>) {
    let threads = (piece.len() / THREAD_BYTES).clamp(1, THREADS);
    let part = piece.len().div_ceil(threads).next_multiple_of(8);
    std::thread::scope(|scope| {
        for (i, part_of) in piece.chunks_mut(part).enumerate() {
            scope.spawn(move || source(offset + i * part, part_of));
        }
    });
}
