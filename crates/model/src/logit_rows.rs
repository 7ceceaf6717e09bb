use volley_ops::{DRAWN_WIDTH, Draw, DrawFrom, Dtype, Ops, TOP_WIDTH};

use crate::{Result, Shard, check};

/// A token that the device drew.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drawn {
    /// Its id.
    pub token: u32,
    /// Its logit.
    pub logit: f32,
}

impl Drawn {
    /// Rows as [`Ops::draw`] leaves them.
    pub(crate) fn read(values: &[f32]) -> Vec<Self> {
        let rows = values.chunks_exact(DRAWN_WIDTH);
        rows.map(|row| Self {
            token: row[0] as u32,
            logit: row[1],
        })
        .collect()
    }
}

/// Whole rows that the ranks put together at a time.
const WHOLE_ROWS: usize = 16;

/// Rows of logits on the device: this rank's share, and what is known of all of them.
pub(crate) struct LogitRows<O: Ops> {
    /// This rank's share.
    pub(crate) share: O::Buf,
    /// Rows that `share` holds.
    pub(crate) held: usize,
    /// Token of its first column.
    first: u32,
    top: O::Buf,
    gathered: Option<Gathered<O>>,
}

/// What several ranks put together.
struct Gathered<O: Ops> {
    tops: O::Buf,
    /// A few rows of this rank's share, and of the whole.
    share: O::Buf,
    whole: O::Buf,
}

impl<O: Ops> LogitRows<O> {
    /// At most `rows` rows of `vocab` logits.
    pub fn new(ops: &O, rows: usize, vocab: usize, shard: Shard) -> Result<Self> {
        let ids = shard.split("vocab_size", vocab)?;
        let float = |rows, width| ops.alloc(rows, width, Dtype::F32);
        Ok(Self {
            share: float(rows, ids.len())?,
            held: 0,
            first: ids.start as u32,
            top: float(rows, TOP_WIDTH)?,
            gathered: match shard.ranks {
                1 => None,
                ranks => Some(Gathered {
                    tops: float(rows, ranks * TOP_WIDTH)?,
                    share: float(WHOLE_ROWS, ids.len())?,
                    whole: float(WHOLE_ROWS, vocab)?,
                }),
            },
        })
    }

    /// Finds the likeliest tokens of the rows that are held, of all ranks.
    pub fn rank(&mut self, ops: &O, allowed: usize) -> Result<()> {
        let (n, first) = (self.held, self.first);
        ops.top(&self.share, n, first, allowed as u32, &mut self.top)?;
        match &mut self.gathered {
            None => Ok(()),
            Some(gathered) => Ok(ops.all_gather(&self.top, n, &mut gathered.tops)?),
        }
    }

    /// What [`LogitRows::rank`] found.
    pub fn tops(&self) -> &O::Buf {
        let gathered = self.gathered.as_ref();
        gathered.map_or(&self.top, |gathered| &gathered.tops)
    }

    /// Draws a token from each of the rows that [`LogitRows::rank`] was over. The ranks put whole rows
    /// together only where a draw may need them.
    pub fn draw(
        &mut self,
        ops: &O,
        allowed: usize,
        draws: &[Draw],
        out: &mut O::Buf,
    ) -> Result<()> {
        if draws.len() != self.held {
            let expected = format!("{}, one per row", self.held);
            return Err(check::error("draw", "draws", expected, draws.len()));
        }
        let allowed = allowed as u32;
        let few = draws.iter().all(Draw::of_candidates);
        let Some(Gathered { tops, share, whole }) = &mut self.gathered else {
            let from = DrawFrom {
                tops: &self.top,
                whole: (!few).then_some(&self.share),
                allowed,
                first: 0,
            };
            return Ok(ops.draw(&from, draws, out)?);
        };
        let (mut first, chunk) = (0, if few { draws.len() } else { WHOLE_ROWS });
        for draws in draws.chunks(chunk.max(1)) {
            let few = draws.iter().all(Draw::of_candidates);
            if !few {
                gather(ops, &self.share, first, draws.len(), share, whole)?;
            }
            let from = DrawFrom {
                tops: &*tops,
                whole: (!few).then_some(&*whole),
                allowed,
                first,
            };
            ops.draw(&from, draws, out)?;
            first += draws.len();
        }
        Ok(())
    }

    /// All logits of a row that is held.
    pub fn row(&mut self, ops: &O, row: usize) -> Result<Vec<f32>> {
        if row >= self.held {
            let expected = format!("below the {} that are held", self.held);
            return Err(check::error("logit_row", "row", expected, row));
        }
        let Some(Gathered { share, whole, .. }) = &mut self.gathered else {
            return Ok(ops.read(&self.share, row..row + 1)?);
        };
        gather(ops, &self.share, row, 1, share, whole)?;
        Ok(ops.read(whole, 0..1)?)
    }
}

/// Puts `count` rows of the ranks' shares together, row `first` and those behind it.
fn gather<O: Ops>(
    ops: &O,
    from: &O::Buf,
    first: usize,
    count: usize,
    share: &mut O::Buf,
    whole: &mut O::Buf,
) -> Result<()> {
    let rows: Vec<u32> = (first..first + count).map(|row| row as u32).collect();
    ops.gather(from, &rows, share)?;
    Ok(ops.all_gather(share, count, whole)?)
}
