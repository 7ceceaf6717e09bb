use crate::blocks::{BlockPool, BlockTable, Holder};
use crate::error::{Error, Result};
use crate::tree::{Hit, PrefixTree, Removed};

/// How much a cache hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSizes {
    /// Cache blocks.
    pub blocks: usize,
    /// Tokens per block.
    pub block_size: usize,
    /// Sequences that run at once; each has a slot.
    pub sequences: usize,
    /// Checkpoints kept; each has a slot too. 0 keeps nothing.
    pub checkpoints: usize,
}

impl CacheSizes {
    /// Slots of sequences and checkpoints together; they change roles.
    pub fn slots(&self) -> usize {
        self.sequences + self.checkpoints
    }
}

/// Blocks and slots, who holds them, and the prefixes that can be gone on from.
///
/// Everything that is not held by a running sequence gives way, the prefix used longest ago first.
/// Ids of what gave way may be handed out at once: whoever acts on them must do so in the order
/// of the calls, and read a checkpoint before anything of the same step is written.
#[derive(Debug)]
pub struct Cache {
    sizes: CacheSizes,
    pool: BlockPool,
    free_slots: Vec<usize>,
    /// Slots handed out by [`Cache::checkpoint_slot`] that are not in the tree yet.
    promised: usize,
    tree: PrefixTree,
}

/// A text, kept for those that have its salt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix<'a> {
    /// Only texts of the same salt share anything.
    pub salt: &'a str,
    /// Its tokens.
    pub tokens: &'a [u32],
}

impl<'a> Prefix<'a> {
    /// A text without salt.
    pub fn of(tokens: &'a [u32]) -> Self {
        Self { salt: "", tokens }
    }
}

/// How a text begins, by what is kept of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Resume {
    /// Tokens that need not be computed; 0 is a miss.
    pub tokens: usize,
    /// Slot with the states behind them.
    pub slot: Option<usize>,
    /// Blocks that hold them: all but the last shared, not to be written.
    pub table: BlockTable,
    /// A last block that is only partly theirs has to be copied.
    pub tail: Option<TailCopy>,
    /// Tokens that some kept text shares with this one.
    pub common: usize,
    /// Why no more of it need not be computed.
    pub miss: Miss,
}

/// What a text could not go on from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Miss {
    /// Nothing is kept under its salt.
    #[default]
    NothingKept,
    /// The kept text has another token there.
    Differs,
    /// The kept text ends there.
    Ends,
    /// A longer beginning is kept, but the states behind it are not.
    NoStates,
    /// Nothing: all but its last token was kept.
    None,
}

impl Miss {
    /// In words of a machine.
    pub fn name(self) -> &'static str {
        match self {
            Self::NothingKept => "nothing_kept",
            Self::Differs => "differs",
            Self::Ends => "ends",
            Self::NoStates => "no_states",
            Self::None => "none",
        }
    }
}

/// The copy of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailCopy {
    /// Block of the checkpoint.
    pub from: u32,
    /// Block of the sequence.
    pub to: u32,
}

impl Cache {
    /// A cache with everything free.
    pub fn new(sizes: CacheSizes) -> Self {
        Self {
            sizes,
            pool: BlockPool::new(sizes.blocks),
            free_slots: (0..sizes.slots()).rev().collect(),
            promised: 0,
            tree: PrefixTree::new(sizes.block_size),
        }
    }

    /// Its sizes.
    pub fn sizes(&self) -> CacheSizes {
        self.sizes
    }

    /// A slot for a sequence; there is one for each of [`CacheSizes::sequences`].
    pub fn take_slot(&mut self) -> Option<usize> {
        self.free_slots.pop()
    }

    /// Takes the slot of a sequence back.
    pub fn give_slot(&mut self, slot: usize) {
        self.free_slots.push(slot);
    }

    /// Grows `table` until it covers `tokens`; on failure the table is as before.
    pub fn grow(&mut self, table: &mut BlockTable, tokens: usize) -> Result<()> {
        let blocks = tokens.div_ceil(self.sizes.block_size);
        let missing = blocks.saturating_sub(table.blocks.len());
        if missing > self.pool.idle() {
            return Err(Error::OutOfBlocks {
                needed: missing,
                free: self.pool.idle(),
            });
        }
        for _ in 0..missing {
            let block = self.block();
            table
                .blocks
                .push(block.expect("idle blocks can be had: this is a bug"));
        }
        Ok(())
    }

    /// A free block, made free if need be.
    fn block(&mut self) -> Option<u32> {
        while self.pool.free() == 0 {
            let pool = &self.pool;
            // First those that free a block by themselves.
            let removed = self
                .tree
                .remove_oldest(|leaf, block| leaf && pool.only_node(block));
            let removed = removed.or_else(|| self.tree.remove_oldest(|_, _| true))?;
            self.free(removed);
        }
        self.pool.allocate()
    }

    /// Takes the blocks of a sequence back.
    pub fn release(&mut self, table: BlockTable) {
        for block in table.blocks.into_iter().rev() {
            self.pool.release(block, Holder::Table);
        }
    }

