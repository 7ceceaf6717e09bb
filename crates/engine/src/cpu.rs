use candle_core::Device;
use volley_model::TargetConfig;
use volley_ops_candle::CandleOps;

use crate::{EngineError, EngineOptions, Sources};

/// Operations of `ranks` ranks on the processor.
pub(crate) fn ops(ranks: usize) -> Vec<CandleOps> {
    CandleOps::ranks(ranks, Device::Cpu)
}

/// The same where the options make sense on the processor: no thread is begun for ranks that cannot
/// share the model.
pub(crate) fn planned(
    options: &EngineOptions,
    sources: &Sources,
) -> Result<Vec<CandleOps>, EngineError> {
    if !options.gpus.is_empty() {
        let gpus = &options.gpus;
        return Err(EngineError::Options(format!(
            "GPUs {gpus:?} are named, but the processor computes"
        )));
    }
    if options.ranks > 0 {
        TargetConfig::read(&sources.target)?.check_ranks(options.ranks)?;
    }
    Ok(ops(options.ranks))
}
