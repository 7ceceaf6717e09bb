//! Requests in, tokens out: scheduler, step loop and ranks.
//!
//! The engine thread ([`Engine::start`]) takes requests in order and plans steps; the threads of
//! the ranks run each plan, all the same one: prefill, or draft, verify, sample and commit. On
//! equal logits they come to equal tokens, so nothing is broadcast.

mod api;
mod calibrate;
mod control;
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod drafting;
mod engine;
mod handle;
mod kernels;
mod layout;
mod logits;
mod memory;
mod meter;
mod options;
mod pace;
mod plan;
mod proposers;
mod ranks;
mod running;
mod schedule;
mod scheduler;
mod sequence;
mod stats;
mod step;
mod trajectory;
mod trial;
mod warm;
mod worker;

pub use api::{
    CacheMiss, EngineError, EngineInfo, Request, RequestUpdate, SpeculateOptions, Stop, Terminal,
    Usage,
};
pub use control::{ClosedBy, Control, RepetitionRule, Thinking};
pub use engine::{Engine, gpus, links};
pub use handle::EngineHandle;
pub use kernels::{KernelReport, KernelRow, time_kernels};
pub use memory::{GpuReport, LinkReport, LinkSpeed, MemoryPlan};
pub use meter::{Meter, MeterCase, MeterSource, Metered};
pub use options::{DeviceKind, EngineOptions, Sources, Speculation};
pub use plan::{Room, memory_plan};
pub use stats::{DraftStats, EngineStats, MethodSteps};
pub use trajectory::{Marginals, marginals};
pub use volley_cache::Miss;
