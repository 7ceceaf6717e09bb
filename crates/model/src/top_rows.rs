use std::cell::OnceCell;

use volley_ops::{CANDIDATES, TOP_WIDTH};

/// The likeliest allowed tokens of a row of logits, the same on every rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopRow {
    /// Token ids: logit descending, ties by lowest id; at most [`CANDIDATES`].
    pub ids: Vec<u32>,
    /// Their logits.
    pub logits: Vec<f32>,
    /// Log of the summed exponentials of all allowed logits; NaN when one of them is NaN or
    /// positive infinity, negative infinity when there is none.
    pub log_sum_exp: f64,
}

impl TopRow {
    /// From the ranks' rows of [`Ops::top`], side by side.
    fn merge(parts: &[f32]) -> Self {
        let mut ranked = Vec::with_capacity(CANDIDATES);
        let mut sums = Vec::new();
        for part in parts.chunks_exact(TOP_WIDTH) {
            let (logits, rest) = part.split_at(CANDIDATES);
            let (ids, sum) = rest.split_at(CANDIDATES);
            let some = logits
                .iter()
                .zip(ids)
                .take_while(|(l, _)| **l > f32::NEG_INFINITY);
            ranked.extend(some.map(|(&logit, &id)| (logit + 0.0, id as u32)));
            sums.push(f64::from(logits[0]) + f64::from(sum[0]));
        }
        if parts.len() > TOP_WIDTH {
            ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            ranked.truncate(CANDIDATES);
        }
        // A rank without any logit has negative infinity twice.
        let largest = ranked.first().map_or(0.0, |&(logit, _)| f64::from(logit));
        let sum: f64 = sums.iter().map(|sum| (sum - largest).exp()).sum();
        let (logits, ids) = ranked.into_iter().unzip();
        Self {
            ids,
            logits,
            log_sum_exp: largest + sum.ln(),
        }
    }

    /// Whether no other allowed token has a logit above negative infinity.
    pub fn complete(&self) -> bool {
        self.ids.len() < CANDIDATES
    }
}

/// The likeliest tokens of several rows; a row is put together when it is first looked at, as most of a
/// verified block never are.
#[derive(Clone, Debug, Default)]
pub struct TopRows {
    /// Rows of [`volley_ops::Ops::top`], those of all ranks side by side.
    values: Vec<f32>,
    ranks: usize,
    rows: Vec<OnceCell<TopRow>>,
}

impl TopRows {
    /// From the rows of as many ranks, side by side.
    pub(crate) fn new(values: Vec<f32>, ranks: usize) -> Self {
        let count = values.len() / (ranks * TOP_WIDTH);
        Self {
            values,
            ranks,
            rows: vec![OnceCell::new(); count],
        }
    }

    /// A row, unless it lies beyond the last one.
    pub fn get(&self, row: usize) -> Option<&TopRow> {
        let width = self.ranks * TOP_WIDTH;
        let merged = || TopRow::merge(&self.values[row * width..][..width]);
        Some(self.rows.get(row)?.get_or_init(merged))
    }

    /// All rows, in order.
    pub fn iter(&self) -> impl Iterator<Item = &TopRow> {
        (0..self.rows.len()).filter_map(|row| self.get(row))
    }
}
