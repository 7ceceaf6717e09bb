//! Which kernel works attention out, into how many parts its keys are split, and their sum.

use volley_ops::{AttentionDims, AttentionMask};

use crate::driver::Driver;
use crate::error::Result;
use crate::kernel::{
    ATTENTION_128, ATTENTION_256, ATTENTION_BLOCK_128, ATTENTION_FEW_128, ATTENTION_FEW_256,
    ATTENTION_MERGE_128, ATTENTION_MERGE_256, ATTENTION_TREE_256, ATTENTION_WIDE, Kernel,
};
use crate::params::{
    ATTENTION_FEW_KEYS, ATTENTION_FEW_ROWS_128, ATTENTION_FEW_ROWS_256, ATTENTION_ROWS,
    ATTENTION_TREE_ROWS_256, ATTENTION_WIDE_KEYS, ATTENTION_WIDE_ROWS, AttentionParams, MERGE_FEW,
    MERGE_LINES, MERGE_THREADS, MOST_SPLITS, TREE_ROWS,
};
use crate::tables::Pass;

/// Rows from which on, or tokens beyond which, the wide kernel is faster for a prompt.
const WIDE_ROWS: usize = 256;
const WIDE_TOKENS: usize = 1024;
/// Tiles of keys per multiprocessor up to which small tiles of rows are faster than large ones, which read
/// the keys less often.
const SMALL_TILES: usize = 3;
/// The same of middle-sized tiles, where there is no kernel for prompts that could take the rows.
const MIDDLE_TILES: usize = 6;
/// Blocks per multiprocessor that splitting aims at.
const BLOCKS_PER_MULTIPROCESSOR: usize = 2;

/// A kernel with the packed rows and the keys that it takes at a time.
struct Tile {
    kernel: Kernel<AttentionParams>,
    rows: usize,
    keys: usize,
    /// Whether its parts are merged even if there is one.
    merged: bool,
}

const fn tile(kernel: Kernel<AttentionParams>, rows: usize, keys: usize, merged: bool) -> Tile {
    Tile {
        kernel,
        rows,
        keys,
        merged,
    }
}

const FEW_128: Tile = tile(
    ATTENTION_FEW_128,
    ATTENTION_FEW_ROWS_128,
    ATTENTION_FEW_KEYS,
    true,
);
const FEW_256: Tile = tile(
    ATTENTION_FEW_256,
    ATTENTION_FEW_ROWS_256,
    ATTENTION_FEW_KEYS,
    true,
);
const TREE_256: Tile = tile(
    ATTENTION_TREE_256,
    ATTENTION_TREE_ROWS_256,
    ATTENTION_FEW_KEYS,
    true,
);
const BLOCK_128: Tile = tile(
    ATTENTION_BLOCK_128,
    ATTENTION_ROWS,
    ATTENTION_FEW_KEYS,
    true,
);
const WIDE: Tile = tile(
    ATTENTION_WIDE,
    ATTENTION_WIDE_ROWS,
    ATTENTION_WIDE_KEYS,
    false,
);
const ANY_128: Tile = tile(ATTENTION_128, ATTENTION_ROWS, 64, false);
const ANY_256: Tile = tile(ATTENTION_256, ATTENTION_ROWS, 32, false);

/// By the shape of a pass, so that the machine is full.
pub struct Plan {
    pub kernel: Kernel<AttentionParams>,
    /// Tiles of packed rows of the longest segment.
    pub row_tiles: usize,
    /// Parts of the keys.
    pub splits: usize,
    /// Whether they are merged.
    pub merged: bool,
}

