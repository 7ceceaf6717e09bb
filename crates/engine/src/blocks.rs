use crate::EngineError;

/// Free list of cache blocks. Every block is either free or in exactly one table.
#[derive(Debug)]
pub(crate) struct BlockPool {
    free: Vec<u32>,
    total: usize,
    block_size: usize,
}

/// Cache blocks of one sequence, in order. Goes back by [`BlockPool::release`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockTable {
    blocks: Vec<u32>,
}

impl BlockTable {
    /// Block ids, first tokens first.
    pub fn blocks(&self) -> &[u32] {
        &self.blocks
    }
}

impl BlockPool {
    /// A pool of `total` free blocks of `block_size` tokens.
    pub fn new(total: usize, block_size: usize) -> Self {
        Self {
            free: (0..total as u32).rev().collect(),
            total,
            block_size,
        }
    }

    /// Grows `table` until it covers `tokens`; on failure the table is as before.
    pub fn grow(&mut self, table: &mut BlockTable, tokens: usize) -> Result<(), EngineError> {
        let missing = tokens
            .div_ceil(self.block_size)
            .saturating_sub(table.blocks.len());
        if missing > self.free.len() {
            return Err(EngineError::OutOfBlocks {
                needed: missing,
                free: self.free.len(),
            });
        }
        let rest = self.free.len() - missing;
        table.blocks.extend(self.free.drain(rest..).rev());
        Ok(())
    }

    /// Takes the blocks of a finished sequence back.
    pub fn release(&mut self, table: BlockTable) {
        self.free.extend(table.blocks.into_iter().rev());
        debug_assert!(
            self.free.len() <= self.total,
            "{} of {} blocks are free: this is a bug",
            self.free.len(),
            self.total
        );
    }

    /// Blocks in no table.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Whether every block is free, once: what must hold when no sequence runs.
    pub fn balanced(&self) -> bool {
        let mut seen = vec![false; self.total];
        self.free.len() == self.total
            && self
                .free
                .iter()
                .all(|&b| !std::mem::replace(&mut seen[b as usize], true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_cover_their_tokens_with_distinct_blocks() {
        let mut pool = BlockPool::new(6, 16);
        let (mut a, mut b) = (BlockTable::default(), BlockTable::default());
        pool.grow(&mut a, 1).unwrap();
        pool.grow(&mut b, 33).unwrap();
        pool.grow(&mut a, 16).unwrap();
        assert_eq!(a.blocks().len(), 1);
        pool.grow(&mut a, 17).unwrap();
        assert_eq!((a.blocks().len(), b.blocks().len()), (2, 3));
        let mut all: Vec<u32> = [a.blocks(), b.blocks()].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 5);
        assert!(!pool.balanced());
        pool.release(a);
        pool.release(b);
        assert!(pool.balanced());
    }

    #[test]
    fn a_refused_growth_changes_nothing() {
        let mut pool = BlockPool::new(2, 16);
        let mut table = BlockTable::default();
        pool.grow(&mut table, 20).unwrap();
        let error = pool.grow(&mut table, 49).unwrap_err();
        assert!(matches!(
            error,
            EngineError::OutOfBlocks { needed: 2, free: 0 }
        ));
        assert_eq!(table.blocks().len(), 2);
        pool.release(table);
        assert!(pool.balanced());
    }
}
