//! Walks down verified drafts.

use volley_ops::{
    Batch, Chosen, DRAWN_WIDTH, Error, Keep, MOST_WALKED, Result, Segment, TOP_WIDTH, WALKED_WIDTH,
    Walk, WalkEnd,
};

use crate::buf::{Buf, check, check_index};
use crate::draw::{known, ranked};

/// As [`volley_ops::Ops::walk`] says, for this many ranks; comes to the kept rows.
pub fn walk(ranks: usize, batch: &Batch, walk: &Walk<'_, Buf>, out: &mut Buf) -> Result<Keep> {
    let (op, rows, segments) = ("walk", batch.rows(), batch.segments.len());
    check(op, "ids", walk.ids.len(), rows)?;
    check(op, "ends", walk.ends.len(), segments)?;
    let ids = known(walk.ids, walk.drafts)?;
    let chosen: Vec<u32> = match walk.chosen {
        Chosen::Likeliest(tops) => {
            let tops = tops.view(op, "tops", rows, ranks * TOP_WIDTH)?;
            let rows = tops.chunks_exact(ranks * TOP_WIDTH);
            let first = |row| ranked(row).first().map_or(0, |&(id, _)| id);
            rows.map(first).collect()
        }
        Chosen::Drawn(drawn) => {
            let drawn = drawn.view(op, "drawn", rows, DRAWN_WIDTH)?;
            let rows = drawn.chunks_exact(DRAWN_WIDTH);
            rows.map(|row| row[0] as u32).collect()
        }
    };
    let out = out.view_mut(op, "out", segments, WALKED_WIDTH)?;
    let mut keep = Keep::new();
    let places = batch.segments.iter().zip(walk.ends);
    for ((segment, end), out) in places.zip(out.chunks_exact_mut(WALKED_WIDTH)) {
        let count = segment.rows.len();
        check_index(op, "rows of a segment", count, MOST_WALKED + 1)?;
        check(op, "segments without rows", usize::from(count == 0), 0)?;
        check(
            op,
            "ends before the first row",
            usize::from(end.most == 0),
            0,
        )?;
        let rows = segment.rows.clone();
        let kept = path(segment, &ids[rows.clone()], &chosen[rows], end);
        out[0] = kept.len() as f32;
        let places = out[1..].iter_mut().zip(&kept);
        places.for_each(|(out, &row)| *out = row as f32);
        keep.push(kept);
    }
    Ok(keep)
}

/// The rows from the first one on.
fn path(segment: &Segment, ids: &[u32], chosen: &[u32], end: &WalkEnd<'_>) -> Vec<u32> {
    let mut kept = vec![0];
    let mut row = 0;
    while kept.len() < end.most && !end.stops.contains(&chosen[row]) {
        let holds =
            |&below: &usize| segment.parent(below) == Some(row) && ids[below] == chosen[row];
        let Some(below) = (row + 1..ids.len()).find(holds) else {
            break;
        };
        kept.push(below as u32);
        row = below;
    }
    kept
}

/// As [`volley_ops::Ops::gather_walked`] says.
pub fn gather(x: &Buf, batch: &Batch, keep: &Keep, counts: &[usize], out: &mut Buf) -> Result<()> {
    check(
        "gather_walked",
        "counts",
        counts.len(),
        batch.segments.len(),
    )?;
    let mut rows = Vec::new();
    for ((segment, kept), &count) in batch.segments.iter().zip(keep).zip(counts) {
        check_index("gather_walked", "count", count, segment.rows.len() + 1)?;
        let kept = kept.iter().chain(std::iter::repeat(&0)).take(count);
        rows.extend(kept.map(|row| segment.rows.start as u32 + row));
    }
    crate::rows::gather(x, &rows, out)
}

/// The error where kept rows are asked for that no walk has found.
pub fn unwalked(op: &'static str) -> Error {
    Error::Shape {
        op,
        what: "batch",
        expected: "the one that was walked last".to_string(),
        got: "another".to_string(),
    }
}
