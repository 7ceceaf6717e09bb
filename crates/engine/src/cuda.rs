use volley_kernels::{CudaOps, Limits};

use crate::EngineError;

/// Operations of `ranks` ranks, one on each GPU.
pub(crate) fn ops(ranks: usize) -> Result<Vec<CudaOps>, EngineError> {
    if ranks == 1 {
        return Ok(vec![CudaOps::new(0, Limits::default())?]);
    }
    let gpus: Vec<usize> = (0..ranks).collect();
    let (ops, report) = CudaOps::on_gpus(&gpus, Limits::default(), true)?;
    tracing::info!("{report}");
    Ok(ops)
}
