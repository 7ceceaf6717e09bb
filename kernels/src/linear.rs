//! Products: an own kernel for few rows, the library for the rest, and for few rows whichever is
//! faster on this device.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use volley_ops::Result;

use crate::buf::Memory;
use crate::driver::{Driver, Product};
use crate::error::{self, in_op};
use crate::kernel::{
    GATED_LINEAR_8, GATED_LINEAR_16, GATED_LINEAR_32, Kernel, LINEAR_8, LINEAR_16, LINEAR_32,
    LINEAR_64,
};
use crate::params::{LINEAR_DEPTH, LINEAR_OUT, LINEAR_WIDE_OUT, LinearParams};

/// Most rows of the own kernel.
const MOST_ROWS: usize = 64;
/// Most outputs of the own kernel, in tiles.
const MOST_TILES: usize = 16 * 1024;
/// Most rows of the own kernel where kernels overlap: alone it is no faster than the library, but in
/// a step it loads its first weights while the kernels ahead still run.
const OVERLAPPED_ROWS: usize = 32;
/// Where one in so many blocks would be idle at most, each takes a whole tile, and no sums are exchanged.
const IDLE_BLOCKS: usize = 32;
/// Repetitions that are timed, after a first one.
const REPETITIONS: usize = 3;

/// Which kernel multiplies few rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinearKernel {
    /// Timed once per shape.
    #[default]
    Fastest,
    /// The own kernel wherever it fits the shape.
    Own,
    /// cuBLASLt.
    Library,
}

#[derive(PartialEq, Eq, Hash)]
struct Shape {
    rows: usize,
    input: usize,
    output: usize,
    out_f32: bool,
}

pub struct Linear {
    driver: Arc<dyn Driver>,
    wanted: Cell<LinearKernel>,
    chosen: RefCell<HashMap<Shape, LinearKernel>>,
    partial: Memory,
    arrivals: Memory,
    /// Blocks that `partial` has room for.
    blocks: usize,
}

/// An own kernel.
struct Own {
    kernel: Kernel<LinearParams>,
    /// Most rows.
    rows: usize,
    /// Outputs of a tile.
    out: usize,
}

impl Own {
    /// For this many rows.
    fn new(rows: usize) -> Self {
        let (kernel, rows, out) = match rows {
            0..=8 => (LINEAR_8, 8, LINEAR_OUT),
            9..=16 => (LINEAR_16, 16, LINEAR_OUT),
            17..=32 => (LINEAR_32, 32, LINEAR_WIDE_OUT),
            _ => (LINEAR_64, MOST_ROWS, LINEAR_OUT),
        };
        Self { kernel, rows, out }
    }

    /// As before, gated; at most [`OVERLAPPED_ROWS`].
    fn gated(rows: usize) -> Self {
        let kernel = match rows {
            0..=8 => GATED_LINEAR_8,
            9..=16 => GATED_LINEAR_16,
            _ => GATED_LINEAR_32,
        };
        Self {
            kernel,
            ..Self::new(rows)
        }
    }

    fn fits(&self, p: &Product) -> bool {
        p.rows <= self.rows
            && p.input.is_multiple_of(LINEAR_DEPTH)
            && p.output.div_ceil(self.out) <= MOST_TILES
    }

    /// Whether it is taken without being timed.
    fn overlaps(&self, driver: &dyn Driver) -> bool {
        self.rows <= OVERLAPPED_ROWS && self.kernel.overlaps(driver)
    }
}

impl Linear {
    pub fn new(driver: &Arc<dyn Driver>) -> Result<Self> {
        let op = "linear";
        let (mut blocks, mut partial) = (1, 1);
        for own in [8, 16, 32, 64].map(Own::new) {
            let resident = own.kernel.resident_blocks(&**driver);
            blocks = blocks.max(resident);
            partial = partial.max(resident * own.out * own.rows);
        }
        let arrivals = Memory::new(driver, op, 4 * MOST_TILES)?;
        driver
            .zero(arrivals.address(), 4 * MOST_TILES)
            .map_err(in_op(op))?;
        Ok(Self {
            driver: Arc::clone(driver),
            wanted: Cell::default(),
            chosen: RefCell::default(),
            partial: Memory::new(driver, op, 4 * partial)?,
            arrivals,
            blocks,
        })
    }

