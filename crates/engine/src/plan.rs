//! What each rank of a model will hold on its GPU, counted by loading it onto no device.

use std::collections::BTreeMap;
use std::sync::Arc;

use volley_kernels::{CudaOps, Driver, Limits, Planner, Wiring};
use volley_model::{Shard, TargetConfig};
use volley_ops::Ops;

use crate::engine::load;
use crate::layout::{DrafterLayout, Layout};
use crate::{EngineError, EngineOptions, MemoryPlan, Sources};

/// Memory that the driver, the products' workspace and recorded passes take, bytes.
const RESERVE_BYTES: usize = 1 << 30;
/// Cache blocks of a plan that is made to see what else there is.
const TRIAL_BLOCKS: usize = 64;

/// What a GPU offers a rank.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Memory that may be used, bytes.
    pub available: usize,
    /// Multiprocessors, which scratch memory grows with.
    pub multiprocessors: usize,
}

/// What a rank of this engine takes on a GPU, with as many cache blocks as the memory holds; an
/// error with the numbers where one sequence of full length, or the blocks asked for, do not fit.
pub fn memory_plan(
    options: &EngineOptions,
    sources: &Sources,
    room: Room,
) -> Result<MemoryPlan, EngineError> {
    let block_size = planners(1, room.multiprocessors)?.1[0].block_size();
    let layout = Layout::new(options, sources, block_size)?;
    let plan = MemoryPlan {
        available: room.available,
        block_tokens: block_size,
        sequence_blocks: layout.longest_blocks(),
        ..counts(sources, &layout, options.ranks, room.multiprocessors)?
    };
    let plan = plan.fill(options.cache_blocks.unwrap_or(plan.sequence_blocks))?;
    Ok(MemoryPlan {
        blocks: options.cache_blocks.unwrap_or(plan.blocks),
        ..plan
    })
}

/// What a rank of this layout allocates, keys and values by the block.
fn counts(
    sources: &Sources,
    layout: &Layout,
    ranks: usize,
    multiprocessors: usize,
) -> Result<MemoryPlan, EngineError> {
    let both = counted(sources, layout, ranks, multiprocessors)?;
    let alone = Layout {
        drafter: None,
        ..layout.clone()
    };
    let target = counted(sources, &alone, ranks, multiprocessors)?;
    let of = |bytes: &BTreeMap<&str, usize>, what| bytes.get(what).copied().unwrap_or(0);
    let weights = of(&target, "weight");
    let drafter = of(&both, "weight") - weights;
    let config = TargetConfig::read(&sources.target)?;
    let traffic = config.traffic(Shard { rank: 0, ranks })?;
    let states = layout.target.slots * traffic.states_per_sequence;
    let cache = of(&both, "kv");
    let all: usize = both.values().sum();
    Ok(MemoryPlan {
        weights,
        drafter,
        states,
        workspace: all - weights - drafter - states - cache + RESERVE_BYTES,
        block: cache / TRIAL_BLOCKS,
        ..MemoryPlan::default()
    })
}

/// Bytes by what they are for, of the first of `ranks` ranks, loaded onto no device.
fn counted(
    sources: &Sources,
    layout: &Layout,
    ranks: usize,
    multiprocessors: usize,
) -> Result<BTreeMap<&'static str, usize>, EngineError> {
    let mut layout = layout.clone();
    layout.target.blocks = TRIAL_BLOCKS;
    layout.drafter = layout.drafter.map(|drafter| DrafterLayout {
        limits: volley_model::Limits {
            blocks: TRIAL_BLOCKS,
            ..drafter.limits
        },
        ..drafter
    });
    let (planner, mut group) = planners(ranks, multiprocessors)?;
    // The other ranks stay until it is loaded: one that leaves makes it fail.
    drop(load(group.remove(0), sources, &layout)?);
    drop(group);
    Ok(planner.bytes())
}

/// Ranks on no device, and what the first of them counts.
fn planners(
    ranks: usize,
    multiprocessors: usize,
) -> Result<(Arc<Planner>, Vec<CudaOps>), EngineError> {
    let first = Arc::new(Planner::new(multiprocessors));
    let driver: Arc<dyn Driver> = Arc::clone(&first) as _;
    let limits = Limits::default();
    let ops = match ranks {
        1 => vec![CudaOps::with_driver(driver, limits).map_err(volley_model::Error::from)?],
        _ => {
            let others = (1..ranks).map(|_| Arc::new(Planner::new(multiprocessors)) as _);
            let drivers = std::iter::once(driver).chain(others).collect();
            let group = CudaOps::group(drivers, limits, Wiring::default());
            group.map_err(volley_model::Error::from)?
        }
    };
    Ok((first, ops))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use volley_model::Checkpoint;

    use super::*;
    use crate::Speculation;

    fn demo() -> Sources {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo");
        let open = |name: &str| Checkpoint::open(&folder.join(name)).unwrap();
        Sources {
            target: open("target"),
            drafter: Some(open("drafter")),
        }
    }

    fn options(ranks: usize) -> EngineOptions {
        EngineOptions {
            ranks,
            max_model_len: Some(1024),
            speculation: Speculation::dflash(15),
            ..EngineOptions::default()
        }
    }

    const ROOM: Room = Room {
        available: 16 << 30,
        multiprocessors: 132,
    };

    #[test]
    fn two_ranks_hold_half_of_what_is_split() {
        let plan = |ranks| memory_plan(&options(ranks), &demo(), ROOM).unwrap();
        let (one, two) = (plan(1), plan(2));
        // Norms, convolutions and the drafter's projection of the taps are on every rank.
        for (one, two) in [
            (one.weights, two.weights),
            (one.drafter, two.drafter),
            (one.states, two.states),
        ] {
            assert!(2 * two >= one && 10 * two < 8 * one, "{one} and {two}");
        }
        // The one head of keys and values is on both.
        assert_eq!(one.block, two.block);
        assert_eq!(one.sequence_blocks, two.sequence_blocks);
        // The mailboxes of the ranks weigh more than the whole demo pair.
        assert!(two.workspace > one.workspace);
    }

    #[test]
    fn what_does_not_fit_is_told_before_anything_is_loaded() {
        let room = Room {
            available: 1 << 30,
            ..ROOM
        };
        let error = memory_plan(&options(2), &demo(), room).unwrap_err();
        assert!(error.to_string().contains("available 1.07 GB"), "{error}");
        let blocks = EngineOptions {
            cache_blocks: Some(70),
            ..options(1)
        };
        assert_eq!(memory_plan(&blocks, &demo(), ROOM).unwrap().blocks, 70);
    }
}
