use candle_core::Device;
use volley_ops_candle::CandleOps;

/// Operations of `ranks` ranks on the processor.
pub(crate) fn ops(ranks: usize) -> Vec<CandleOps> {
    CandleOps::ranks(ranks, Device::Cpu)
}
