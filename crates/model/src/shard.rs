use std::ops::Range;

use volley_ops::Ops;

use crate::{Error, Result};

/// One rank's share of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// This rank, `0..ranks`.
    pub rank: usize,
    /// Number of ranks.
    pub ranks: usize,
}

impl Shard {
    /// The whole model.
    pub const WHOLE: Self = Self { rank: 0, ranks: 1 };

    /// The share of a device's rank.
    pub fn of<O: Ops>(ops: &O) -> Self {
        Self {
            rank: ops.rank(),
            ranks: ops.ranks(),
        }
    }

    /// An equal share of `size`; an error when the ranks do not divide it.
    pub fn split(&self, what: &'static str, size: usize) -> Result<Range<usize>> {
        if !size.is_multiple_of(self.ranks) {
            return Err(Error::Ranks {
                what,
                size,
                ranks: self.ranks,
            });
        }
        let share = size / self.ranks;
        Ok(self.rank * share..(self.rank + 1) * share)
    }

    /// Key/value heads: a share of them, or with more ranks than heads the one head that this
    /// rank's queries use.
    pub fn kv_heads(&self, heads: usize) -> Result<Range<usize>> {
        if self.ranks > heads && self.ranks.is_multiple_of(heads) {
            let head = self.rank * heads / self.ranks;
            return Ok(head..head + 1);
        }
        self.split("key/value heads", heads)
    }
}

/// `heads` in units of rows.
pub(crate) fn scale(heads: &Range<usize>, width: usize) -> Range<usize> {
    heads.start * width..heads.end * width
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_tile_the_size() {
        let share = |rank| Shard { rank, ranks: 4 }.split("heads", 24);
        assert_eq!(share(0).unwrap(), 0..6);
        assert_eq!(share(3).unwrap(), 18..24);
    }

    #[test]
    fn more_ranks_than_kv_heads_replicate_them() {
        let heads = |rank| Shard { rank, ranks: 8 }.kv_heads(4).unwrap();
        assert_eq!(
            (0..8).map(heads).collect::<Vec<_>>(),
            [0..1, 0..1, 1..2, 1..2, 2..3, 2..3, 3..4, 3..4]
        );
    }

    #[test]
    fn ranks_that_do_not_divide_are_named() {
        let shard = Shard { rank: 0, ranks: 3 };
        let message = shard.split("attention heads", 16).unwrap_err().to_string();
        assert_eq!(
            message,
            "3 ranks cannot share attention heads = 16: 3 does not divide 16"
        );
        assert!(shard.kv_heads(4).is_err());
        assert!(Shard { rank: 0, ranks: 6 }.kv_heads(4).is_err());
    }
}
