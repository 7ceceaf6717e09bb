use std::borrow::Cow;

use volley_model::{Drawn, Target, TopRows};
use volley_ops::Ops;
use volley_speculate::{Candidates, DrawnToken, Error, Logits};

/// Rows of logits on a rank: candidates on the host, whole rows still on the device.
pub(crate) struct RankLogits<'a, O: Ops> {
    ops: &'a O,
    target: &'a mut Target<O>,
    /// Of all rows that the device holds.
    top: &'a TopRows,
    /// Tokens that it drew from them, or none.
    drawn: &'a [Drawn],
    /// Row of the device that is row 0 here.
    first: usize,
}

impl<'a, O: Ops> RankLogits<'a, O> {
    pub fn new(
        ops: &'a O,
        target: &'a mut Target<O>,
        top: &'a TopRows,
        drawn: &'a [Drawn],
        first: usize,
    ) -> Self {
        Self {
            ops,
            target,
            top,
            drawn,
            first,
        }
    }
}

impl<O: Ops> Logits for RankLogits<'_, O> {
    fn candidates(&self, row: usize) -> Option<Candidates<'_>> {
        let row = self.top.get(self.first + row)?;
        Some(Candidates {
            ids: &row.ids,
            logits: &row.logits,
            log_sum_exp: row.log_sum_exp,
            complete: row.complete(),
        })
    }

    fn drawn(&self, row: usize) -> Option<DrawnToken> {
        let &Drawn { token, logit } = self.drawn.get(self.first + row)?;
        Some(DrawnToken { token, logit })
    }

    /// All ranks hold the same candidates, so all of them come here, or none.
    fn whole(&mut self, row: usize) -> Result<Cow<'_, [f32]>, Error> {
        match self.target.logit_row(self.ops, self.first + row) {
            Ok(logits) => Ok(Cow::Owned(logits)),
            Err(error) => Err(Error::Unread {
                row,
                reason: error.to_string(),
            }),
        }
    }
}
