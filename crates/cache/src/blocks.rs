use crate::error::{Error, Result};

/// Cache blocks of one sequence, in order. Goes back by [`crate::Cache::release`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct BlockTable {
    pub(crate) blocks: Vec<u32>,
}

impl BlockTable {
    /// Block ids, first tokens first.
    pub fn blocks(&self) -> &[u32] {
        &self.blocks
    }
}

/// Who holds a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// A table of a running sequence.
    Table,
    /// A node of the prefix tree.
    Node,
}

/// Holders of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Holders {
    tables: u32,
    nodes: u32,
}

/// The ledger of blocks: a block is free while nothing holds it.
#[derive(Debug)]
pub(crate) struct BlockPool {
    holders: Vec<Holders>,
    free: Vec<u32>,
    /// Blocks in at least one table.
    in_tables: usize,
}

impl BlockPool {
    pub fn new(total: usize) -> Self {
        Self {
            holders: vec![Holders::default(); total],
            free: (0..total as u32).rev().collect(),
            in_tables: 0,
        }
    }

    /// A free block, held by a table from now on.
    pub fn allocate(&mut self) -> Option<u32> {
        let block = self.free.pop()?;
        self.hold(block, Holder::Table);
        Some(block)
    }

    /// One more holder of a block that has some.
    pub fn share(&mut self, block: u32, holder: Holder) {
        debug_assert_ne!(
            self.holders[block as usize],
            Holders::default(),
            "a free block cannot be shared: this is a bug"
        );
        self.hold(block, holder);
    }

    fn hold(&mut self, block: u32, holder: Holder) {
        let holders = &mut self.holders[block as usize];
        match holder {
            Holder::Table => {
                self.in_tables += usize::from(holders.tables == 0);
                holders.tables += 1;
            }
            Holder::Node => holders.nodes += 1,
        }
    }

    /// One holder less; a block without holders is free.
    pub fn release(&mut self, block: u32, holder: Holder) {
        let holders = &mut self.holders[block as usize];
        let count = match holder {
            Holder::Table => &mut holders.tables,
            Holder::Node => &mut holders.nodes,
        };
        *count = count
            .checked_sub(1)
            .expect("what is released is held: this is a bug");
        if holder == Holder::Table && holders.tables == 0 {
            self.in_tables -= 1;
        }
        if *holders == Holders::default() {
            self.free.push(block);
        }
    }

    /// Whether a block has this one node as its only holder.
    pub fn only_node(&self, block: u32) -> bool {
        let alone = Holders {
            tables: 0,
            nodes: 1,
        };
        self.holders[block as usize] == alone
    }

    pub fn total(&self) -> usize {
        self.holders.len()
    }

    /// Blocks held by nothing.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Blocks in no table: free, or held by the prefix tree alone.
    pub fn idle(&self) -> usize {
        self.total() - self.in_tables
    }

    /// Compares the ledger with the holders there are.
    pub fn check<'a>(
        &self,
        tables: impl Iterator<Item = &'a u32>,
        nodes: impl Iterator<Item = u32>,
    ) -> Result<()> {
        let mut found = vec![Holders::default(); self.total()];
        tables.for_each(|&block| found[block as usize].tables += 1);
        nodes.for_each(|block| found[block as usize].nodes += 1);
        for (block, (found, ledger)) in (0..).zip(found.iter().zip(&self.holders)) {
            if found != ledger {
                return Err(Error::Block {
                    block,
                    tables: found.tables,
                    nodes: found.nodes,
                    ledger: (ledger.tables, ledger.nodes),
                });
            }
        }
        let unheld = |block: &u32| found[*block as usize] == Holders::default();
        let mut free: Vec<u32> = self.free.iter().copied().filter(unheld).collect();
        free.sort_unstable();
        free.dedup();
        let unheld = (0..self.total() as u32).filter(unheld).count();
        if free.len() != self.free.len() || free.len() != unheld {
            return Err(Error::FreeBlocks {
                free: self.free.len(),
                unheld,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_free_when_its_last_holder_leaves() {
        let mut pool = BlockPool::new(2);
        let block = pool.allocate().unwrap();
        pool.share(block, Holder::Node);
        pool.share(block, Holder::Table);
        pool.release(block, Holder::Table);
        assert_eq!((pool.free(), pool.idle()), (1, 1));
        pool.release(block, Holder::Table);
        assert_eq!((pool.free(), pool.idle()), (1, 2));
        assert!(pool.only_node(block));
        pool.release(block, Holder::Node);
        assert_eq!(pool.free(), 2);
        pool.check([].iter(), std::iter::empty()).unwrap();
    }

    #[test]
    fn the_ledger_finds_what_is_missing() {
        let mut pool = BlockPool::new(3);
        let block = pool.allocate().unwrap();
        assert!(pool.check([block].iter(), std::iter::empty()).is_ok());
        let lost = pool.check([].iter(), std::iter::empty()).unwrap_err();
        let expected = Error::Block {
            block,
            tables: 0,
            nodes: 0,
            ledger: (1, 0),
        };
        assert_eq!(lost, expected);
        pool.free.pop();
        let short = pool.check([block].iter(), std::iter::empty()).unwrap_err();
        assert_eq!(short, Error::FreeBlocks { free: 1, unheld: 2 });
    }
}
