//! What each kernel of a GPU takes at the shapes of a model.

use serde::Serialize;

use crate::{EngineError, Sources};

/// One kernel at one shape.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelRow {
    /// Operation.
    pub kernel: String,
    /// Rows, widths and context.
    pub case: String,
    /// Median microseconds.
    pub us: f64,
    /// Bytes that it must move, in 10^9 per second.
    pub gb_per_s: f64,
    /// Multiplications and additions that it must do, in 10^12 per second.
    pub tflop_per_s: f64,
    /// Of the time, the part that the nearer ceiling allows, 0 to 1.
    pub share_of_ceiling: f64,
}

/// All kernels, with the ceilings that were measured beside them.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelReport {
    /// Bytes per second that the GPU reads.
    pub read: f64,
    /// Multiplications and additions per second of a large bf16 product.
    pub product: f64,
    /// The kernels.
    pub rows: Vec<KernelRow>,
}

/// Times every kernel on the first GPU at the shapes of these models, prompts in chunks of `chunk`
/// rows. `tell` hears the name of each operation as it is done.
pub fn time_kernels(
    sources: &Sources,
    chunk: usize,
    tell: &mut dyn FnMut(&str),
) -> Result<KernelReport, EngineError> {
    #[cfg(feature = "cuda")]
    return on_gpu::time(sources, chunk, tell);
    #[cfg(not(feature = "cuda"))]
    {
        let _ = (sources, chunk, tell);
        Err(crate::engine::without_cuda())
    }
}

#[cfg(feature = "cuda")]
mod on_gpu {
    use volley_kernels::{KernelTime, Shapes};
    use volley_model::{DrafterConfig, Shard, TargetConfig};

    use super::{KernelReport, KernelRow};
    use crate::{EngineError, Sources};

    pub fn time(
        sources: &Sources,
        chunk: usize,
        tell: &mut dyn FnMut(&str),
    ) -> Result<KernelReport, EngineError> {
        let target = TargetConfig::read(&sources.target)?;
        let drafter = match &sources.drafter {
            Some(checkpoint) => Some(DrafterConfig::read(checkpoint, Some(&target))?),
            None => None,
        };
        let shapes = Shapes {
            hidden: target.hidden_size,
            intermediate: target.intermediate_size,
            vocabulary: target.vocab_size,
            gdn: target.gdn_dims(Shard::WHOLE)?,
            attention: target.attention_dims(Shard::WHOLE)?,
            block: drafter.as_ref().map_or(16, |config| config.block_size),
            drafter: match &drafter {
                Some(config) => Some((config.attention_dims(Shard::WHOLE)?, config.masks.clone())),
                None => None,
            },
            chunk,
        };
        let mut times: Vec<KernelTime> = Vec::new();
        let ceilings = volley_kernels::time_kernels(0, &shapes, &mut |time| {
            tell(time.kernel);
            times.push(time);
        })?;
        let row = |time: KernelTime| {
            let seconds = time.us * 1e-6;
            let (bytes, flop) = (time.bytes as f64, time.flop as f64);
            let floor = (bytes / ceilings.read).max(flop / ceilings.product);
            KernelRow {
                kernel: time.kernel.to_string(),
                case: time.case,
                us: time.us,
                gb_per_s: bytes / seconds / 1e9,
                tflop_per_s: flop / seconds / 1e12,
                share_of_ceiling: floor / seconds,
            }
        };
        Ok(KernelReport {
            read: ceilings.read,
            product: ceilings.product,
            rows: times.into_iter().map(row).collect(),
        })
    }
}
