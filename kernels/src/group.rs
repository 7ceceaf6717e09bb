//! Ranks that share the weights, a GPU each: made, tested, and timed to choose the path of sums.

use std::sync::Arc;

use volley_ops::{Dtype, Error, NormKind, Ops, Result};

use crate::buf::Buf;
use crate::driver::Driver;
use crate::error::in_op;
use crate::exchange::{Exchange, Route, Wiring};
use crate::rank::{CudaOps, Limits};

/// Width of the rows that are timed: the hidden size of Qwen3.6-27B.
const TIMED_WIDTH: usize = 5120;
/// Rows that are timed: a decoded token, a verified block, many sequences, a chunk of a prompt.
const TIMED_ROWS: [usize; 5] = [1, 16, 64, 512, 2048];
/// Repetitions of a timed sum.
const REPETITIONS: usize = 20;

/// What one sum over the ranks, with residual and norm, takes on the slowest rank.
#[derive(Clone, Copy, Debug)]
pub struct ReduceTime {
    /// Rows of 5120 bf16.
    pub rows: usize,
    /// Microseconds through the mailboxes.
    pub mailbox_us: f32,
    /// Microseconds by NCCL and a norm, where it is there.
    pub library_us: Option<f32>,
}

/// How the ranks of a group reach each other, and why.
#[derive(Clone, Debug)]
pub struct GroupReport {
    /// Where the mailboxes are.
    pub route: Route,
    /// Sums of so many rows and more are NCCL's.
    pub library_from_rows: Option<usize>,
    /// What the choice rests on.
    pub times: Vec<ReduceTime>,
}

impl std::fmt::Display for GroupReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let route = match self.route {
            Route::Peer => "GPUs write each other's memory",
            Route::Host => "through the host's memory, as the GPUs cannot reach each other's",
        };
        write!(f, "sums over the ranks: {route}")?;
        match self.library_from_rows {
            Some(rows) => write!(f, "; NCCL from {rows} rows on")?,
            None if self.times.iter().any(|time| time.library_us.is_some()) => {
                write!(f, "; NCCL is no faster")?;
            }
            None => write!(f, "; NCCL was not tried")?,
        }
        for time in &self.times {
            write!(f, "; {} rows {:.1} us", time.rows, time.mailbox_us)?;
            if let Some(library) = time.library_us {
                write!(f, " (NCCL {library:.1})")?;
            }
        }
        Ok(())
    }
}

