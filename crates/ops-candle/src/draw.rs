//! Tokens drawn from rows of logits.

use std::cmp::Ordering;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use volley_ops::{
    CANDIDATES, DRAWN, DRAWN_WIDTH, Draw, DrawFrom, Edit, EditedRows, Result, TOP_WIDTH,
};

use crate::buf::{Buf, check, check_index};
use crate::top::top;

/// As [`volley_ops::Ops::draw`] says, for this many ranks.
pub fn draw(ranks: usize, from: &DrawFrom<'_, Buf>, draws: &[Draw], out: &mut Buf) -> Result<()> {
    let (op, width) = ("draw", ranks * TOP_WIDTH);
    let rows = from.first + draws.len();
    let tops = from.tops.view(op, "tops", rows, width)?;
    let whole = match from.whole {
        Some(whole) => Some((
            whole.view(op, "whole", draws.len(), whole.width())?,
            whole.width(),
        )),
        None => {
            let open = draws.iter().filter(|draw| !draw.of_candidates()).count();
            check(op, "draws that need whole rows", open, 0)?;
            None
        }
    };
    let out = out.view_mut(op, "out", rows, DRAWN_WIDTH)?;
    let out = &mut out[from.first * DRAWN_WIDTH..];
    for (row, (out, draw)) in out.chunks_exact_mut(DRAWN_WIDTH).zip(draws).enumerate() {
        let (logit, id) = match whole {
            Some((logits, width)) if !draw.of_candidates() => {
                let row = &logits[row * width..][..width.min(from.allowed as usize)];
                choose(tokens(row.iter().copied().zip(0..)), draw)
            }
            _ => choose(
                candidates(&tops[(from.first + row) * width..][..width]),
                draw,
            ),
        };
        out.copy_from_slice(&[id as f32, logit]);
    }
    Ok(())
}

/// As [`volley_ops::Ops::draw_edited`] says.
pub fn draw_edited(
    from: EditedRows<'_, Buf>,
    edits: &[Edit],
    draws: &[Draw],
    out: &mut Buf,
) -> Result<()> {
    let EditedRows {
        whole,
        tops,
        allowed,
        first,
    } = from;
    let (op, n, width) = ("draw_edited", draws.len(), whole.width());
    check(op, "edits", edits.len(), n)?;
    let rows = whole.view_mut(op, "whole", n, width)?;
    let mut own = Vec::with_capacity(n);
    for (row, edit) in rows.chunks_exact_mut(width.max(1)).zip(edits) {
        own.push(changed(op, row, edit)?);
    }
    top(whole, n, 0, allowed, tops)?;
    let rows = whole.view(op, "whole", n, width)?;
    let out = out.view_mut(op, "out", first + n, DRAWN_WIDTH)?;
    let out = out[first * DRAWN_WIDTH..].chunks_exact_mut(DRAWN_WIDTH);
    for (((row, own), draw), out) in rows.chunks_exact(width.max(1)).zip(own).zip(draws).zip(out) {
        let row = &row[..width.min(allowed as usize)];
        let (logit, id) = choose(tokens(row.iter().copied().zip(0..)), draw);
        let before = own.iter().find(|(token, _)| *token == id);
        let logit = match before {
            Some((_, own)) if logit.is_finite() => *own,
            _ => logit,
        };
        out.copy_from_slice(&[id as f32, logit]);
    }
    Ok(())
}

/// Changes a row; the logits that the changed tokens had.
fn changed(op: &'static str, row: &mut [f32], edit: &Edit) -> Result<Vec<(u32, f32)>> {
    let mut own = Vec::with_capacity(edit.changes.len());
    for change in &edit.changes {
        let token = change.token as usize;
        check_index(op, "token of a change", token, row.len())?;
        own.push((change.token, row[token]));
        row[token] = change.of(row[token]);
    }
    if edit.mask.is_some() {
        let out = (0..).zip(row).filter(|(token, _)| !edit.lets(*token));
        out.for_each(|(_, logit)| *logit = f32::NEG_INFINITY);
    }
    Ok(own)
}

/// Ids with those that were drawn in their places.
pub fn known(ids: &[u32], drawn: &Buf) -> Result<Vec<u32>> {
    let op = "embed_drawn";
    let drawn = drawn.all(op, "drawn", DRAWN_WIDTH)?;
    let known = |&id: &u32| match id & DRAWN {
        0 => Ok(id),
        _ => {
            let row = (id ^ DRAWN) as usize;
            check_index(op, "drawn row", row, drawn.len() / DRAWN_WIDTH)?;
            Ok(drawn[row * DRAWN_WIDTH] as u32)
        }
    };
    ids.iter().map(known).collect()
}

/// A token that may be drawn.
#[derive(Clone, Copy)]
struct Token {
    id: u32,
    logit: f32,
    /// Probability up to a common factor; the largest is 1.
    weight: f64,
}

