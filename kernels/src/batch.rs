//! A batch as the kernels read it: flat tables, and the facts that choose kernels and grids.

use bytemuck::{bytes_of, cast_slice};
use volley_ops::{Batch, DRAWN, Keep, Result, Segment};

use crate::dims::{check, check_index, refuse};
use crate::params::{BLOCK_TOKENS, TREE_ROWS};

/// What the host needs to know of a batch once its tables are on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Rows of the pass.
    pub rows: usize,
    /// Segments of the pass.
    pub segments: usize,
    /// Rows of the longest segment.
    pub longest: usize,
    /// Segments that are trees.
    pub trees: usize,
    /// Bound of the tokens, context and rows, of a segment: of [`token_bucket`]'s values.
    pub tokens: usize,
    /// One more than the greatest slot.
    pub slots: usize,
    /// Whether a slot belongs to two segments.
    pub shared_slot: bool,
    /// One more than the greatest cache block.
    pub blocks: usize,
    /// Blocks missing from the tables of all segments.
    pub missing_blocks: usize,
}

/// Where the tables of a pass lie in one buffer. Offsets depend on buckets of the numbers of rows
/// and segments only, so passes of one bucket find theirs in the same places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    rows: usize,
    segments: usize,
}

/// Longest context that grids tell apart.
const MOST_TOKENS: usize = 4096;

/// Bucket of a context: what may decide a grid. Passes of one bucket and shape have the same grids,
/// so that one record serves them all, and recorded or not they round the same way.
pub fn token_bucket(tokens: usize) -> usize {
    tokens.next_power_of_two().clamp(64, MOST_TOKENS)
}

const SEGMENT_BYTES: usize = 24;

impl Layout {
    /// For so many rows and segments.
    pub fn new(rows: usize, segments: usize) -> Self {
        Self {
            rows: rows.next_power_of_two().max(16),
            segments: segments.next_power_of_two(),
        }
    }

    pub fn row_ancestors(&self) -> usize {
        0
    }

    pub fn segments(&self) -> usize {
        8 * self.rows
    }

    pub fn row_segment(&self) -> usize {
        self.segments() + SEGMENT_BYTES * self.segments
    }

    pub fn row_position(&self) -> usize {
        self.row_segment() + 4 * self.rows
    }

    pub fn row_parent(&self) -> usize {
        self.row_position() + 4 * self.rows
    }

    pub fn row_place(&self) -> usize {
        self.row_parent() + 4 * self.rows
    }

    pub fn kept_counts(&self) -> usize {
        self.row_place() + 4 * self.rows
    }

    pub fn kept(&self) -> usize {
        self.kept_counts() + 4 * self.segments
    }

    pub fn blocks(&self) -> usize {
        self.kept() + 4 * self.rows
    }
}

/// A batch encoded.
pub struct Encoded {
    /// Where the tables lie in `bytes`.
    pub layout: Layout,
    /// What the host needs to know.
    pub facts: Facts,
    /// The tables.
    pub bytes: Vec<u8>,
}

/// Checks a batch and lays out its tables.
pub fn encode(op: &'static str, batch: &Batch) -> Result<Encoded> {
    check_segments(op, batch)?;
    let layout = Layout::new(batch.rows(), batch.segments.len());
    let mut bytes = vec![0; layout.blocks()];
    let mut facts = Facts {
        rows: batch.rows(),
        segments: batch.segments.len(),
        ..Facts::default()
    };
    let mut blocks: Vec<u32> = Vec::new();
    for (index, segment) in batch.segments.iter().enumerate() {
        let rows = segment.rows.len();
        let head = [
            segment.rows.start as i32,
            rows as i32,
            segment.slot as i32,
            segment.past as i32,
            blocks.len() as i32,
            i32::from(segment.parents.is_some()),
        ];
        put(
            &mut bytes,
            layout.segments() + SEGMENT_BYTES * index,
            bytes_of(&head),
        );
        let depths = depths(segment);
        let ancestors = ancestors(segment);
        for i in 0..rows {
            let row = segment.rows.start + i;
            // Of a tree that was grown a row of the drafts, until it is planted.
            let parent = segment.parent(i).map_or(-1, |p| p as u32 as i32);
            let position = (segment.past + depths[i]) as i32;
            put(
                &mut bytes,
                layout.row_ancestors() + 8 * row,
                &ancestors[i].to_le_bytes(),
            );
            put(
                &mut bytes,
                layout.row_segment() + 4 * row,
                &(index as i32).to_le_bytes(),
            );
            put(
                &mut bytes,
                layout.row_position() + 4 * row,
                &position.to_le_bytes(),
            );
            put(
                &mut bytes,
                layout.row_parent() + 4 * row,
                &parent.to_le_bytes(),
            );
            let place = place(segment, segment.past + i).unwrap_or(0);
            put(
                &mut bytes,
                layout.row_place() + 4 * row,
                &place.to_le_bytes(),
            );
        }
        let tokens = segment.past + rows;
        let needed = tokens.div_ceil(BLOCK_TOKENS);
        let present = &segment.blocks[..needed.min(segment.blocks.len())];
        facts.longest = facts.longest.max(rows);
        facts.trees += usize::from(segment.parents.is_some());
        facts.tokens = facts.tokens.max(token_bucket(tokens));
        facts.shared_slot |= batch.segments[..index]
            .iter()
            .any(|s| s.slot == segment.slot);
        facts.slots = facts.slots.max(segment.slot + 1);
        facts.missing_blocks += needed - present.len();
        facts.blocks = present
            .iter()
            .fold(facts.blocks, |most, &b| most.max(b as usize + 1));
        blocks.extend(present);
    }
    bytes.extend_from_slice(cast_slice(&blocks));
    Ok(Encoded {
        layout,
        facts,
        bytes,
    })
}

