use volley_ops::{
    Batch, CANDIDATES, Chosen, DRAWN, DRAWN_WIDTH, Dtype, Ops, Segment, TOP_WIDTH, WALKED_WIDTH,
    Walk, WalkEnd,
};
use volley_ops_candle::Buf;
use volley_speculate::{Distribution, Error, History, Proposal, Rule, cut, verify};

use crate::common::{Random, cpu, upload};

/// The rows are those that the host keeps of the same drafts and tokens, cut at the same ends; some of the
/// tokens, and of the parents, only the device knows.
#[test]
fn kept_rows_are_those_of_the_host() {
    let ops = cpu();
    let mut random = Random::new(5);
    let mut lengths = [0; 8];
    for case in 0..400 {
        let mut segments = Vec::new();
        let mut first = 0;
        for slot in 0..random.between(1, 4) {
            let rows = random.between(1, 40);
            let tree = (1..rows).map(|i| Some(random.between(i.saturating_sub(3), i - 1) as u32));
            let tree = [None].into_iter().chain(tree).collect();
            segments.push(Segment {
                rows: first..first + rows,
                slot,
                past: 3,
                blocks: vec![0; 4],
                parents: random.coin().then_some(tree),
            });
            first += rows;
        }
        let known = Batch { segments };
        let tokens: Vec<u32> = (0..first).map(|_| random.below(3) as u32).collect();
        let mut chosen: Vec<u32> = (0..first).map(|_| random.below(3) as u32).collect();
        for segment in &known.segments {
            let rows = segment.rows.clone();
            for below in (1..rows.len()).filter(|_| random.below(4) > 0) {
                let above = segment.parent(below).unwrap();
                chosen[rows.start + above] = tokens[rows.start + below];
            }
        }

        let parent = |segment: &Segment, i| segment.parent(i).unwrap_or(0) as f32;
        let rows = known
            .segments
            .iter()
            .flat_map(|s| s.rows.clone().map(|row| parent(s, row - s.rows.start)));
        let rows = tokens.iter().zip(rows);
        let drafts: Vec<f32> = rows.flat_map(|(&id, parent)| [id as f32, parent]).collect();
        let drafts = upload(&ops, &drafts, DRAWN_WIDTH);
        let mut batch = known.clone();
        for segment in &mut batch.segments {
            let rows = segment
                .rows
                .clone()
                .zip(segment.parents.iter_mut().flatten());
            for (row, parent) in rows.filter(|(row, _)| row % 2 == 0) {
                *parent = parent.map(|_| DRAWN | row as u32);
            }
        }
        ops.plant(&batch, &drafts).unwrap();
        let ids: Vec<u32> = (0..first as u32)
            .map(|row| match row % 3 {
                0 => DRAWN | row,
                _ => tokens[row as usize],
            })
            .collect();
        let stops: Vec<u32> = (0..random.below(2) as u32).collect();
        let ends: Vec<WalkEnd<'_>> = known
            .segments
            .iter()
            .map(|_| WalkEnd {
                most: random.between(1, 12),
                stops: &stops,
            })
            .collect();
        let drawn: Vec<f32> = chosen.iter().flat_map(|&id| [id as f32, 0.5]).collect();
        let drawn = upload(&ops, &drawn, DRAWN_WIDTH);
        let tops: Vec<f32> = chosen.iter().flat_map(|&id| candidates(id)).collect();
        let tops = upload(&ops, &tops, TOP_WIDTH);
        let chosen_by = match case % 2 {
            0 => Chosen::Drawn(&drawn),
            _ => Chosen::Likeliest(&tops),
        };
        let walk = Walk {
            ids: &ids,
            drafts: &drafts,
            chosen: chosen_by,
            ends: &ends,
        };
        let count = known.segments.len();
        let mut out = ops.alloc(count, WALKED_WIDTH, Dtype::F32).unwrap();
        ops.walk(&batch, &walk, &mut out).unwrap();
        let found = ops.read(&out, 0..count).unwrap();

        for ((segment, end), found) in known
            .segments
            .iter()
            .zip(&ends)
            .zip(found.chunks(WALKED_WIDTH))
        {
            let rows = segment.rows.clone();
            let parents = segment.parents.as_ref();
            let proposal = Proposal {
                tokens: tokens[rows.clone()][1..].to_vec(),
                parents: parents.map(|parents| parents[1..].iter().map(|p| p.unwrap()).collect()),
                distributions: None,
            };
            let target = |row: usize, _: &History| {
                Ok::<_, Error>(Distribution::one_hot(chosen[rows.start + row]))
            };
            let history = &mut History::new(&[1, 2, 3]);
            let commit = verify(&proposal, Rule::Match, 0, 4, history, target).unwrap();
            let expected = cut(&commit, end.stops, 0, end.most).keep;
            let kept: Vec<u32> = found[1..].iter().map(|&row| row as u32).collect();
            assert_eq!(
                kept[..found[0] as usize],
                expected,
                "case {case}, {segment:?}"
            );
            lengths[expected.len().min(7)] += 1;
        }
    }
    assert!(lengths[1..].iter().all(|&n| n > 3), "{lengths:?}");
}

