/// What a cache refuses or has lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// More blocks needed than can be had, all unused checkpoints given up.
    #[error("{needed} more cache blocks are needed, {free} are free")]
    OutOfBlocks {
        /// Blocks asked for.
        needed: usize,
        /// Blocks left.
        free: usize,
    },
    /// A block whose holders are not those that are known.
    #[error(
        "block {block} is held by {tables} tables and {nodes} nodes, the ledger says {ledger:?}"
    )]
    Block {
        /// The block.
        block: u32,
        /// Tables that hold it.
        tables: u32,
        /// Nodes of the prefix tree that hold it.
        nodes: u32,
        /// Tables and nodes by the ledger.
        ledger: (u32, u32),
    },
    /// A free list with a block that is held, twice the same, or one missing.
    #[error("{free} blocks are in the free list, {unheld} are held by nothing")]
    FreeBlocks {
        /// Length of the free list.
        free: usize,
        /// Blocks without a holder.
        unheld: usize,
    },
    /// A slot with no holder, or with several.
    #[error("slot {slot} has {holders} holders")]
    Slot {
        /// The slot.
        slot: usize,
        /// Holders found.
        holders: usize,
    },
}

/// Result of the cache.
pub type Result<T> = std::result::Result<T, Error>;