    /// What is kept of the beginning of `text`, its last token left out: that one has to be
    /// computed in any case. The table belongs to the caller.
    pub fn resume(&mut self, text: Prefix<'_>) -> Resume {
        let limit = text.tokens.len().saturating_sub(1);
        let found = self.tree.find(text, limit);
        let (table, tail) = match &found.hit {
            None => Default::default(),
            Some(hit) => self.take_over(hit).unwrap_or_default(),
        };
        let hit = found.hit.filter(|_| !table.blocks.is_empty());
        let tokens = hit.as_ref().map_or(0, |hit| hit.tokens);
        let whole = found.common == text.tokens.len();
        // States in front of the block in which texts part are all that can be had unasked.
        let border = found.common / self.sizes.block_size * self.sizes.block_size;
        Resume {
            tokens,
            slot: hit.map(|hit| hit.slot),
            table,
            tail,
            common: found.common,
            miss: match () {
                () if !found.known => Miss::NothingKept,
                () if tokens == limit => Miss::None,
                () if whole || tokens < border => Miss::NoStates,
                () if found.goes_on => Miss::Differs,
                () => Miss::Ends,
            },
        }
    }

    /// A table of the blocks of a checkpoint; `None` if its last one has to be copied and there is
    /// no block for that.
    fn take_over(&mut self, hit: &Hit) -> Option<(BlockTable, Option<TailCopy>)> {
        self.tree.touch(hit);
        let (full, tail) = hit.blocks.split_at(hit.tokens / self.sizes.block_size);
        let mut table = BlockTable::default();
        for &block in full {
            self.pool.share(block, Holder::Table);
            table.blocks.push(block);
        }
        let Some(&from) = tail.first() else {
            return Some((table, None));
        };
        match self.block() {
            None => {
                self.release(table);
                None
            }
            Some(to) => {
                table.blocks.push(to);
                Some((table, Some(TailCopy { from, to })))
            }
        }
    }

    /// A slot into which the states behind `text` are to be copied, for [`Cache::insert`] or
    /// [`Cache::give_back`]; `None` if there already is a checkpoint or none are kept.
    pub fn checkpoint_slot(&mut self, text: Prefix<'_>) -> Option<usize> {
        if text.tokens.is_empty() || self.tree.holds(text) {
            return None;
        }
        self.make_room();
        if self.tree.len() + self.promised >= self.sizes.checkpoints {
            return None;
        }
        let slot = self.free_slots.pop()?;
        self.promised += 1;
        Some(slot)
    }

    /// Takes back a slot of [`Cache::checkpoint_slot`] that did not become a checkpoint.
    pub fn give_back(&mut self, slot: usize) {
        self.promised -= 1;
        self.free_slots.push(slot);
    }

    /// Keeps a prefix whose states are in `slot`, which is from [`Cache::checkpoint_slot`]. The
    /// blocks of `table` hold its tokens.
    pub fn insert(&mut self, text: Prefix<'_>, table: &BlockTable, slot: usize) {
        self.promised -= 1;
        self.keep(text, table, slot);
    }

    /// Keeps all that a finished sequence has computed: its slot becomes a checkpoint.
    pub fn donate(&mut self, text: Prefix<'_>, table: BlockTable, slot: usize) {
        if self.sizes.checkpoints > 0 && !text.tokens.is_empty() {
            self.make_room();
        }
        if text.tokens.is_empty() || self.tree.len() + self.promised >= self.sizes.checkpoints {
            self.free_slots.push(slot);
        } else {
            self.keep(text, &table, slot);
        }
        self.release(table);
    }

    fn keep(&mut self, text: Prefix<'_>, table: &BlockTable, slot: usize) {
        match self.tree.insert(text, &table.blocks, slot) {
            Ok(taken) => {
                for block in taken {
                    self.pool.share(block, Holder::Node);
                }
            }
            Err(slot) => self.free_slots.push(slot),
        }
    }

    /// Gives up the oldest checkpoint if there is no place for one more.
    fn make_room(&mut self) {
        if self.tree.len() + self.promised >= self.sizes.checkpoints {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) -> bool {
        let oldest = self.tree.remove_oldest(|_, _| true);
        let any = oldest.is_some();
        oldest.into_iter().for_each(|removed| self.free(removed));
        any
    }

    fn free(&mut self, removed: Removed) {
        self.free_slots.push(removed.slot);
        for block in removed.blocks {
            self.pool.release(block, Holder::Node);
        }
    }

    /// Gives all checkpoints up.
    pub fn clear(&mut self) {
        while self.forget_oldest() {}
    }

    /// Whether the end of `text` is a checkpoint.
    pub fn holds(&self, text: Prefix<'_>) -> bool {
        self.tree.holds(text)
    }

    /// Blocks that no running sequence holds.
    pub fn idle_blocks(&self) -> usize {
        self.pool.idle()
    }

    /// Blocks that are kept for checkpoints alone.
    pub fn cached_blocks(&self) -> usize {
        self.pool.idle() - self.pool.free()
    }

    /// Checkpoints kept.
    pub fn checkpoints(&self) -> usize {
        self.tree.len()
    }

    /// Checks that every block and slot has exactly the holders it should have, given all tables
    /// and slots of sequences.
    pub fn check<'a>(
        &self,
        tables: impl IntoIterator<Item = &'a BlockTable>,
        slots: impl IntoIterator<Item = usize>,
    ) -> Result<()> {
        let tables = tables.into_iter().flat_map(|table| &table.blocks);
        self.pool.check(tables, self.tree.blocks())?;
        let mut holders = vec![0; self.sizes.slots()];
        let free = self.free_slots.iter().copied();
        for slot in free.chain(self.tree.slots()).chain(slots) {
            holders[slot] += 1;
        }
        let mut promised = self.promised;
        for (slot, holders) in holders.into_iter().enumerate() {
            match holders {
                1 => {}
                0 if promised > 0 => promised -= 1,
                holders => return Err(Error::Slot { slot, holders }),
            }
        }
        Ok(())
    }
}
