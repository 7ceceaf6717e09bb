use volley_kernels::{CudaOps, Limits};

use crate::EngineError;

/// Operations of `ranks` ranks, one on each GPU.
pub(crate) fn ops(ranks: usize) -> Result<Vec<CudaOps>, EngineError> {
    if ranks != 1 {
        return Err(EngineError::Options(format!(
            "{ranks} ranks: on GPUs volley runs 1 so far"
        )));
    }
    let ops = CudaOps::new(0, Limits::default());
    Ok(vec![ops.map_err(|error| {
        EngineError::Options(error.to_string())
    })?])
}