impl Plan {
    /// `room` is the number of parts per row and head that the scratch memory holds.
    pub fn new(
        driver: &dyn Driver,
        dims: AttentionDims,
        mask: AttentionMask,
        pass: &Pass,
        room: usize,
    ) -> Self {
        let facts = pass.facts;
        let seen = mask.window.map_or(facts.tokens, |window| {
            facts.tokens.min(window + facts.longest)
        });
        let pairs = facts.longest * (dims.heads / dims.kv_heads);
        let blocks =
            |tile: &Tile| (pairs.div_ceil(tile.rows) * dims.kv_heads * facts.segments).max(1);
        let few = facts.longest <= TREE_ROWS && room > 0;
        let at_most = |tile: &Tile, tiles: usize| {
            blocks(tile) * seen.div_ceil(tile.keys) <= tiles * driver.multiprocessors()
        };
        let small = |tile: &Tile| few && (pairs <= tile.rows || at_most(tile, SMALL_TILES));
        let wide = || {
            let long = facts.longest >= WIDE_ROWS || facts.tokens > WIDE_TOKENS;
            (few || long) && facts.trees == 0 && ATTENTION_WIDE.exists(driver)
        };
        let tile = match dims.head_dim {
            128 if small(&FEW_128) => FEW_128,
            128 if few => BLOCK_128,
            128 => ANY_128,
            _ if small(&FEW_256) => FEW_256,
            _ if wide() => WIDE,
            _ if few && at_most(&TREE_256, MIDDLE_TILES) => TREE_256,
            _ => ANY_256,
        };
        let (blocks, key_tiles) = (blocks(&tile), seen.div_ceil(tile.keys));
        let splits = match (tile.rows, tile.merged) {
            (ATTENTION_WIDE_ROWS, _) => shortest(blocks, key_tiles, driver.multiprocessors()),
            (_, true) => tile.kernel.resident_blocks(driver) / blocks,
            _ => BLOCKS_PER_MULTIPROCESSOR * driver.multiprocessors() / blocks,
        };
        let splits = splits.min(key_tiles).min(room).clamp(1, MOST_SPLITS);
        Self {
            row_tiles: pairs.div_ceil(tile.rows),
            splits,
            merged: tile.merged || splits > 1,
            kernel: tile.kernel,
        }
    }
}

/// Into how many parts to split `tiles` of keys so that so many blocks, of which a multiprocessor has room
/// for one, end soonest. Time counts in tiles: a part's own, what it takes to begin and to end one, and
/// if there are several to write them down for the merge.
fn shortest(blocks: usize, tiles: usize, multiprocessors: usize) -> usize {
    const AROUND: usize = 4;
    const WRITTEN: usize = 3;
    let time = |splits: usize| {
        let around = if splits > 1 { AROUND + WRITTEN } else { AROUND };
        (blocks * splits).div_ceil(multiprocessors) * (tiles.div_ceil(splits) + around)
    };
    let splits = 1..=MOST_SPLITS.min(tiles);
    splits.min_by_key(|&splits| time(splits)).unwrap_or(1)
}

/// Adds up the parts.
///
/// # Safety
/// As [`Kernel::launch`], for the rows of `params`.
pub unsafe fn merge(
    driver: &dyn Driver,
    dims: AttentionDims,
    params: &AttentionParams,
) -> Result<()> {
    let many = params.splits as usize > MERGE_FEW;
    let lines = if many { MERGE_LINES } else { 1 };
    let kernel = match dims.head_dim {
        128 => ATTENTION_MERGE_128,
        _ => ATTENTION_MERGE_256,
    };
    let units = (dims.query_width() / 4).div_ceil(MERGE_THREADS / lines);
    // SAFETY: the caller's promise.
    unsafe { kernel.launch(driver, [units, params.rows as usize, 1], params) }
}

#[cfg(test)]
mod tests {
    use super::shortest;

    #[test]
    fn parts_fill_the_machine() {
        // 2,048 rows of the 27B on one GPU, on one of two, and 128 rows.
        assert_eq!(shortest(384, 200, 132), 1);
        assert_eq!(shortest(192, 200, 132), 2);
        assert_eq!(shortest(24, 200, 132), 5);
        assert_eq!(shortest(24, 0, 132), 1);
    }
}