    pub fn choose(&self, kernel: LinearKernel) {
        self.wanted.set(kernel);
    }

    /// # Safety
    /// The addresses are live and large enough for the shape.
    pub unsafe fn multiply(&self, product: &Product) -> error::Result<()> {
        // SAFETY: the caller's promise.
        unsafe {
            match self.kernel_for(product)? {
                LinearKernel::Own => self.multiply_own(product),
                _ => self.driver.multiply(product),
            }
        }
    }

    unsafe fn kernel_for(&self, p: &Product) -> error::Result<LinearKernel> {
        let own = Own::new(p.rows);
        if !own.fits(p) {
            return Ok(LinearKernel::Library);
        }
        if self.wanted.get() != LinearKernel::Fastest {
            return Ok(self.wanted.get());
        }
        if own.overlaps(&*self.driver) {
            return Ok(LinearKernel::Own);
        }
        let shape = Shape {
            rows: own.rows,
            input: p.input,
            output: p.output,
            out_f32: p.out_f32,
        };
        if let Some(kernel) = self.chosen.borrow().get(&shape) {
            return Ok(*kernel);
        }
        // SAFETY: the caller's promise.
        let own = self.time(|| unsafe { self.multiply_own(p) })?;
        // SAFETY: the caller's promise.
        let library = self.time(|| unsafe { self.driver.multiply(p) })?;
        let kernel = if own < library {
            LinearKernel::Own
        } else {
            LinearKernel::Library
        };
        self.chosen.borrow_mut().insert(shape, kernel);
        Ok(kernel)
    }

    fn time(&self, run: impl Fn() -> error::Result<()>) -> error::Result<f32> {
        run()?;
        self.driver
            .time(&mut || (0..REPETITIONS).try_for_each(|_| run()))
    }

    unsafe fn multiply_own(&self, p: &Product) -> error::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.launch(&Own::new(p.rows), p) }
    }

    /// Whether [`Linear::multiply_gated`] takes this product and is the better choice.
    pub fn gates(&self, p: &Product) -> bool {
        let own = Own::gated(p.rows);
        let fits = p.rows <= OVERLAPPED_ROWS && own.fits(p) && p.output.is_multiple_of(own.out);
        fits && match self.wanted.get() {
            LinearKernel::Own => true,
            LinearKernel::Fastest => own.overlaps(&*self.driver),
            LinearKernel::Library => false,
        }
    }

    /// `silu(g) * u` for the halves `[g | u]` of the product, into an `out` of half its width.
    ///
    /// # Safety
    /// The addresses are live and large enough for the shape, for which [`Linear::gates`].
    pub unsafe fn multiply_gated(&self, p: &Product) -> error::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.launch(&Own::gated(p.rows), p) }
    }

    unsafe fn launch(&self, own: &Own, p: &Product) -> error::Result<()> {
        let params = LinearParams {
            x: p.x,
            w: p.w,
            out: p.out,
            partial: self.partial.address(),
            arrivals: self.arrivals.address(),
            rows: p.rows as i32,
            input: p.input as i32,
            output: p.output as i32,
            out_f32: i32::from(p.out_f32),
        };
        let driver = &*self.driver;
        let tiles = p.output.div_ceil(own.out);
        let resident = own.kernel.resident_blocks(driver);
        let blocks = resident
            .min(self.blocks)
            .min(tiles * (p.input / LINEAR_DEPTH));
        let idle = blocks.saturating_sub(tiles);
        let blocks = match tiles <= blocks && IDLE_BLOCKS * idle <= blocks {
            true => tiles,
            false => blocks,
        };
        // SAFETY: the caller's promise; `partial` has room for these blocks.
        unsafe { own.kernel.launch(driver, [blocks, 1, 1], &params) }
    }
}
