use volley_kernels::{Cuda, CudaOps, Limits};

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

/// Measured speed of the first GPU's memory: reading, and reading and writing in a copy.
pub(crate) fn bandwidth() -> Result<(f64, f64), EngineError> {
    let cuda = Cuda::new(0, 1 << 16)?;
    let measured = cuda.bandwidth()?;
    Ok((measured.read, measured.copy))
}
