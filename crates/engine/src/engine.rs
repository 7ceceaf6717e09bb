use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock};

use volley_model::{Drafter, Mtp, Target};
use volley_ops::{Batch, Ops};
use volley_speculate::Method;
use volley_speculate::policy::Policy;

use crate::calibrate::calibrate;
#[cfg(feature = "cuda")]
use crate::cuda;
use crate::handle::{EngineThread, Heartbeat, Queue, Shared, Stopped};
use crate::layout::Layout;
use crate::proposers::{DflashProposer, Drafters, MtpProposer, TargetRank};
use crate::ranks::{RankGroup, StepFailure, Waiting, panic_text};
use crate::scheduler::Scheduler;
use crate::warm::warm_up;
use crate::worker::RankWorker;
use crate::{
    DeviceKind, EngineError, EngineHandle, EngineOptions, EngineStats, GpuReport, LinkReport,
    Sources, Stop, cpu,
};

/// Starts engines.
pub struct Engine;

impl Engine {
    /// Loads the models and starts the engine's threads; returns when it can take requests.
    pub fn start(options: EngineOptions, sources: Sources) -> Result<EngineHandle, EngineError> {
        match options.device {
            DeviceKind::Cpu => Self::start_on(cpu::planned(&options, &sources)?, options, sources),
            #[cfg(feature = "cuda")]
            DeviceKind::Cuda => {
                let (ops, options) = cuda::planned(options, &sources)?;
                Self::start_on(ops, options, sources)
            }
            #[cfg(not(feature = "cuda"))]
            DeviceKind::Cuda => Err(without_cuda()),
        }
    }

    /// As [`Engine::start`], on given operations: one for each rank, in rank order.
    pub fn start_on<O: Ops + Send + 'static>(
        ops: Vec<O>,
        options: EngineOptions,
        sources: Sources,
    ) -> Result<EngineHandle, EngineError> {
        let Some(block_size) = ops.first().map(Ops::block_size) else {
            return Err(EngineError::Options(
                "an engine needs at least 1 rank".into(),
            ));
        };
        let layout = Arc::new(Layout::new(&options, &sources, block_size)?);
        let mut ranks = ranks_on(ops, sources, &layout, options.device)?;
        warm(&mut ranks, options.device, &layout, block_size)?;
        let policy = match options.speculation.method {
            Method::Auto => {
                calibrate(&mut ranks, &layout, block_size).map_err(StepFailure::error)?
            }
            _ => Policy::default(),
        };

        let shared = Arc::new(Shared {
            info: layout.info.clone(),
            timed: policy.clone(),
            stats: Mutex::new(EngineStats {
                free_blocks: layout.target.blocks,
                total_blocks: layout.target.blocks,
                ..EngineStats::default()
            }),
            stopped: OnceLock::new(),
            heartbeat: Heartbeat::new(options.stall_limit),
            queue: Queue::new(options.max_waiting),
        });
        let (submissions, incoming) = async_channel::unbounded();
        let scheduler = Scheduler::new(
            ranks,
            incoming,
            Arc::clone(&shared),
            layout.scheduler,
            policy,
        );
        let thread = std::thread::Builder::new()
            .name("volley-engine".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || live(scheduler, &shared)
            })?;
        Ok(EngineHandle {
            submissions,
            shared,
            thread: Arc::new(EngineThread(Mutex::new(Some(thread)))),
        })
    }
}

/// Ranks on the device of the options, loaded, with their layout and tokens per cache block.
pub(crate) fn start_ranks(
    options: &EngineOptions,
    sources: Sources,
) -> Result<(RankGroup, Arc<Layout>, usize), EngineError> {
    fn start<O: Ops + Send + 'static>(
        ops: Vec<O>,
        options: &EngineOptions,
        sources: Sources,
    ) -> Result<(RankGroup, Arc<Layout>, usize), EngineError> {
        let block_size = ops.first().map_or(1, Ops::block_size);
        let layout = Arc::new(Layout::new(options, &sources, block_size)?);
        let mut ranks = ranks_on(ops, sources, &layout, options.device)?;
        warm(&mut ranks, options.device, &layout, block_size)?;
        Ok((ranks, layout, block_size))
    }
    match options.device {
        DeviceKind::Cpu => start(cpu::planned(options, &sources)?, options, sources),
        #[cfg(feature = "cuda")]
        DeviceKind::Cuda => {
            let (ops, options) = cuda::planned(options.clone(), &sources)?;
            start(ops, &options, sources)
        }
        #[cfg(not(feature = "cuda"))]
        DeviceKind::Cuda => Err(without_cuda()),
    }
}