/// A row of which this token is the likeliest.
fn candidates(id: u32) -> [f32; TOP_WIDTH] {
    let mut row = [0.0; TOP_WIDTH];
    for (rank, logit) in row[..CANDIDATES].iter_mut().enumerate() {
        *logit = -(rank as f32);
    }
    for (rank, token) in row[CANDIDATES..].iter_mut().enumerate() {
        *token = id as f32 + rank as f32;
    }
    row
}

/// What was walked counts for that batch only.
#[test]
fn kept_rows_that_nobody_walked_are_an_error() {
    let ops = cpu();
    let batch = |past| Batch {
        segments: vec![Segment {
            rows: 0..3,
            slot: 0,
            past,
            blocks: vec![0],
            parents: None,
        }],
    };
    let drafts = upload(&ops, &[1.0, 0.0, 2.0, 0.0, 3.0, 0.0], DRAWN_WIDTH);
    let end = WalkEnd {
        most: 9,
        stops: &[],
    };
    let (ends, before) = ([end], [WalkEnd { most: 0, ..end }]);
    let walk = |ids, ends| by_drawn(&drafts, ids, ends);
    let mut out = ops.alloc(1, WALKED_WIDTH, Dtype::F32).unwrap();
    let x = upload(&ops, &[10.0, 11.0, 12.0], 1);
    let mut gathered = upload(&ops, &[0.0; 3], 1);
    let error = ops
        .gather_walked(&x, &batch(1), &[3], &mut gathered)
        .unwrap_err();
    assert!(error.to_string().contains("walked last"), "{error}");
    ops.walk(&batch(1), &walk(&[7, 1, 3], &ends), &mut out)
        .unwrap();
    assert_eq!(ops.read(&out, 0..1).unwrap()[..3], [2.0, 0.0, 1.0]);
    ops.gather_walked(&x, &batch(1), &[2], &mut gathered)
        .unwrap();
    assert_eq!(ops.read(&gathered, 0..2).unwrap(), [10.0, 11.0]);
    assert!(
        ops.gather_walked(&x, &batch(2), &[2], &mut gathered)
            .is_err()
    );
    assert!(
        ops.gather_walked(&x, &batch(1), &[4], &mut gathered)
            .is_err()
    );
    let wrong = [
        walk(&[7, 1], &ends),
        walk(&[7, 1, 3], &[]),
        walk(&[7, 1, 3], &before),
        walk(&[7, 1, DRAWN | 3], &ends),
    ];
    for walk in &wrong {
        assert!(ops.walk(&batch(1), walk, &mut out).is_err(), "{walk:?}");
    }
}

fn by_drawn<'a>(drafts: &'a Buf, ids: &'a [u32], ends: &'a [WalkEnd<'a>]) -> Walk<'a, Buf> {
    Walk {
        ids,
        drafts,
        chosen: Chosen::Drawn(drafts),
        ends,
    }
}
