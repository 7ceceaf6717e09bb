//! Trees of drafts, grown from rows of candidates.

use volley_ops::{
    Batch, CANDIDATES, DRAWN, DRAWN_WIDTH, Draw, Error, Growth, Result, Segment, TOP_WIDTH,
};

use crate::buf::{Buf, check, check_index};
use crate::draw::ranked;

/// Units of a bit, and most of them that a token is behind the likeliest.
const BIT: u64 = 1 << 16;
const MOST: u64 = 60 * BIT;

/// As [`volley_ops::Ops::grow`] says, for this many ranks.
pub fn grow(ranks: usize, tops: &Buf, trees: &[Growth], out: &mut Buf) -> Result<()> {
    let op = "grow";
    for tree in trees {
        check(
            op,
            "trees with too few prefixes",
            usize::from(!tree.fills()),
            0,
        )?;
        check_index(op, "candidates", tree.candidates, CANDIDATES + 1)?;
        let (first, width) = (tree.first, ranks * TOP_WIDTH);
        let tops = tops.view(op, "tops", first + tree.depth, width)?;
        let rows = tops[first * width..].chunks_exact(width.max(1));
        let rows: Vec<Vec<Candidate>> = rows.map(|row| candidates(row, tree)).collect();
        let nodes = nodes(&rows, tree);
        let out = out.view_mut(op, "out", tree.to + nodes.len(), DRAWN_WIDTH)?;
        let out = out[tree.to * DRAWN_WIDTH..].chunks_exact_mut(DRAWN_WIDTH);
        for (out, node) in out.zip(&nodes) {
            let token = rows[node.depth][node.rank].token;
            out.copy_from_slice(&[token as f32, node.parent as f32]);
        }
    }
    Ok(())
}

/// The batch with the parents that were grown.
pub fn plant(batch: &Batch, drafts: &Buf) -> Result<Batch> {
    let op = "plant";
    let drafts = drafts.all(op, "drafts", DRAWN_WIDTH)?;
    let known = |parent: Option<u32>| match parent {
        Some(row) if row & DRAWN != 0 => {
            let row = (row ^ DRAWN) as usize;
            check_index(op, "grown row", row, drafts.len() / DRAWN_WIDTH)?;
            Ok(Some(drafts[row * DRAWN_WIDTH + 1] as u32))
        }
        parent => Ok(parent),
    };
    let segment = |segment: &Segment| {
        let parents = segment.parents.as_ref().map(|parents| {
            let parents = parents.iter().copied();
            parents.map(known).collect::<Result<_>>()
        });
        Ok(Segment {
            parents: parents.transpose()?,
            ..segment.clone()
        })
    };
    let segments = batch.segments.iter().map(segment);
    Ok(Batch {
        segments: segments.collect::<Result<_>>()?,
    })
}

/// Draws with the positions that rows from `first` on have in the batch.
pub fn place(op: &'static str, batch: &Batch, first: usize, draws: &[Draw]) -> Result<Vec<Draw>> {
    let place = |(row, draw): (usize, &Draw)| {
        if draw.position != Draw::BEHIND_ROW {
            return Ok(*draw);
        }
        check_index(op, "row of a draw", row, batch.rows())?;
        let mut segments = batch.segments.iter();
        let segment = segments.find(|segment| segment.rows.contains(&row));
        let segment = segment.expect("rows tile the batch: this is a bug");
        Ok(Draw {
            position: segment.position(row - segment.rows.start) as u64 + 1,
            ..*draw
        })
    };
    (first..).zip(draws).map(place).collect()
}

/// The error of a pass over a tree that nobody planted.
pub fn unplanted(op: &'static str) -> Error {
    Error::Shape {
        op,
        what: "batch",
        expected: "one whose parents are known, or were planted".to_string(),
        got: "another".to_string(),
    }
}

#[derive(Clone, Copy)]
struct Candidate {
    token: u32,
    surprisal: u64,
}

/// The candidates of a row, all ranks together, likeliest first, with their surprisals.
fn candidates(row: &[f32], tree: &Growth) -> Vec<Candidate> {
    let mut ranked = ranked(row);
    ranked.resize(tree.candidates, (0, f32::NEG_INFINITY));
    let largest = ranked.first().map_or(0.0, |&(_, logit)| logit);
    let behind = |&(_, logit): &(u32, f32)| {
        let units = (largest - logit) * tree.scale();
        if units < MOST as f32 {
            units as u64
        } else {
            MOST
        }
    };
    let behind: Vec<u64> = ranked.iter().map(behind).collect();
    let total = log2(behind.iter().map(|&units| weight(units)).sum());
    let pairs = ranked.iter().zip(behind);
    pairs
        .map(|(&(token, _), behind)| Candidate {
            token,
            surprisal: behind + total,
        })
        .collect()
}

/// `2^-x` in units of 2^-30, a cubic between whole bits.
fn weight(units: u64) -> u64 {
    let (bits, x) = (units / BIT, units % BIT);
    let quadratic = 248_207_216 - x * 42_480_028 / BIT;
    let cubic = 742_598_100 - x * quadratic / BIT;
    ((1 << 30) - x * cubic / BIT) >> bits
}

/// The logarithm of a sum of weights, of one at least.
fn log2(sum: u64) -> u64 {
    let sum = sum.max(1 << 30);
    let bits = u64::from(sum.ilog2());
    // The first 16 bits behind the leading one.
    let x = (sum >> (bits - 16)) % BIT;
    let bend = (x * (BIT - x) / BIT) * (27_582 - x * 10_249 / BIT) / BIT;
    (bits - 30) * BIT + x + bend
}

/// A prefix: a candidate behind the prefix in row `parent`.
#[derive(Clone, Copy)]
struct Node {
    surprisal: u64,
    parent: usize,
    depth: usize,
    rank: usize,
}

/// The nodes of a tree, in order.
fn nodes(rows: &[Vec<Candidate>], tree: &Growth) -> Vec<Node> {
    let node = |above: u64, parent, depth: usize, rank: usize| {
        let candidate = rows.get(depth)?.get(rank)?;
        Some(Node {
            surprisal: above + candidate.surprisal,
            parent,
            depth,
            rank,
        })
    };
    let sibling = |of: &Node| {
        let above = of.surprisal - rows[of.depth][of.rank].surprisal;
        node(above, of.parent, of.depth, of.rank + 1)
    };
    let mut nodes: Vec<Node> = Vec::with_capacity(tree.budget);
    // What may be added, in the order of becoming so.
    let mut open = Vec::new();
    if tree.seeded {
        let mut next = node(0, 0, 0, 0);
        while let Some(link) = next.filter(|_| nodes.len() < tree.budget) {
            nodes.push(link);
            next = node(link.surprisal, nodes.len(), link.depth + 1, 0);
        }
        open.extend(nodes.iter().filter_map(sibling));
    } else {
        open.extend(node(0, 0, 0, 0));
    }
    while nodes.len() < tree.budget {
        // The first one of the least.
        let least = (0..open.len()).min_by_key(|&at| open[at].surprisal);
        let Some(least) = least else {
            break;
        };
        let added = open.remove(least);
        nodes.push(added);
        open.extend(sibling(&added));
        open.extend(node(added.surprisal, nodes.len(), added.depth + 1, 0));
    }
    nodes
}