/// The candidates of a row, all ranks together, by id.
fn candidates(tops: &[f32]) -> Vec<Token> {
    let pairs = tops.chunks_exact(TOP_WIDTH).flat_map(|top| {
        let (logits, rest) = top.split_at(CANDIDATES);
        let ids = rest.iter().map(|id| *id as u32);
        logits.iter().copied().zip(ids)
    });
    let mut tokens = tokens(pairs);
    keep_likeliest(&mut tokens, |rank, _| rank < CANDIDATES);
    tokens
}

/// Ids and logits of the candidates of a row, all ranks together, likeliest first.
pub fn ranked(tops: &[f32]) -> Vec<(u32, f32)> {
    let mut tokens = candidates(tops);
    tokens.sort_unstable_by(by_rank);
    tokens.iter().map(|token| (token.id, token.logit)).collect()
}

/// Those that have a logit, not yet weighed.
fn tokens(pairs: impl Iterator<Item = (f32, u32)>) -> Vec<Token> {
    let some = pairs.filter(|(logit, _)| *logit > f32::NEG_INFINITY);
    some.map(|(logit, id)| Token {
        id,
        logit: logit + 0.0,
        weight: 0.0,
    })
    .collect()
}

/// The likeliest first, ties by lowest id.
fn by_rank(a: &Token, b: &Token) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}

/// Keeps the likeliest as long as `keeps` says so of a rank and its token; leaves them by id.
fn keep_likeliest(tokens: &mut Vec<Token>, mut keeps: impl FnMut(usize, &Token) -> bool) {
    tokens.sort_unstable_by(by_rank);
    let end = (0..tokens.len()).find(|&rank| !keeps(rank, &tokens[rank]));
    tokens.truncate(end.unwrap_or(tokens.len()));
    tokens.sort_unstable_by_key(|token| token.id);
}

/// Logit and id of the token that is drawn among these, given by id.
fn choose(mut tokens: Vec<Token>, draw: &Draw) -> (f32, u32) {
    let Some(&likeliest) = tokens.iter().min_by(|a, b| by_rank(a, b)) else {
        return (f32::NEG_INFINITY, 0);
    };
    if draw.temperature == 0.0 {
        return (likeliest.logit, likeliest.id);
    }
    if draw.top_k > 0 {
        keep_likeliest(&mut tokens, |rank, _| rank < draw.top_k as usize);
    }
    for token in &mut tokens {
        let below = f64::from(token.logit) - f64::from(likeliest.logit);
        token.weight = (below / f64::from(draw.temperature)).exp();
    }
    let total = |tokens: &[Token]| tokens.iter().map(|token| token.weight).sum::<f64>();
    if draw.top_p < 1.0 {
        let total = total(&tokens);
        let mut before = 0.0;
        keep_likeliest(&mut tokens, |rank, token| {
            let keeps = rank == 0 || ((before / total) as f32) < draw.top_p;
            before += token.weight;
            keeps
        });
    }
    tokens.retain(|token| token.weight as f32 >= draw.min_p);
    let total = total(&tokens);
    let mut noise = Noise::new(draw);
    let (mut first, mut soonest) = (likeliest, f64::INFINITY);
    for token in tokens {
        let share = f64::from((token.weight / total) as f32);
        let arrival = -noise.uniform(token.id).ln() / share;
        if arrival < soonest {
            (first, soonest) = (token, arrival);
        }
    }
    (first.logit, first.id)
}

/// ChaCha with eight rounds: the seed is the key, the position the nonce, the token the counter.
struct Noise {
    generator: ChaCha8Rng,
    /// Token that it stands at.
    next: u32,
}

/// Going on to a token this near is cheaper than seeking it, which makes the noise of 32.
const NEAR: u32 = 32;

impl Noise {
    fn new(draw: &Draw) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&draw.seed.to_le_bytes());
        let mut generator = ChaCha8Rng::from_seed(key);
        generator.set_stream(draw.position);
        Self { generator, next: 0 }
    }

    /// In (0, 1).
    fn uniform(&mut self, token: u32) -> f64 {
        match token.checked_sub(self.next) {
            Some(ahead) if ahead <= NEAR => (0..ahead).for_each(|_| _ = self.generator.next_u64()),
            _ => self.generator.set_word_pos(2 * u128::from(token)),
        }
        self.next = token + 1;
        ((self.generator.next_u64() >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the numbers of sampling itself, which are part of its contract.
    #[test]
    fn noise_is_that_of_sampling() {
        let draw = Draw {
            temperature: 1.0,
            seed: 42,
            position: 7,
            ..Draw::GREEDY
        };
        let mut noise = Noise::new(&draw);
        let values = [noise.uniform(0), noise.uniform(1000)];
        assert_eq!(values, [0.18567938954440522, 0.16254615701137431]);
    }
}
