//! What an engine keeps of texts, as ids only: cache blocks, rows of states, and which prefixes
//! they hold. No tensors.
//!
//! A hybrid model can go on behind a prefix only with both: the blocks of its tokens for the
//! attention layers, and the states of the recurrent layers right behind it. So the unit of the
//! cache is the checkpoint: a prefix, its blocks and a slot with the states. Blocks without a
//! checkpoint behind them are of no use and are not kept.

mod blocks;
mod cache;
mod error;
mod tree;

pub use blocks::BlockTable;
pub use cache::{Cache, CacheSizes, Miss, Prefix, Resume, TailCopy};
pub use error::{Error, Result};
