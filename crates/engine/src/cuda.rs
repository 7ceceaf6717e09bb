use volley_kernels::{CudaOps, Limits};

use crate::EngineError;

/// Operations of `ranks` ranks, one on each GPU.
pub(crate) fn ops(ranks: usize) -> Result<Vec<CudaOps>, EngineError> {
    if ranks != 1 {
        return Err(EngineError::Options(format!(
            "{ranks} ranks: on GPUs volley runs 1 so far"
        )));
    }
    Ok(vec![CudaOps::new(0, Limits::default())?])
}
