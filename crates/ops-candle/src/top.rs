//! The largest logits of a row.

use volley_ops::{CANDIDATES, Result, TOP_WIDTH};

use crate::buf::Buf;

/// As [`volley_ops::Ops::top`] says.
pub fn top(logits: &Buf, rows: usize, first: u32, allowed: u32, out: &mut Buf) -> Result<()> {
    let (op, width) = ("top", logits.width());
    let logits = logits.view(op, "logits", rows, width)?;
    let out = out.view_mut(op, "out", rows, TOP_WIDTH)?;
    let columns = (allowed.saturating_sub(first) as usize).min(width);
    for (row, out) in out.chunks_exact_mut(TOP_WIDTH).enumerate() {
        let logits = &logits[row * width..][..columns];
        let ranked = ranked(logits);
        let (values, rest) = out.split_at_mut(CANDIDATES);
        let (ids, sum) = rest.split_at_mut(CANDIDATES);
        values.fill(f32::NEG_INFINITY);
        ids.fill(0.0);
        for ((value, id), &column) in values.iter_mut().zip(ids).zip(&ranked) {
            *value = logits[column as usize];
            *id = (first + column) as f32;
        }
        sum[0] = log_sum(logits);
    }
    Ok(())
}

/// Columns of the largest logits, by rank.
fn ranked(logits: &[f32]) -> Vec<u32> {
    let key = |&column: &u32| (ordered(logits[column as usize]), !column);
    let mut columns: Vec<u32> = (0..logits.len() as u32).collect();
    if columns.len() > CANDIDATES {
        columns.select_nth_unstable_by(CANDIDATES - 1, |a, b| key(b).cmp(&key(a)));
        columns.truncate(CANDIDATES);
    }
    columns.sort_unstable_by_key(|column| std::cmp::Reverse(key(column)));
    columns
}

/// Bits that order as the numbers do; both zeros are equal.
fn ordered(x: f32) -> u32 {
    let bits = (x + 0.0).to_bits();
    if bits >> 31 == 1 {
        !bits
    } else {
        bits | 1 << 31
    }
}

/// Log of the sum of `exp(logit - largest)`.
fn log_sum(logits: &[f32]) -> f32 {
    let largest = logits.iter().copied().fold(f32::MIN, f32::max);
    let terms = logits.iter().map(|&l| f64::from(l - largest).exp());
    terms.sum::<f64>().ln() as f32
}