impl CudaOps {
    /// A rank on each of these GPUs, tested, with the faster path of sums chosen by size. NCCL is
    /// tried only if `try_nccl`, which takes a second or two.
    #[cfg(feature = "cuda")]
    pub fn on_gpus(
        ordinals: &[usize],
        limits: Limits,
        try_nccl: bool,
    ) -> crate::error::Result<(Vec<Self>, GroupReport)> {
        use crate::cuda::Cuda;
        use crate::error::Error;
        let failed = |error: volley_ops::Error| Error::Call {
            call: "CudaOps::on_gpus",
            message: error.to_string(),
        };
        let open = |&ordinal| Cuda::new(ordinal, limits.stage_bytes()).map(Arc::new);
        let devices: Vec<_> = ordinals
            .iter()
            .map(open)
            .collect::<crate::error::Result<_>>()?;
        let route = Cuda::connect(&devices)?;
        if try_nccl {
            match Cuda::join_nccl(&devices) {
                Ok(()) | Err(Error::MissingLibrary { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let wiring = Wiring {
            route,
            ..Wiring::default()
        };
        let drivers = devices.into_iter().map(|device| device as Arc<dyn Driver>);
        let mut ranks = Self::group(drivers.collect(), limits, wiring).map_err(failed)?;
        Self::self_test(&mut ranks).map_err(failed)?;
        let report = Self::choose_path(&mut ranks, route).map_err(failed)?;
        Ok((ranks, report))
    }

    /// Times sums over the ranks, and leaves those that NCCL does faster to it.
    pub fn choose_path(ranks: &mut [Self], route: Route) -> Result<GroupReport> {
        let measured = Self::on_all(ranks, Self::time_sums)?;
        let slowest = |i: usize| {
            let ranks = measured.iter().map(|rank: &Vec<ReduceTime>| rank[i]);
            ranks.reduce(|a, b| ReduceTime {
                rows: a.rows,
                mailbox_us: a.mailbox_us.max(b.mailbox_us),
                library_us: a.library_us.zip(b.library_us).map(|(a, b)| a.max(b)),
            })
        };
        let times: Vec<ReduceTime> = (0..TIMED_ROWS.len()).filter_map(slowest).collect();
        let mailboxes_win = |time: &ReduceTime| {
            time.library_us
                .is_none_or(|library| time.mailbox_us <= library)
        };
        // From the size on from which NCCL wins at every size.
        let last = times.iter().rposition(mailboxes_win);
        let first = last.map_or(0, |last| last + 1);
        let library_from_rows = times.get(first).map(|time| time.rows);
        if let Some(rows) = library_from_rows {
            for rank in ranks {
                rank.leave_to_library(2 * rows * TIMED_WIDTH);
            }
        }
        Ok(GroupReport {
            route,
            library_from_rows,
            times,
        })
    }

    fn time_sums(&mut self) -> Result<Vec<ReduceTime>> {
        let most = TIMED_ROWS.into_iter().max().unwrap_or(1);
        let alloc = || self.alloc(most, TIMED_WIDTH, Dtype::Activation);
        let (mut delta, mut residual, mut out) = (alloc()?, alloc()?, alloc()?);
        self.zero(&mut delta, 0..most)?;
        self.zero(&mut residual, 0..most)?;
        let w = self.upload(&[0.0; TIMED_WIDTH], 1, TIMED_WIDTH, Dtype::F32)?;
        // Milliseconds of so many sums.
        let mut take = |ops: &Self, rows: usize, count: usize| -> Result<f32> {
            let mut failure = None;
            let ms = ops.driver().time(&mut || {
                let mut sums = (0..count).map(|_| {
                    let kind = NormKind::ZeroCentred;
                    let (delta, residual, out) = (&mut delta, &mut residual, &mut out);
                    ops.reduce_add_rms_norm(delta, rows, residual, &w, kind, 1e-6, out)
                });
                failure = sums.find_map(Result::err);
                Ok(())
            });
            match failure {
                Some(error) => Err(error),
                None => ms.map_err(in_op("time_sums")),
            }
        };
        let mut time = |ops: &Self, rows: usize| -> Result<f32> {
            take(ops, rows, 1)?;
            Ok(1e3 * take(ops, rows, REPETITIONS)? / REPETITIONS as f32)
        };
        let mut times = Vec::new();
        for rows in TIMED_ROWS {
            let mailbox_us = time(self, rows)?;
            let library = self.driver().has_library_reduce();
            self.leave_to_library(if library { 0 } else { usize::MAX });
            let library_us = match library {
                true => Some(time(self, rows)?),
                false => None,
            };
            self.leave_to_library(usize::MAX);
            times.push(ReduceTime {
                rows,
                mailbox_us,
                library_us,
            });
        }
        Ok(times)
    }

    /// Leaves sums of so many bytes and more to NCCL; the same on all ranks.
    pub fn leave_to_library(&mut self, from_bytes: usize) {
        if let Some(exchange) = &mut self.exchange {
            exchange.leave_to_library(from_bytes);
        }
    }

    /// What `run` gives on each rank, all at the same time.
    fn on_all<T: Send>(
        ranks: &mut [Self],
        run: impl Fn(&mut Self) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let results = std::thread::scope(|scope| {
            let run = &run;
            let spawn = |rank| scope.spawn(move || run(rank));
            let threads: Vec<_> = ranks.iter_mut().map(spawn).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<T>>| {
                let joined = thread.join();
                joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect::<Vec<_>>()
        });
        results.into_iter().collect()
    }

    /// The ranks of one tensor-parallel group on `drivers`, each to be moved to a thread of its own.
    /// When one is dropped, the collectives of the others return [`Error::RankLost`].
    pub fn group(
        drivers: Vec<Arc<dyn Driver>>,
        limits: Limits,
        wiring: Wiring,
    ) -> Result<Vec<Self>> {
        let exchanges = Exchange::all(&drivers, wiring)?;
        let ranks = drivers.into_iter().zip(exchanges);
        ranks
            .map(|(driver, exchange)| Self::with_exchange(driver, limits, Some(exchange)))
            .collect()
    }

    /// Sums and gathers known numbers on all ranks of a group; an error when one comes out wrong.
    pub fn self_test(ranks: &mut [Self]) -> Result<()> {
        Self::on_all(ranks, Self::test_collectives).map(drop)
    }

    /// This rank's part of [`CudaOps::self_test`].
    pub fn test_collectives(&mut self) -> Result<()> {
        let cases = [1, 16, 3, 33, 1].map(|rows| Known::new(self, rows));
        for case in cases.into_iter().collect::<Result<Vec<_>>>()?.iter_mut() {
            case.check(self)?;
        }
        Ok(())
    }

    fn expect(&self, op: &'static str, got: &[f32], expected: &[f32]) -> Result<()> {
        let wrong = got.iter().zip(expected).position(|(got, want)| got != want);
        let Some(i) = wrong else { return Ok(()) };
        Err(Error::Device {
            op,
            message: format!(
                "self-test: value {i} on rank {} is {}, expected {}",
                self.rank(),
                got[i],
                expected[i]
            ),
        })
    }
}

/// Known numbers of a rank, and room for what becomes of them.
struct Known {
    rows: usize,
    x: Buf,
    delta: Buf,
    residual: Buf,
    w: Buf,
    out: Buf,
    wide: Buf,
    all: Buf,
}

impl Known {
    const WIDTH: usize = 1024;

    fn new(ops: &CudaOps, rows: usize) -> Result<Self> {
        let own = Self::part(ops.rank(), rows);
        let upload = |data: &[f32], dtype| ops.upload(data, rows, Self::WIDTH, dtype);
        Ok(Self {
            rows,
            x: upload(&own, Dtype::Activation)?,
            delta: upload(&own, Dtype::Activation)?,
            residual: upload(&vec![2.0; rows * Self::WIDTH], Dtype::Activation)?,
            w: ops.upload(&[0.0; Self::WIDTH], 1, Self::WIDTH, Dtype::F32)?,
            out: ops.alloc(rows, Self::WIDTH, Dtype::Activation)?,
            wide: upload(&own, Dtype::F32)?,
            all: ops.alloc(rows, ops.ranks() * Self::WIDTH, Dtype::F32)?,
        })
    }

    /// What a rank holds. Sums over the ranks are exact in bf16.
    fn part(rank: usize, rows: usize) -> Vec<f32> {
        let value = |i: usize| ((i * 7 + rank * 13) % 29) as f32 - 14.0;
        (0..rows * Self::WIDTH).map(|i| value(i + rows)).collect()
    }

    fn check(&mut self, ops: &CudaOps) -> Result<()> {
        let rows = self.rows;
        let parts: Vec<Vec<f32>> = (0..ops.ranks()).map(|r| Self::part(r, rows)).collect();
        let sum = |i| parts.iter().map(|part| part[i]).sum();
        let sums: Vec<f32> = (0..rows * Self::WIDTH).map(sum).collect();

        ops.all_reduce(&mut self.x, rows)?;
        ops.expect("all_reduce", &ops.read(&self.x, 0..rows)?, &sums)?;

        let kind = NormKind::ZeroCentred;
        let (delta, residual) = (&mut self.delta, &mut self.residual);
        ops.reduce_add_rms_norm(delta, rows, residual, &self.w, kind, 1e-6, &mut self.out)?;
        let moved: Vec<f32> = sums.iter().map(|x| x + 2.0).collect();
        let found = ops.read(residual, 0..rows)?;
        ops.expect("reduce_add_rms_norm", &found, &moved)?;

        ops.all_gather(&self.wide, rows, &mut self.all)?;
        let rows_of = |row: usize| {
            let parts = parts.iter();
            parts.flat_map(move |part| &part[row * Self::WIDTH..][..Self::WIDTH])
        };
        let side_by_side: Vec<f32> = (0..rows).flat_map(rows_of).copied().collect();
        ops.expect("all_gather", &ops.read(&self.all, 0..rows)?, &side_by_side)
    }
}
