use volley_ops::{Batch, CANDIDATES, DRAWN, DRAWN_WIDTH, Dtype, Growth, Ops, Segment, TOP_WIDTH};
use volley_speculate::{Guess, best_first, surprisals};

use crate::common::{Random, cpu};

/// The tree is the one that the host makes of the same candidates, node by node, ties and tokens that cannot
/// come included; a plan for several trees is one for each.
#[test]
fn trees_are_those_of_the_host() {
    let ops = cpu();
    let mut random = Random::new(11);
    let mut shapes = std::collections::BTreeSet::new();
    for case in 0..300 {
        let depth = random.between(1, 15);
        let width = [5, 40, 64, 300][random.below(4)];
        let scale = [0.1, 2.0, 8.0][random.below(3)];
        let mut logits = random.values(2 * depth * width);
        for x in &mut logits {
            *x *= scale;
            match case % 4 {
                0 => *x = x.round(),
                1 if *x < -0.5 * scale => *x = f32::NEG_INFINITY,
                _ => {}
            }
        }
        let rows = 2 * depth;
        let mut tops = ops.alloc(rows, TOP_WIDTH, Dtype::F32).unwrap();
        let x = ops.upload(&logits, rows, width, Dtype::F32).unwrap();
        ops.top(&x, rows, 0, width as u32, &mut tops).unwrap();
        let candidates = random.between(1, width.min(CANDIDATES));
        let mut to = 3;
        let trees = [0, depth].map(|first| {
            let most = if candidates == 1 { depth } else { 63 };
            let tree = Growth {
                first,
                depth,
                budget: random.between(1, most),
                seeded: random.coin(),
                temperature: [1.0, 0.6, 30.0][random.below(3)],
                candidates,
                to,
            };
            to += tree.budget;
            tree
        });
        if !trees.iter().all(Growth::fills) {
            continue;
        }
        let mut out = ops.alloc(to, DRAWN_WIDTH, Dtype::F32).unwrap();
        ops.grow(&tops, &trees, &mut out).unwrap();
        let tops = ops.read(&tops, 0..rows).unwrap();
        for tree in trees {
            let rows = tops.chunks(TOP_WIDTH).skip(tree.first).take(depth);
            let marginals: Vec<Vec<Guess>> = rows.map(|top| guesses(top, &tree)).collect();
            let expected = best_first(&marginals, tree.budget, tree.seeded);
            let found = ops.read(&out, tree.to..tree.to + tree.budget).unwrap();
            let found: Vec<[u32; 2]> = found
                .chunks(2)
                .map(|row| [row[0], row[1]].map(|x| x as u32))
                .collect();
            let parents = expected.parents.unwrap();
            let expected: Vec<[u32; 2]> = expected
                .tokens
                .into_iter()
                .zip(parents)
                .map(<[u32; 2]>::from)
                .collect();
            assert_eq!(found, expected, "case {case}, {tree:?}");
            shapes.insert(found.iter().map(|node| node[1]).collect::<Vec<_>>());
        }
    }
    assert!(shapes.len() > 200, "{} shapes", shapes.len());
}

fn guesses(top: &[f32], tree: &Growth) -> Vec<Guess> {
    let logits = &top[..tree.candidates];
    let ids = &top[CANDIDATES..];
    let token = |(&logit, &id): (&f32, &f32)| match logit > f32::NEG_INFINITY {
        true => id as u32,
        false => 0,
    };
    let tokens = logits.iter().zip(ids).map(token);
    let guesses = tokens.zip(surprisals(logits, tree.temperature));
    guesses
        .map(|(token, surprisal)| Guess {
            token,
            score: -f64::from(surprisal),
        })
        .collect()
}

#[test]
fn what_was_planted_counts_for_that_batch_only() {
    let ops = cpu();
    let segment = |past, parents: [u32; 2]| Segment {
        rows: 0..3,
        slot: 0,
        past,
        blocks: vec![0],
        parents: Some(vec![None, Some(parents[0]), Some(parents[1])]),
    };
    let batch = |past| Batch {
        segments: vec![segment(past, [DRAWN | 1, DRAWN | 2])],
    };
    let drafts = ops
        .upload(&[9.0, 7.0, 5.0, 0.0, 6.0, 0.0], 3, 2, Dtype::F32)
        .unwrap();
    assert!(ops.begin(&batch(1)).is_err());
    ops.plant(&batch(1), &drafts).unwrap();
    ops.begin(&batch(1)).unwrap();
    assert!(ops.begin(&batch(2)).is_err());
    let beyond = Batch {
        segments: vec![segment(1, [DRAWN | 1, DRAWN | 3])],
    };
    assert!(ops.plant(&beyond, &drafts).is_err());
    // A row that no tree was grown into.
    let wrong = Batch {
        segments: vec![segment(1, [DRAWN, DRAWN | 1])],
    };
    assert!(ops.plant(&wrong, &drafts).is_err());
}
