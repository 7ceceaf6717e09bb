use std::ops::Range;

use volley_ops::{DRAWN_WIDTH, Draw, DrawFrom, Dtype, Edit, EditedRows, Ops, TOP_WIDTH};

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

/// Whole rows that are put together, or changed, at a time.
const WHOLE_ROWS: usize = 64;

/// Rows of logits on the device: this rank's share, and what is known of all of them.
pub(crate) struct LogitRows<O: Ops> {
    /// This rank's share.
    pub(crate) share: O::Buf,
    /// Rows that `share` holds.
    pub(crate) held: usize,
    /// Token of its first column.
    first: u32,
    top: O::Buf,
    /// A few whole rows, their candidates when they were changed, and what was drawn from one.
    whole: O::Buf,
    changed_tops: O::Buf,
    redrawn: O::Buf,
    gathered: Option<Gathered<O>>,
}

/// What several ranks put together.
struct Gathered<O: Ops> {
    tops: O::Buf,
    /// A few rows of this rank's share.
    share: O::Buf,
}

impl<O: Ops> LogitRows<O> {
    /// At most `rows` rows of `vocab` logits.
    pub fn new(ops: &O, rows: usize, vocab: usize, shard: Shard) -> Result<Self> {
        let ids = shard.split("vocab_size", vocab)?;
        let float = |rows, width| ops.alloc(rows, width, Dtype::F32);
        let few = WHOLE_ROWS.min(rows);
        Ok(Self {
            share: float(rows, ids.len())?,
            held: 0,
            first: ids.start as u32,
            top: float(rows, TOP_WIDTH)?,
            whole: float(few, vocab)?,
            changed_tops: float(few, TOP_WIDTH)?,
            redrawn: float(1, DRAWN_WIDTH)?,
            gathered: match shard.ranks {
                1 => None,
                ranks => Some(Gathered {
                    tops: float(rows, ranks * TOP_WIDTH)?,
                    share: float(few, ids.len())?,
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

    /// Draws a token from each of the rows that [`LogitRows::rank`] was over, changed by its one of `edits`
    /// first if there are any. The ranks put whole rows together only where a draw may need them.
    pub fn draw(
        &mut self,
        ops: &O,
        allowed: usize,
        draws: &[Draw],
        edits: &[Edit],
        out: &mut O::Buf,
    ) -> Result<()> {
        check_count("draws", draws.len(), self.held)?;
        if edits.is_empty() {
            return self.draw_plain(ops, allowed, draws, out);
        }
        check_count("edits", edits.len(), draws.len())?;
        let parts = draws.chunks(WHOLE_ROWS).zip(edits.chunks(WHOLE_ROWS));
        for (part, (draws, edits)) in parts.enumerate() {
            self.draw_changed(ops, part * WHOLE_ROWS, allowed, draws, edits, out)?;
        }
        Ok(())
    }

    fn draw_plain(
        &mut self,
        ops: &O,
        allowed: usize,
        draws: &[Draw],
        out: &mut O::Buf,
    ) -> Result<()> {
        let few = |draws: &[Draw]| draws.iter().all(Draw::of_candidates);
        let together = self.gathered.is_some() && !few(draws);
        let most = if together { WHOLE_ROWS } else { draws.len() };
        for (part, draws) in draws.chunks(most.max(1)).enumerate() {
            let (first, few) = (part * most, few(draws));
            if together && !few {
                self.gather(ops, first..first + draws.len())?;
            }
            let whole = if together { &self.whole } else { &self.share };
            let from = DrawFrom {
                tops: self.tops(),
                whole: (!few).then_some(whole),
                allowed: allowed as u32,
                first,
            };
            ops.draw(&from, draws, out)?;
        }
        Ok(())
    }

    /// Draws from changed rows, at most [`WHOLE_ROWS`], the first of them `first`.
    fn draw_changed(
        &mut self,
        ops: &O,
        first: usize,
        allowed: usize,
        draws: &[Draw],
        edits: &[Edit],
        out: &mut O::Buf,
    ) -> Result<()> {
        self.gather(ops, first..first + draws.len())?;
        let from = EditedRows {
            whole: &mut self.whole,
            tops: &mut self.changed_tops,
            allowed: allowed as u32,
            first,
        };
        Ok(ops.draw_edited(from, edits, draws, out)?)
    }

    /// Draws a token from row `row`, changed by `edit` first, and waits for it. All ranks have to ask.
    pub fn draw_one(
        &mut self,
        ops: &O,
        row: usize,
        allowed: usize,
        draw: &Draw,
        edit: &Edit,
    ) -> Result<Drawn> {
        self.check_row(row)?;
        self.gather(ops, row..row + 1)?;
        let from = EditedRows {
            whole: &mut self.whole,
            tops: &mut self.changed_tops,
            allowed: allowed as u32,
            first: 0,
        };
        let (edits, draws) = (std::slice::from_ref(edit), std::slice::from_ref(draw));
        ops.draw_edited(from, edits, draws, &mut self.redrawn)?;
        let drawn = Drawn::read(&ops.read(&self.redrawn, 0..1)?);
        Ok(drawn[0])
    }

    /// All logits of a row that is held.
    pub fn row(&mut self, ops: &O, row: usize) -> Result<Vec<f32>> {
        self.check_row(row)?;
        self.gather(ops, row..row + 1)?;
        Ok(ops.read(&self.whole, 0..1)?)
    }

    fn check_row(&self, row: usize) -> Result<()> {
        if row < self.held {
            return Ok(());
        }
        let expected = format!("below the {} that are held", self.held);
        Err(check::error("logits", "row", expected, row))
    }

    /// Puts a few of the rows together, of all ranks.
    fn gather(&mut self, ops: &O, rows: Range<usize>) -> Result<()> {
        let count = rows.len();
        let rows: Vec<u32> = rows.map(|row| row as u32).collect();
        match &mut self.gathered {
            None => ops.gather(&self.share, &rows, &mut self.whole)?,
            Some(Gathered { share, .. }) => {
                ops.gather(&self.share, &rows, share)?;
                ops.all_gather(share, count, &mut self.whole)?;
            }
        }
        Ok(())
    }
}

fn check_count(what: &'static str, got: usize, expected: usize) -> Result<()> {
    if got == expected {
        return Ok(());
    }
    let expected = format!("{expected}, one per row");
    Err(check::error("draw", what, expected, got))
}
