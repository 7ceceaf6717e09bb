//! Recorded work, and device time.

use cudarc::driver::{result, sys};

use super::call;
use crate::error::Result;

/// Work recorded once, to be repeated by one launch.
pub struct Graph {
    graph: sys::CUgraph,
    executable: sys::CUgraphExec,
}

impl Graph {
    pub(super) fn capture(stream: sys::CUstream, run: impl FnOnce() -> Result<()>) -> Result<Self> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives and is not capturing.
        call("cuStreamBeginCapture", unsafe {
            result::stream::begin_capture(stream, mode)
        })?;
        let ran = run();
        // SAFETY: capture has begun above and ends whatever `run` said.
        let graph = unsafe { result::stream::end_capture(stream) };
        ran?;
        let graph = call("cuStreamEndCapture", graph)?;
        let mut executable = std::ptr::null_mut();
        // SAFETY: the graph was just made.
        let made = unsafe { sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0).result() };
        call("cuGraphInstantiate", made)?;
        Ok(Self { graph, executable })
    }

    pub(super) fn launch(&self, stream: sys::CUstream) -> Result<()> {
        // SAFETY: both live.
        call("cuGraphLaunch", unsafe {
            result::graph::launch(self.executable, stream)
        })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made by `capture`, destroyed once. A failure means that the device is lost.
        unsafe {
            _ = result::graph::exec_destroy(self.executable);
            _ = result::graph::destroy(self.graph);
        }
    }
}

/// Milliseconds between two events around the work of `run`.
pub(super) fn time(stream: sys::CUstream, run: impl FnOnce() -> Result<()>) -> Result<f32> {
    let create = || {
        call(
            "cuEventCreate",
            result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT),
        )
    };
    let (begin, end) = (create()?, create()?);
    // SAFETY: the events were just made, and are destroyed once, below.
    unsafe {
        let measured = (|| {
            call("cuEventRecord", result::event::record(begin, stream))?;
            run()?;
            call("cuEventRecord", result::event::record(end, stream))?;
            call("cuEventSynchronize", result::event::synchronize(end))?;
            call("cuEventElapsedTime", result::event::elapsed(begin, end))
        })();
        _ = result::event::destroy(begin);
        _ = result::event::destroy(end);
        measured
    }
}