/// Kept rows encoded, from [`Layout::kept_counts`] on: how many each segment has; and which, from its first
/// row on.
pub fn encode_keep(
    op: &'static str,
    layout: Layout,
    batch: &Batch,
    keep: &Keep,
) -> Result<Vec<u8>> {
    check_keep(op, batch, keep)?;
    let mut words = vec![0; layout.segments + batch.rows()];
    for (i, (segment, kept)) in batch.segments.iter().zip(keep).enumerate() {
        words[i] = kept.len() as u32;
        words[layout.segments + segment.rows.start..][..kept.len()].copy_from_slice(kept);
    }
    Ok(cast_slice(&words).to_vec())
}

/// Place of a token of the segment in the cache, in tokens; none without its block.
fn place(segment: &Segment, token: usize) -> Option<u32> {
    let block = *segment.blocks.get(token / BLOCK_TOKENS)?;
    Some(block * BLOCK_TOKENS as u32 + (token % BLOCK_TOKENS) as u32)
}

/// Parents by row. Those that were grown count as the row before, until they are planted.
fn parent(segment: &Segment, i: usize) -> Option<usize> {
    let parent = segment.parent(i)?;
    Some(if parent < i { parent } else { i - 1 })
}

fn depths(segment: &Segment) -> Vec<usize> {
    let mut depths = Vec::with_capacity(segment.rows.len());
    for i in 0..segment.rows.len() {
        depths.push(parent(segment, i).map_or(0, |parent| depths[parent] + 1));
    }
    depths
}

