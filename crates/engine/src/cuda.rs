//! Ranks on NVIDIA GPUs, and what the GPUs are.

use volley_kernels::{Cuda, CudaOps, Limits};

use crate::plan::Room;
use crate::{EngineError, EngineOptions, GpuReport, LinkReport, LinkSpeed, Sources, plan};

/// Operations of all ranks, one on each GPU, and the options with as many cache blocks as the
/// memory holds. Nothing is loaded before the plan has been told and found to fit.
pub(crate) fn planned(
    options: EngineOptions,
    sources: &Sources,
) -> Result<(Vec<CudaOps>, EngineOptions), EngineError> {
    let gpus = ordinals(&options)?;
    let ops = ops(&gpus)?;
    let plan = plan::memory_plan(&options, sources, room(&options, &gpus)?)?;
    tracing::info!("memory: {plan}");
    let options = EngineOptions {
        cache_blocks: Some(plan.blocks),
        ..options
    };
    Ok((ops, options))
}

/// The GPU of each rank.
fn ordinals(options: &EngineOptions) -> Result<Vec<usize>, EngineError> {
    let EngineOptions { ranks, gpus, .. } = options;
    let wrong = |what| Err(EngineError::Options(what));
    if gpus.is_empty() {
        return Ok((0..*ranks).collect());
    }
    if gpus.len() != *ranks {
        return wrong(format!("{} GPUs are named for {ranks} ranks", gpus.len()));
    }
    // The work of two ranks on one GPU waits for each other.
    match (1..*ranks).find(|&i| gpus[..i].contains(&gpus[i])) {
        Some(twice) => wrong(format!("GPU {} is named twice", gpus[twice])),
        None => Ok(gpus.clone()),
    }
}

/// What the fullest GPU of the ranks offers.
fn room(options: &EngineOptions, gpus: &[usize]) -> Result<Room, EngineError> {
    let mut rooms = Vec::new();
    for &ordinal in gpus {
        let report = Cuda::new(ordinal, 1 << 16)?.report()?;
        let used = report.total_bytes - report.free_bytes;
        let share = (report.total_bytes as f64 * options.memory_fraction) as usize;
        rooms.push(Room {
            available: share.saturating_sub(used),
            multiprocessors: report.multiprocessors,
        });
    }
    let fullest = rooms.into_iter().min_by_key(|room| room.available);
    fullest.ok_or_else(|| EngineError::Options("an engine needs at least 1 rank".into()))
}

/// Whether there is a GPU that can compute, and which; why not otherwise.
pub(crate) fn found() -> Result<String, String> {
    let look = || -> Result<String, volley_kernels::Error> {
        let count = Cuda::count()?;
        let name = Cuda::new(0, 1 << 16)?.name()?;
        Ok(match count {
            1 => name,
            count => format!("{name}, one of {count}"),
        })
    };
    look().map_err(|error| error.to_string())
}

/// Operations of a rank on each of these GPUs.
fn ops(gpus: &[usize]) -> Result<Vec<CudaOps>, EngineError> {
    if let &[gpu] = gpus {
        return Ok(vec![CudaOps::new(gpu, Limits::default())?]);
    }
    let (ops, report) = CudaOps::on_gpus(gpus, Limits::default(), true)?;
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

/// How the GPUs reach each other, measured.
pub(crate) fn links() -> Result<Option<LinkReport>, EngineError> {
    let count = Cuda::count()?;
    if count < 2 {
        return Ok(None);
    }
    let open = |ordinal| Cuda::new(ordinal, 1 << 16);
    let gpus: Vec<Cuda> = (0..count).map(open).collect::<Result<_, _>>()?;
    let mut speeds = Vec::new();
    for (from, sender) in gpus.iter().enumerate() {
        for (to, receiver) in gpus.iter().enumerate().filter(|&(to, _)| to != from) {
            let speed = sender.speed_to(receiver)?;
            speeds.push(LinkSpeed { from, to, speed });
        }
    }
    drop(gpus);
    let all: Vec<usize> = (0..count).collect();
    let (_, report) = CudaOps::on_gpus(&all, Limits::default(), true)?;
    Ok(Some(LinkReport {
        speeds,
        sums: report.to_string(),
    }))
}
