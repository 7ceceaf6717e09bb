//! Ranks on NVIDIA GPUs, and what the GPUs are.

use std::collections::BTreeMap;
use std::sync::Arc;

use volley_kernels::{Cuda, CudaOps, Limits, Planner};
use volley_model::{Shard, TargetConfig};
use volley_ops::Ops;

use crate::engine::load;
use crate::layout::{DrafterLayout, Layout};
use crate::{EngineError, EngineOptions, GpuReport, MemoryPlan, Sources};

/// Memory that the driver, the products' workspace and recorded passes take, bytes.
const RESERVE_BYTES: usize = 1 << 30;
/// Cache blocks of a plan that is made to see what else there is.
const TRIAL_BLOCKS: usize = 64;

/// Operations of all ranks, one on each GPU, and the options with as many cache blocks as the
/// memory holds. Nothing is loaded before the plan has been told and found to fit.
pub(crate) fn planned(
    options: EngineOptions,
    sources: &Sources,
) -> Result<(Vec<CudaOps>, EngineOptions), EngineError> {
    let ops = ops(options.ranks)?;
    let block_size = ops.first().map_or(1, Ops::block_size);
    let layout = Layout::new(&options, sources, block_size)?;
    let probe = Cuda::new(0, 1 << 16)?;
    let (free, total) = probe.memory()?;
    let multiprocessors = probe.report()?.multiprocessors;
    drop(probe);
    let mut plan = plan(sources, &layout, options.ranks, multiprocessors)?;
    let used = total - free;
    plan.available = ((total as f64 * options.memory_fraction) as usize).saturating_sub(used);
    plan.block_tokens = block_size;
    let least = match options.cache_blocks {
        Some(blocks) => blocks,
        None => layout.longest_blocks(),
    };
    let mut plan = plan.fill(least)?;
    if let Some(blocks) = options.cache_blocks {
        plan.blocks = blocks;
    }
    tracing::info!("memory: {plan}");
    let options = EngineOptions {
        cache_blocks: Some(plan.blocks),
        ..options
    };
    Ok((ops, options))
}

/// What a rank of this layout allocates, keys and values by the block.
fn plan(
    sources: &Sources,
    layout: &Layout,
    ranks: usize,
    multiprocessors: usize,
) -> Result<MemoryPlan, EngineError> {
    let both = counted(sources, layout, multiprocessors)?;
    let alone = Layout {
        drafter: None,
        ..layout.clone()
    };
    let target = counted(sources, &alone, multiprocessors)?;
    let of = |bytes: &BTreeMap<&str, usize>, what| bytes.get(what).copied().unwrap_or(0);
    let weights = of(&target, "weight");
    let drafter = of(&both, "weight") - weights;
    let config = TargetConfig::read(&sources.target)?;
    let traffic = config.traffic(Shard { rank: 0, ranks })?;
    let states = layout.target.slots * traffic.states_per_sequence;
    let cache = of(&both, "kv");
    let all: usize = both.values().sum();
    Ok(MemoryPlan {
        weights,
        drafter,
        states,
        workspace: all - weights - drafter - states - cache + RESERVE_BYTES,
        block: cache / TRIAL_BLOCKS,
        ..MemoryPlan::default()
    })
}

/// Bytes by what they are for, of a rank that is loaded onto no device.
fn counted(
    sources: &Sources,
    layout: &Layout,
    multiprocessors: usize,
) -> Result<BTreeMap<&'static str, usize>, EngineError> {
    let mut layout = layout.clone();
    layout.target.blocks = TRIAL_BLOCKS;
    layout.drafter = layout.drafter.map(|drafter| DrafterLayout {
        limits: volley_model::Limits {
            blocks: TRIAL_BLOCKS,
            ..drafter.limits
        },
        ..drafter
    });
    let planner = Arc::new(Planner::new(multiprocessors));
    let ops = CudaOps::with_driver(Arc::clone(&planner) as _, Limits::default())
        .map_err(volley_model::Error::from)?;
    drop(load(ops, sources, &layout)?);
    Ok(planner.bytes())
}

/// Operations of `ranks` ranks, one on each GPU.
fn ops(ranks: usize) -> Result<Vec<CudaOps>, EngineError> {
    if ranks == 1 {
        return Ok(vec![CudaOps::new(0, Limits::default())?]);
    }
    let gpus: Vec<usize> = (0..ranks).collect();
    let (ops, report) = CudaOps::on_gpus(&gpus, Limits::default(), true)?;
    tracing::info!("{report}");
    Ok(ops)
}

/// What each GPU is, its memory measured.
pub(crate) fn gpus() -> Result<Vec<GpuReport>, EngineError> {
    let mut gpus = Vec::new();
    for ordinal in 0..Cuda::count()? {
        let cuda = Cuda::new(ordinal, 1 << 16)?;
        let (device, speed) = (cuda.report()?, cuda.bandwidth()?);
        gpus.push(GpuReport {
            name: device.name,
            capability: device.capability,
            driver_cuda: device.driver_cuda,
            total_bytes: device.total_bytes,
            free_bytes: device.free_bytes,
            multiprocessors: device.multiprocessors,
            read_bandwidth: speed.read,
            copy_bandwidth: speed.copy,
        });
    }
    Ok(gpus)
}
