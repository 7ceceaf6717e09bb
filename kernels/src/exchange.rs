//! Collectives through memory that every rank can write (kernels/cuda/exchange.cu).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use volley_ops::{Error, Result};

use crate::buf::{Buf, Memory};
use crate::dims::{check, check_multiple, refuse, shift};
use crate::driver::{Address, Driver};
use crate::error::in_op;
use crate::kernel::{ALL_GATHER, ALL_REDUCE, Kernel, REDUCE_ADD_RMS_NORM};
use crate::norm::{self, Norm};
use crate::params::{self, AllGatherParams, MOST_RANKS, ReduceParams};

/// Widest row that a block of threads holds.
const MOST_WIDTH: usize = 2 * 640 * 8;
/// Buffers of a mailbox, which take turns.
const BUFFERS: usize = 3;
/// Bytes of `ExchangeState` in exchange.cu.
const STATE_BYTES: usize = 4 * (3 + BUFFERS) + 8;

/// Where the mailboxes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// In the memory of the GPU that reads them; all GPUs can write each other's memory.
    Peer,
    /// In pinned memory of the host, for GPUs that cannot.
    Host,
}

/// How ranks are connected.
#[derive(Clone, Copy, Debug)]
pub struct Wiring {
    /// Where the mailboxes are.
    pub route: Route,
    /// Bytes that a rank sends to another at a time.
    pub slot_bytes: usize,
    /// How long a rank waits for another before the group is given up.
    pub patience: Duration,
}

impl Default for Wiring {
    fn default() -> Self {
        Self {
            route: Route::Peer,
            // 2048 rows of 5120, the chunk of a prompt.
            slot_bytes: 20 << 20,
            patience: Duration::from_secs(3),
        }
    }
}

/// What the ranks share; freed when the last of them is gone.
struct Wires {
    /// By rank.
    mailboxes: Vec<Memory>,
    /// One word of host memory, not zero once a rank has left or given up.
    poison: Memory,
}

impl Wires {
    fn poison(&self) -> &AtomicU32 {
        // SAFETY: a word of host memory that lives as long as this; everyone writes it whole.
        unsafe { AtomicU32::from_ptr(self.poison.address() as *mut u32) }
    }
}

/// One rank's end. Dropping it makes the collectives of the others fail.
pub struct Exchange {
    driver: Arc<dyn Driver>,
    rank: usize,
    ranks: usize,
    wires: Arc<Wires>,
    state: Memory,
    wiring: Wiring,
    /// Most blocks of a collective: what runs at the same time on every rank.
    blocks: usize,
    /// Sums of so many bytes and more are the library's.
    library_from: usize,
}

impl Exchange {
    /// The ends of a group with a rank on each of `drivers`, which can reach the mailboxes where
    /// `wiring` puts them.
    pub fn all(drivers: &[Arc<dyn Driver>], wiring: Wiring) -> Result<Vec<Self>> {
        let (op, ranks) = ("exchange", drivers.len());
        if !(1..=MOST_RANKS).contains(&ranks) {
            let expected = format!("1 to {MOST_RANKS}");
            return refuse(op, "number of ranks", expected, ranks.to_string());
        }
        check_multiple(op, "bytes of a slot", wiring.slot_bytes, 16)?;
        let bytes = BUFFERS * ranks * wiring.slot_bytes;
        let mailbox = |driver| match wiring.route {
            Route::Peer => zeroed(driver, bytes),
            Route::Host => Memory::on_host(driver, op, bytes),
        };
        let wires = Arc::new(Wires {
            mailboxes: drivers.iter().map(mailbox).collect::<Result<_>>()?,
            poison: Memory::on_host(&drivers[0], op, 4)?,
        });
        let resident = |driver: &Arc<dyn Driver>| {
            let driver = &**driver;
            [
                ALL_REDUCE.resident_blocks(driver),
                REDUCE_ADD_RMS_NORM.resident_blocks(driver),
                ALL_GATHER.resident_blocks(driver),
            ]
        };
        let blocks = drivers.iter().flat_map(resident).min().unwrap_or(1);
        let end = |(rank, driver): (usize, &Arc<dyn Driver>)| {
            Ok(Self {
                driver: Arc::clone(driver),
                rank,
                ranks,
                wires: Arc::clone(&wires),
                state: zeroed(driver, STATE_BYTES)?,
                wiring,
                blocks,
                library_from: usize::MAX,
            })
        };
        drivers.iter().enumerate().map(end).collect()
    }

    pub fn rank(&self) -> usize {
        self.rank
    }

    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Leaves sums of so many bytes and more to the library; the same on all ranks.
    pub fn leave_to_library(&mut self, from_bytes: usize) {
        self.library_from = from_bytes;
    }

    /// An error once a rank has left or given up. What collectives before that gave is worthless.
    pub fn check(&self, op: &'static str) -> Result<()> {
        match self.wires.poison().load(Ordering::Relaxed) {
            0 => Ok(()),
            _ => Err(Error::RankLost {
                op,
                rank: self.rank,
                ranks: self.ranks,
            }),
        }
    }

    /// The group is lost: all waiting ends.
    fn give_up(&self) {
        self.wires
            .poison()
            .store(self.rank as u32 + 1, Ordering::Relaxed);
    }

    fn params(&self) -> params::Exchange {
        let mut mailboxes = [0; MOST_RANKS];
        for (address, memory) in mailboxes.iter_mut().zip(&self.wires.mailboxes) {
            *address = memory.address();
        }
        params::Exchange {
            mailboxes,
            state: self.state.address(),
            poison: self.wires.poison.address(),
            patience_ns: self.wiring.patience.as_nanos() as i64,
            rank: self.rank as i32,
            ranks: self.ranks as i32,
            slot_units: (self.wiring.slot_bytes / 16) as i32,
            padding: 0,
        }
    }

