//! [`volley_ops::Ops`] on NVIDIA GPUs, one rank on each: own kernels, cuBLASLt for the large products.
//!
//! Activations and caches are bf16, states and gates f32. All work of a rank goes through one
//! stream; operations neither allocate nor wait, except that a product of a new shape is timed once.
//! With the feature `emulate` the same kernels run on the CPU, thread by thread, for tests.

mod attention;
mod attention_plan;
mod batch;
#[cfg(feature = "cuda")]
mod bench;
mod buf;
mod dims;
mod draw;
mod driver;
mod edit;
#[cfg(feature = "emulate")]
mod emulated;
mod error;
mod exchange;
mod gdn;
mod gdn_prefill;
mod group;
mod grow;
mod kernel;
mod linear;
mod norm;
mod ops;
mod params;
mod planner;
mod rank;
mod recorded;
mod rows;
mod scratch;
mod tables;
mod top;
mod upload;
mod walk;

#[cfg(feature = "cuda")]
mod cuda;

#[cfg(feature = "cuda")]
pub use bench::{Ceilings, KernelTime, Shapes, time_kernels};
pub use buf::{Buf, Kv, Weight};
#[cfg(feature = "cuda")]
pub use cuda::{Bandwidth, Cuda, DeviceReport, Graph, load_libraries};
pub use driver::{Driver, Reading, Recording};
#[cfg(feature = "emulate")]
pub use emulated::Emulated;
pub use error::{Error, Result};
pub use exchange::{Route, Wiring};
pub use group::{GroupReport, ReduceTime};
pub use kernel::KERNELS;
pub use linear::LinearKernel;
pub use planner::Planner;
pub use rank::{CudaOps, Limits};
pub use recorded::Recorded;
