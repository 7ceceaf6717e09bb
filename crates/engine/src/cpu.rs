use candle_core::Device;
use volley_model::{Checkpoint, TargetConfig};
use volley_ops_candle::CandleOps;

use crate::memory::gigabytes;
use crate::{EngineError, EngineOptions, Sources};

/// Operations of `ranks` ranks on the processor.
pub(crate) fn ops(ranks: usize) -> Vec<CandleOps> {
    CandleOps::ranks(ranks, Device::Cpu)
}

/// The same where the options make sense on the processor: no thread is begun for ranks that cannot
/// share the model, or for weights that the machine cannot hold.
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
    let values = |weights: &Checkpoint| weights.tensors().map(|tensor| tensor.len()).sum::<usize>();
    let drafter = sources.drafter.as_ref().map_or(0, values);
    check_memory(4 * (values(&sources.target) + drafter), machine_memory())?;
    let ops = ops(options.ranks).into_iter();
    Ok(match options.ahead {
        true => ops.map(CandleOps::ahead).collect(),
        false => ops.collect(),
    })
}

/// Bytes of memory, where the system tells.
fn machine_memory() -> Option<usize> {
    let told = std::fs::read_to_string("/proc/meminfo").ok()?;
    let total = told
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: usize = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

fn check_memory(weights: usize, memory: Option<usize>) -> Result<(), EngineError> {
    match memory {
        Some(memory) if weights > memory => Err(EngineError::Memory {
            needed: gigabytes(weights),
            plan: format!(
                "its weights in f32, as the processor has them; this machine has {}",
                gigabytes(memory)
            ),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_beyond_the_machine_are_refused() {
        let error = check_memory(108_000_000_000, Some(64_000_000_000)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the model needs 108.00 GB of memory: its weights in f32, as the processor has them; \
             this machine has 64.00 GB"
        );
        assert!(check_memory(64_000_000_000, Some(64_000_000_000)).is_ok());
        assert!(check_memory(usize::MAX, None).is_ok());
        let here = machine_memory();
        assert!(here.is_none_or(|bytes| bytes > 64 << 20), "{here:?}");
    }
}