    /// Rows of so many bytes that one launch takes.
    fn rows_at_once(&self, op: &'static str, row_bytes: usize) -> Result<usize> {
        match self.wiring.slot_bytes / row_bytes.max(1) {
            0 => {
                let expected = format!("at most {}", self.wiring.slot_bytes);
                refuse(op, "bytes of a row", expected, row_bytes.to_string())
            }
            rows => Ok(rows),
        }
    }

    fn reduce(
        &self,
        op: &'static str,
        kernel: &Kernel<ReduceParams>,
        rows: usize,
        mut params: ReduceParams,
    ) -> Result<()> {
        let width = params.width as usize;
        check_multiple(op, "width", width, 8)?;
        if width > MOST_WIDTH {
            return refuse(
                op,
                "width",
                format!("at most {MOST_WIDTH}"),
                width.to_string(),
            );
        }
        self.check(op)?;
        let (driver, blocks) = (&*self.driver, self.blocks);
        let most = self.rows_at_once(op, 2 * width)?;
        for first in (0..rows).step_by(most) {
            let rows = most.min(rows - first);
            params.rows = rows as i32;
            // SAFETY: the callers checked all buffers; the blocks all run at the same time.
            unsafe { kernel.launch(driver, [blocks.min(rows), 1, 1], &params) }
                .map_err(in_op(op))?;
            let bytes = (2 * rows * width) as Address;
            params.x += bytes;
            params.out += bytes;
            if params.residual != 0 {
                params.residual += bytes;
            }
        }
        Ok(())
    }

    /// Sum over the ranks, in place, of the first `rows` rows, bf16.
    pub fn all_reduce(&self, x: &Buf, rows: usize) -> Result<()> {
        let op = "all_reduce";
        let x_address = x.activation(op, "x", rows, x.width())?;
        if 2 * rows * x.width() >= self.library_from {
            self.check(op)?;
            // SAFETY: the buffer was checked; the ranks run the same passes.
            let summed = unsafe { self.driver.library_reduce(x_address, rows * x.width()) };
            return summed.map_err(in_op(op));
        }
        let params = ReduceParams {
            exchange: self.params(),
            x: x_address,
            residual: 0,
            weight: 0,
            out: x_address,
            rows: 0,
            width: x.width() as i32,
            weight_f32: 0,
            shift: 0.0,
            eps: 0.0,
            padding: 0,
        };
        self.reduce(op, &ALL_REDUCE, rows, params)
    }

    /// `residual += delta` summed over the ranks, in f32 and rounded once; `out` is its norm.
    pub fn reduce_add_rms_norm(
        &self,
        delta: &Buf,
        rows: usize,
        residual: &Buf,
        norm: Norm,
        out: &Buf,
    ) -> Result<()> {
        let (op, width) = ("reduce_add_rms_norm", residual.width());
        if 2 * rows * width >= self.library_from {
            self.all_reduce(delta, rows)?;
            return norm::add_rms_norm(&*self.driver, delta, rows, residual, norm, out);
        }
        let params = ReduceParams {
            exchange: self.params(),
            x: delta.activation(op, "delta", rows, width)?,
            residual: residual.activation(op, "residual", rows, width)?,
            weight: norm.weight.any(op, "w", 1, width)?,
            out: out.activation(op, "out", rows, width)?,
            rows: 0,
            width: width as i32,
            weight_f32: i32::from(norm.weight.f32()),
            shift: shift(norm.kind),
            eps: norm.eps,
            padding: 0,
        };
        self.reduce(op, &REDUCE_ADD_RMS_NORM, rows, params)
    }

    /// The ranks' columns side by side, bit for bit but for the NaN of all ones, which becomes
    /// another NaN.
    pub fn all_gather(&self, x: &Buf, rows: usize, out: &Buf) -> Result<()> {
        let op = "all_gather";
        check(op, "width of out", out.width(), self.ranks * x.width())?;
        check_multiple(op, "bytes of a row", x.row_bytes(), 4)?;
        let mut params = AllGatherParams {
            exchange: self.params(),
            x: x.any(op, "x", rows, x.width())?,
            out: out.view(op, "out", rows, out.width(), x.dtype())?,
            rows: 0,
            words: (x.row_bytes() / 4) as i32,
        };
        if x.row_bytes() == 0 {
            return Ok(());
        }
        self.check(op)?;
        let driver = &*self.driver;
        let blocks = self.blocks;
        let most = self.rows_at_once(op, x.row_bytes())?;
        for first in (0..rows).step_by(most) {
            let rows = most.min(rows - first);
            params.rows = rows as i32;
            let wanted = (rows * x.row_bytes()).div_ceil(4 * 640);
            // SAFETY: both buffers were checked; the blocks all run at the same time.
            unsafe { ALL_GATHER.launch(driver, [blocks.min(wanted), 1, 1], &params) }
                .map_err(in_op(op))?;
            params.x += (rows * x.row_bytes()) as Address;
            params.out += (rows * out.row_bytes()) as Address;
        }
        Ok(())
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.give_up();
        // No kernel of this rank may write to the others' mailboxes once they are freed. A failure
        // means that the device is lost, and its kernels with it.
        _ = self.driver.read(self.state.address(), &mut [0; 4]);
    }
}

/// Device memory that is zero before anyone else sees it.
fn zeroed(driver: &Arc<dyn Driver>, bytes: usize) -> Result<Memory> {
    let op = "exchange";
    let memory = Memory::new(driver, op, bytes)?;
    let zero = || {
        driver.zero(memory.address(), bytes)?;
        driver.read(memory.address(), &mut [0; 4])
    };
    zero().map_err(in_op(op))?;
    Ok(memory)
}