/// One word per row with the bits of its ancestors and its own. Rows beyond the word (long chains,
/// which no kernel asks it for) have none.
fn ancestors(segment: &Segment) -> Vec<u64> {
    let mut words: Vec<u64> = Vec::with_capacity(segment.rows.len());
    for i in 0..segment.rows.len() {
        let own = if i < TREE_ROWS { 1 << i } else { 0 };
        words.push(own | parent(segment, i).map_or(0, |parent| words[parent]));
    }
    words
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// The ranges tile `0..rows`, parents come before their children, trees fit a word.
fn check_segments(op: &'static str, batch: &Batch) -> Result<()> {
    let mut next = 0;
    for segment in &batch.segments {
        check(op, "first row of a segment", segment.rows.start, next)?;
        if segment.rows.end < next {
            let got = segment.rows.end.to_string();
            return refuse(op, "last row of a segment", format!("at least {next}"), got);
        }
        next = segment.rows.end;
        let Some(parents) = &segment.parents else {
            continue;
        };
        check(op, "number of parents", parents.len(), segment.rows.len())?;
        check_index(op, "rows of a tree", parents.len(), TREE_ROWS + 1)?;
        for (i, parent) in parents.iter().enumerate() {
            let known = parent.filter(|parent| parent & DRAWN == 0);
            if let Some(parent) = known.filter(|&p| p as usize >= i) {
                let expected = format!("a row before {i}");
                return refuse(op, "parent of a row", expected, parent.to_string());
            }
        }
    }
    Ok(())
}

/// The kept rows of each segment are a path that begins at the context.
fn check_keep(op: &'static str, batch: &Batch, keep: &Keep) -> Result<()> {
    check(op, "segments of keep", keep.len(), batch.segments.len())?;
    for (segment, kept) in batch.segments.iter().zip(keep) {
        let mut last = None;
        for &row in kept {
            let row = row as usize;
            check_index(op, "kept row", row, segment.rows.len())?;
            if segment.parent(row) != last {
                let expected = format!("a child of {last:?}");
                return refuse(op, "kept row", expected, row.to_string());
            }
            last = Some(row);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(bytes: &[u8], at: usize) -> i32 {
        i32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
    }

    fn long_word(bytes: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
    }

    fn two() -> Batch {
        Batch {
            segments: vec![
                Segment {
                    rows: 0..3,
                    slot: 4,
                    past: 15,
                    blocks: vec![7, 2],
                    parents: None,
                },
                Segment {
                    rows: 3..7,
                    slot: 1,
                    past: 32,
                    blocks: vec![9, 8, 3],
                    parents: Some(vec![None, Some(0), Some(0), Some(2)]),
                },
            ],
        }
    }

    #[test]
    fn rows_know_their_place_position_parent_and_ancestors() {
        let batch = two();
        let encoded = encode("begin", &batch).expect("a good batch");
        let (bytes, layout) = (&encoded.bytes, encoded.layout);
        let column = |at: usize| {
            (0..7)
                .map(|row| word(bytes, at + 4 * row))
                .collect::<Vec<_>>()
        };
        assert_eq!(column(layout.row_segment()), [0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(column(layout.row_position()), [15, 16, 17, 32, 33, 33, 34]);
        assert_eq!(column(layout.row_parent()), [-1, 0, 1, -1, 0, 0, 2]);
        let places = [
            7 * 16 + 15,
            2 * 16,
            2 * 16 + 1,
            3 * 16,
            3 * 16 + 1,
            3 * 16 + 2,
            3 * 16 + 3,
        ];
        assert_eq!(column(layout.row_place()), places);
        let ancestors: Vec<u64> = (0..7)
            .map(|row| long_word(bytes, layout.row_ancestors() + 8 * row))
            .collect();
        assert_eq!(ancestors, [0b1, 0b11, 0b111, 0b1, 0b11, 0b101, 0b1101]);
        let second: Vec<i32> = (0..6)
            .map(|field| word(bytes, layout.segments() + SEGMENT_BYTES + 4 * field))
            .collect();
        assert_eq!(second, [3, 4, 1, 32, 2, 1]);
        let blocks: Vec<i32> = (0..5)
            .map(|i| word(bytes, layout.blocks() + 4 * i))
            .collect();
        assert_eq!(blocks, [7, 2, 9, 8, 3]);
    }

    #[test]
    fn facts_of_a_batch() {
        let facts = encode("begin", &two()).expect("a good batch").facts;
        let expected = Facts {
            rows: 7,
            segments: 2,
            longest: 4,
            trees: 1,
            tokens: 64,
            slots: 5,
            shared_slot: false,
            blocks: 10,
            missing_blocks: 0,
        };
        assert_eq!(facts, expected);
    }

    #[test]
    fn buckets_grow_with_the_context_up_to_a_bound() {
        let buckets = [1, 64, 65, 300, 512, 4095, 4097, 200_000].map(token_bucket);
        assert_eq!(buckets, [64, 64, 128, 512, 512, 4096, 4096, 4096]);
    }

    #[test]
    fn ancestors_agree_with_the_walk_from_parent_to_parent() {
        let parents = (0..64u32)
            .map(|i| i.checked_sub(1 + i % 5).filter(|_| i % 11 != 0))
            .collect();
        let segment = Segment {
            rows: 0..64,
            slot: 0,
            past: 3,
            blocks: vec![],
            parents: Some(parents),
        };
        let (words, depths) = (ancestors(&segment), depths(&segment));
        for i in 0..64 {
            let walk = std::iter::successors(Some(i), |&row| segment.parent(row));
            let expected = walk.fold(0, |word, row| word | 1u64 << row);
            assert_eq!(words[i], expected, "row {i}");
            assert_eq!(depths[i], segment.depth(i), "row {i}");
        }
    }

    #[test]
    fn kept_rows_begin_where_their_segments_do() {
        let keep = vec![vec![0, 1], vec![0, 2, 3]];
        let layout = Layout::new(7, 2);
        let bytes = encode_keep("commit", layout, &two(), &keep).expect("two paths");
        let words: Vec<i32> = (0..9).map(|i| word(&bytes, 4 * i)).collect();
        assert_eq!(words, [2, 3, 0, 1, 0, 0, 2, 3, 0]);
        let broken = vec![vec![1], vec![]];
        let message = encode_keep("commit", layout, &two(), &broken).map_err(|e| e.to_string());
        assert_eq!(
            message.unwrap_err(),
            "commit: kept row is 1, expected a child of None"
        );
    }

    #[test]
    fn missing_blocks_are_counted() {
        let mut batch = two();
        batch.segments[0].blocks.pop();
        assert_eq!(
            encode("begin", &batch)
                .expect("still a batch")
                .facts
                .missing_blocks,
            1
        );
    }
}
