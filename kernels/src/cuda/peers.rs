//! GPUs that write each other's memory.

use std::sync::Arc;

use cudarc::driver::sys;

use super::{Cuda, call};
use crate::error::Result;
use crate::exchange::Route;

impl Cuda {
    /// Lets all devices write each other's memory; [`Route::Host`] where some pair cannot.
    pub fn connect(devices: &[Arc<Self>]) -> Result<Route> {
        let pairs = || {
            let from = devices.iter();
            from.flat_map(|from| devices.iter().map(move |to| (from, to)))
                .filter(|(from, to)| from.device != to.device)
        };
        for (from, to) in pairs() {
            if !from.can_reach(to)? {
                return Ok(Route::Host);
            }
        }
        for (from, to) in pairs() {
            from.reach(to)?;
        }
        Ok(Route::Peer)
    }

    pub(super) fn can_reach(&self, other: &Self) -> Result<bool> {
        let mut can = 0;
        // SAFETY: both are devices, and the pointer is valid.
        let asked = unsafe { sys::cuDeviceCanAccessPeer(&mut can, self.device, other.device) };
        call("cuDeviceCanAccessPeer", asked.result())?;
        Ok(can != 0)
    }

    pub(super) fn reach(&self, other: &Self) -> Result<()> {
        self.enter()?;
        // SAFETY: both contexts live.
        match unsafe { sys::cuCtxEnablePeerAccess(other.context, 0) } {
            sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            enabled => call("cuCtxEnablePeerAccess", enabled.result()),
        }
    }
}
