//! Every kernel by itself at the shapes of a model. Operands rotate through more memory than the
//! cache holds; a graph of several launches is replayed and the median of many replays taken.

mod attention;
mod clock;
mod gdn;
mod products;
mod rows;

use std::sync::Arc;

use volley_ops::{AttentionDims, AttentionMask, GdnDims};

use crate::cuda::Cuda;
use crate::error::{Error, Result};
use crate::rank::{CudaOps, Limits};
use clock::Clock;

/// Shapes of a target and, where there is one, of its drafter.
#[derive(Clone, Debug)]
pub struct Shapes {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of the feed-forward layer.
    pub intermediate: usize,
    /// Tokens of the head.
    pub vocabulary: usize,
    /// Gated-delta-net layers.
    pub gdn: GdnDims,
    /// Attention layers.
    pub attention: AttentionDims,
    /// Attention of the drafter, with the masks that its layers have.
    pub drafter: Option<(AttentionDims, Vec<AttentionMask>)>,
    /// Rows of a block of drafts with its anchor.
    pub block: usize,
    /// Rows of a prompt chunk.
    pub chunk: usize,
}

/// One kernel at one shape.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelTime {
    /// Operation.
    pub kernel: &'static str,
    /// Rows, widths and context.
    pub case: String,
    /// Median microseconds.
    pub us: f64,
    /// Bytes that it must move.
    pub bytes: usize,
    /// Multiplications and additions that it must do.
    pub flop: usize,
}

/// Ceilings of one GPU, measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceilings {
    /// Bytes per second of a kernel that reads.
    pub read: f64,
    /// Multiplications and additions per second of a large bf16 product.
    pub product: f64,
}

/// Measures the ceilings of GPU `ordinal`, then times the kernels; `tell` hears of each at once.
pub fn time_kernels(
    ordinal: usize,
    shapes: &Shapes,
    tell: &mut dyn FnMut(KernelTime),
) -> Result<Ceilings> {
    let limits = Limits::default();
    let cuda = Arc::new(Cuda::new(ordinal, limits.stage_bytes())?);
    let read = cuda.bandwidth()?.read;
    let failed = |error: volley_ops::Error| Error::Call {
        call: "time_kernels",
        message: error.to_string(),
    };
    let ops = CudaOps::with_driver(cuda.clone(), limits).map_err(failed)?;
    let mut clock = Clock::new(&cuda, &ops, tell);
    let mut run = || {
        let product = products::ceiling(&mut clock)?;
        products::time(&mut clock, shapes)?;
        rows::time(&mut clock, shapes)?;
        gdn::time(&mut clock, shapes)?;
        attention::time(&mut clock, shapes)?;
        Ok(product)
    };
    let product = run().map_err(failed)?;
    Ok(Ceilings { read, product })
}
