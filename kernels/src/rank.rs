//! One rank on one device: what its operations share.

use std::sync::Arc;

use bytemuck::cast_slice;
use half::bf16;
use half::slice::HalfFloatSliceExt;
use volley_ops::{Dtype, Result};

use crate::buf::{Memory, Weight};
use crate::driver::Driver;
use crate::error::in_op;
use crate::exchange::Exchange;
use crate::linear::{Linear, LinearKernel};
use crate::rows;
use crate::scratch::Scratch;
use crate::tables::PassTables;

/// What is planned at the start; a pass beyond it is refused.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most rows of a pass.
    pub rows: usize,
    /// Most segments of a pass.
    pub segments: usize,
    /// Most cache blocks that the segments of a pass name together.
    pub blocks: usize,
    /// Memory for what an operation leaves to its next kernel, in bytes.
    pub scratch_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rows: 8192,
            segments: 256,
            blocks: 64 * 1024,
            scratch_bytes: 96 << 20,
        }
    }
}

impl Limits {
    /// Bytes of the largest table that is copied to the device for a pass.
    pub fn stage_bytes(self) -> usize {
        PassTables::batch_bytes(self)
    }
}

/// The operations of one rank on one device.
pub struct CudaOps {
    /// First, so that the others stop waiting for a rank that goes.
    pub(crate) exchange: Option<Exchange>,
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) tables: PassTables,
    pub(crate) scratch: Scratch,
    pub(crate) linear: Linear,
}

impl CudaOps {
    /// A rank of its own on GPU `ordinal`.
    #[cfg(feature = "cuda")]
    pub fn new(ordinal: usize, limits: Limits) -> crate::error::Result<Self> {
        let driver = crate::cuda::Cuda::new(ordinal, limits.stage_bytes())?;
        let failed = |error: volley_ops::Error| crate::error::Error::Call {
            call: "CudaOps::new",
            message: error.to_string(),
        };
        Self::with_driver(Arc::new(driver), limits).map_err(failed)
    }

    /// A rank of its own on any device.
    pub fn with_driver(driver: Arc<dyn Driver>, limits: Limits) -> Result<Self> {
        Self::with_exchange(driver, limits, None)
    }

    pub(crate) fn with_exchange(
        driver: Arc<dyn Driver>,
        limits: Limits,
        exchange: Option<Exchange>,
    ) -> Result<Self> {
        Ok(Self {
            exchange,
            tables: PassTables::new(&driver, limits)?,
            scratch: Scratch::new(&driver, limits.scratch_bytes)?,
            linear: Linear::new(&driver)?,
            driver,
        })
    }

    /// A weight of random values between `-scale` and `scale`, made on the device: for measuring a
    /// model of any size without its files.
    pub fn dummy_weight(&self, out: usize, input: usize, seed: u32, scale: f32) -> Result<Weight> {
        let memory = Memory::new(&self.driver, "weight", 2 * out * input)?;
        let weight = Weight { memory, out, input };
        rows::noise(&*self.driver, &weight, seed, scale)?;
        Ok(weight)
    }

    /// Which kernel multiplies few rows; at first whichever is faster for a shape.
    pub fn choose_linear(&self, kernel: LinearKernel) {
        self.linear.choose(kernel);
    }

    /// The device underneath.
    pub fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    /// An error when a collective before the last wait has failed.
    pub(crate) fn check_ranks(&self, op: &'static str) -> Result<()> {
        match &self.exchange {
            Some(exchange) => exchange.check(op),
            None => Ok(()),
        }
    }

    pub(crate) fn write(
        &self,
        op: &'static str,
        to: u64,
        data: &[f32],
        dtype: Dtype,
    ) -> Result<()> {
        let written = match dtype {
            Dtype::F32 => self.driver.write(to, cast_slice(data)),
            Dtype::Activation => {
                let mut narrow = vec![bf16::ZERO; data.len()];
                narrow.convert_from_f32_slice(data);
                self.driver.write(to, cast_slice(&narrow))
            }
        };
        written.map_err(in_op(op))
    }
}
