//! Products: an own kernel for few rows, the library for the rest, and for few rows whichever is
//! faster on this device.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use volley_ops::Result;

use crate::buf::Memory;
use crate::driver::{Driver, Product};
use crate::error::{self, in_op};
use crate::kernel::{Kernel, LINEAR_8, LINEAR_16, LINEAR_32, LINEAR_64};
use crate::params::{LINEAR_DEPTH, LINEAR_OUT, LinearParams};

/// Most rows of the own kernel.
const MOST_ROWS: usize = 64;
/// Most outputs of the own kernel, in tiles.
const MOST_TILES: usize = 16 * 1024;
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

/// The own kernel for this many rows, and the rows of its tiles.
fn own(rows: usize) -> (Kernel<LinearParams>, usize) {
    match rows {
        0..=8 => (LINEAR_8, 8),
        9..=16 => (LINEAR_16, 16),
        17..=32 => (LINEAR_32, 32),
        _ => (LINEAR_64, MOST_ROWS),
    }
}

impl Linear {
    pub fn new(driver: &Arc<dyn Driver>) -> Result<Self> {
        let op = "linear";
        let most = [8, 16, 32, 64].map(|rows| own(rows).0.resident_blocks(&**driver));
        let blocks = most.into_iter().max().unwrap_or(1);
        let arrivals = Memory::new(driver, op, 4 * MOST_TILES)?;
        driver
            .zero(arrivals.address(), 4 * MOST_TILES)
            .map_err(in_op(op))?;
        Ok(Self {
            driver: Arc::clone(driver),
            wanted: Cell::default(),
            chosen: RefCell::default(),
            partial: Memory::new(driver, op, 2 * blocks * LINEAR_OUT * MOST_ROWS * 4)?,
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
        let fits = p.rows <= MOST_ROWS
            && p.input.is_multiple_of(LINEAR_DEPTH)
            && p.output.div_ceil(LINEAR_OUT) <= MOST_TILES;
        if !fits {
            return Ok(LinearKernel::Library);
        }
        if self.wanted.get() != LinearKernel::Fastest {
            return Ok(self.wanted.get());
        }
        let shape = Shape {
            rows: own(p.rows).1,
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
        let (kernel, _) = own(p.rows);
        let units = p.output.div_ceil(LINEAR_OUT) * (p.input / LINEAR_DEPTH);
        let blocks = kernel.resident_blocks(driver).min(self.blocks).min(units);
        // SAFETY: the caller's promise; `partial` has room for these blocks.
        unsafe { kernel.launch(driver, [blocks, 1, 1], &params) }
    }
}
