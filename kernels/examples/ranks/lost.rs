//! Ranks that stay away, or leave: what the others hear of it, and when.

use std::sync::Arc;
use std::time::{Duration, Instant};

use volley_kernels::{Cuda, CudaOps, Route};
use volley_ops::{Dtype, Ops, Result};

use super::{Buf, Rank, WIDTH, group, on_all};

/// The others hear of a rank that leaves at once.
pub fn left(devices: &[Arc<Cuda>], route: Route) -> Result<f64> {
    let ranks = group(devices, route, Duration::from_secs(3))?;
    let waits = std::thread::scope(|scope| {
        let leave = |rank: Rank| {
            scope.spawn(move || -> Result<Option<f64>> {
                let ops = rank.ops;
                let mut x = ops.alloc(1, WIDTH, Dtype::Activation)?;
                if ops.rank() + 1 == ops.ranks() {
                    std::thread::sleep(Duration::from_millis(200));
                    return Ok(None);
                }
                ops.zero(&mut x, 0..1)?;
                ops.all_reduce(&mut x, 1)?;
                let begun = Instant::now();
                lost(&ops, &x, begun)
            })
        };
        let threads: Vec<_> = ranks.into_iter().map(leave).collect();
        let join = threads.into_iter().map(|t| t.join().expect("no panic"));
        join.collect::<Result<Vec<_>>>()
    })?;
    Ok(waits.into_iter().flatten().fold(0.0, f64::max))
}

/// Seconds since `begun` until the group is known to be lost.
fn lost(ops: &CudaOps, x: &Buf, begun: Instant) -> Result<Option<f64>> {
    match ops.read(x, 0..1) {
        Err(volley_ops::Error::RankLost { .. }) => Ok(Some(begun.elapsed().as_secs_f64())),
        Err(error) => Err(error),
        Ok(_) => Err(volley_ops::Error::Device {
            op: "lost",
            message: "a sum without one of its ranks succeeded".into(),
        }),
    }
}

/// The others hear of a rank that stays away within their patience.
pub fn absent(devices: &[Arc<Cuda>], route: Route) -> Result<f64> {
    let mut ranks = group(devices, route, Duration::from_millis(500))?;
    let waits = on_all(&mut ranks, |rank| {
        let ops = &rank.ops;
        let mut x = ops.alloc(1, WIDTH, Dtype::Activation)?;
        ops.zero(&mut x, 0..1)?;
        ops.all_reduce(&mut x, 1)?;
        ops.read(&x, 0..1)?;
        if ops.rank() + 1 == ops.ranks() {
            std::thread::sleep(Duration::from_secs(2));
            return Ok(None);
        }
        let begun = Instant::now();
        ops.all_reduce(&mut x, 1)?;
        lost(ops, &x, begun)
    })?;
    Ok(waits.into_iter().flatten().fold(0.0, f64::max))
}