/// Prepares a GPU for its first request.
fn warm(
    ranks: &mut RankGroup,
    device: DeviceKind,
    layout: &Layout,
    block_size: usize,
) -> Result<(), EngineError> {
    match device {
        DeviceKind::Cpu => Ok(()),
        DeviceKind::Cuda => warm_up(ranks, layout, block_size).map_err(StepFailure::error),
    }
}

/// Loads all ranks, each on its own thread.
fn ranks_on<O: Ops + Send + 'static>(
    ops: Vec<O>,
    sources: Sources,
    layout: &Arc<Layout>,
    device: DeviceKind,
) -> Result<RankGroup, EngineError> {
    let sources = Arc::new(sources);
    let load = |ops: O| {
        let (sources, layout) = (Arc::clone(&sources), Arc::clone(layout));
        move || load(ops, &sources, &layout)
    };
    let waiting = match device {
        DeviceKind::Cpu => Waiting::Asleep,
        DeviceKind::Cuda => Waiting::Awake,
    };
    RankGroup::start(ops.into_iter().map(load).collect(), waiting)
}

/// What each GPU of the machine is, with the speed of its memory measured.
pub fn gpus() -> Result<Vec<GpuReport>, EngineError> {
    #[cfg(feature = "cuda")]
    return cuda::gpus();
    #[cfg(not(feature = "cuda"))]
    Err(without_cuda())
}

/// How the machine's GPUs reach each other; none if there is but one.
pub fn links() -> Result<Option<LinkReport>, EngineError> {
    #[cfg(feature = "cuda")]
    return cuda::links();
    #[cfg(not(feature = "cuda"))]
    Err(without_cuda())
}

#[cfg(not(feature = "cuda"))]
pub(crate) fn without_cuda() -> EngineError {
    EngineError::Options("this volley was built without CUDA; build it with --features cuda".into())
}

/// Loads one rank, on its own thread.
pub(crate) fn load<O: Ops + 'static>(
    ops: O,
    sources: &Sources,
    layout: &Layout,
) -> Result<RankWorker<O>, EngineError> {
    let taps = layout.drafter.as_ref().map_or(&[][..], |d| &d.taps);
    let target = Target::load(&ops, &sources.target, taps, layout.target)?;
    let sampling = layout.sampling;
    let slots = layout.target.slots;
    let dflash = match (&layout.drafter, &sources.drafter) {
        (Some(drafter), Some(checkpoint)) => {
            let drafter = Drafter::load(&ops, checkpoint, target.config(), drafter.limits)?;
            let rows = layout.target.verify_rows / layout.scheduler.cache.sequences;
            let reused = layout.scheduler.cache.checkpoints > 0;
            let dflash = DflashProposer::new(&ops, drafter, sampling, slots, rows, reused)?;
            Some(dflash)
        }
        _ => None,
    };
    let mtp = match layout.mtp {
        true => {
            let head = Mtp::load(&ops, &sources.target, target.config(), layout.target)?;
            let main = dflash.is_none();
            Some(MtpProposer::new(&ops, head, sampling, slots, main)?)
        }
        false => None,
    };
    let proposer = Box::new(Drafters { dflash, mtp });
    let rank = TargetRank {
        ops,
        target,
        batch: Batch::default(),
        ids: Vec::new(),
    };
    Ok(RankWorker::new(rank, proposer, sampling, slots))
}

/// The life of the engine thread. However it ends, no request is left waiting.
fn live(mut scheduler: Scheduler, shared: &Shared) {
    let (reason, stop) = match catch_unwind(AssertUnwindSafe(|| scheduler.run())) {
        Ok(Ok(())) => ("it was shut down".to_string(), Stop::Cancelled),
        Ok(Err(reason)) => {
            let text = format!("the engine has stopped: {reason}");
            (reason, Stop::Failed(text))
        }
        Err(panic) => {
            let reason = panic_text(panic);
            let text = format!("the engine has stopped: {reason}");
            (reason, Stop::Failed(text))
        }
    };
    let failed = stop != Stop::Cancelled;
    if failed {
        tracing::error!("the engine stops: {reason}");
    }
    // Nothing else writes it, and only once.
    let _ = shared.stopped.set(Stopped { reason, failed });
    scheduler.stop(&stop);
}
