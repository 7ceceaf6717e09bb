use volley_ops::{
    Batch, CANDIDATES, Chosen, DRAWN_WIDTH, Draw, DrawFrom, Dtype, Error, Growth, NormKind, Ops,
    Result, Segment, TOP_WIDTH, WALKED_WIDTH, Walk, WalkEnd,
};

use super::Shapes;
use super::clock::{Clock, Work};

const EPS: f32 = 1e-6;
/// Of the largest tree, without the anchor.
const MOST_NODES: usize = 63;

pub fn time(clock: &mut Clock, shapes: &Shapes) -> Result<()> {
    for rows in [1, shapes.block, shapes.chunk] {
        norms(clock, shapes, rows)?;
    }
    for rows in [1, shapes.block] {
        tops(clock, shapes.vocabulary, rows)?;
    }
    for (rows, tree) in [(shapes.block, false), (32, true), (1 + MOST_NODES, true)] {
        walks(clock, rows, tree)?;
    }
    Ok(())
}

fn norms(clock: &mut Clock, shapes: &Shapes, rows: usize) -> Result<()> {
    let ops = clock.ops;
    let (hidden, intermediate, gdn) = (shapes.hidden, shapes.intermediate, shapes.gdn);
    let work = |kernel, width: usize, per_value| Work {
        kernel,
        case: format!("{rows} x {width}"),
        bytes: rows * width * per_value,
        flop: 0,
    };
    let (x, w) = (
        clock.activations(rows, hidden)?,
        clock.activations(1, hidden)?,
    );
    let mut residual = clock.activations(rows, hidden)?;
    let mut out = ops.alloc(rows, hidden, Dtype::Activation)?;
    let kind = NormKind::ZeroCentred;
    clock.time(work("rms_norm", hidden, 4), 1, |_| {
        ops.rms_norm(&x, rows, &w, kind, EPS, &mut out)
    })?;
    clock.time(work("add_rms_norm", hidden, 8), 1, |_| {
        ops.add_rms_norm(&x, rows, &mut residual, &w, kind, EPS, &mut out)
    })?;
    let wide = clock.activations(rows, 2 * intermediate)?;
    let mut narrow = ops.alloc(rows, intermediate, Dtype::Activation)?;
    clock.time(work("swiglu", intermediate, 6), 1, |_| {
        ops.swiglu(&wide, rows, &mut narrow)
    })?;
    let proj = clock.activations(rows, gdn.proj_width())?;
    let (y, head) = (
        clock.activations(rows, gdn.value_width())?,
        clock.floats(1, gdn.value_dim)?,
    );
    let mut normed = ops.alloc(rows, gdn.value_width(), Dtype::Activation)?;
    clock
        .time(work("gated_norm", gdn.value_width(), 6), 1, |_| {
            ops.gated_norm(gdn, &y, &proj, rows, &head, EPS, &mut normed)
        })
        .map(drop)
}

/// Candidates of rows of logits, tokens drawn from them, and trees that grow from them.
fn tops(clock: &mut Clock, vocabulary: usize, rows: usize) -> Result<()> {
    let ops = clock.ops;
    let logits = clock.floats(rows, vocabulary)?;
    let mut top = ops.alloc(rows, TOP_WIDTH, Dtype::F32)?;
    let mut drawn = ops.alloc(rows, DRAWN_WIDTH, Dtype::F32)?;
    let work = Work {
        kernel: "top",
        case: format!("{rows} x {vocabulary}"),
        bytes: 4 * rows * vocabulary,
        flop: 0,
    };
    clock.time(work, 1, |_| {
        ops.top(&logits, rows, 0, vocabulary as u32, &mut top)
    })?;
    let few = Draw {
        temperature: 0.7,
        top_k: 20,
        top_p: 0.8,
        seed: 1,
        ..Draw::GREEDY
    };
    let all = Draw {
        temperature: 1.0,
        ..Draw::GREEDY
    };
    let nucleus = Draw { top_p: 0.9, ..all };
    let both = Draw {
        top_k: 1000,
        ..nucleus
    };
    for (what, draw) in [
        ("candidates", few),
        ("whole rows", all),
        ("whole rows, top-p", nucleus),
        ("whole rows, top-k and top-p", both),
    ] {
        let from = DrawFrom {
            tops: &top,
            whole: Some(&logits),
            allowed: vocabulary as u32,
            first: 0,
        };
        let draws = vec![draw; rows];
        ops.draw(&from, &draws, &mut drawn)?;
        let width = if draw.of_candidates() {
            TOP_WIDTH
        } else {
            vocabulary
        };
        let work = Work {
            kernel: "draw",
            case: format!("{rows} x {width}, {what}"),
            bytes: 4 * rows * width,
            flop: 0,
        };
        clock.time(work, 1, |_| ops.draw_again(&from, &draws, &mut drawn))?;
    }
    let mut out = ops.alloc(MOST_NODES, DRAWN_WIDTH, Dtype::F32)?;
    for budget in [31, MOST_NODES] {
        let tree = Growth {
            first: 0,
            depth: rows.min(budget),
            budget,
            seeded: true,
            temperature: 1.0,
            candidates: CANDIDATES,
            to: 0,
        };
        let work = Work {
            kernel: "grow",
            case: format!("{budget} nodes, {rows} rows"),
            bytes: 4 * (rows * TOP_WIDTH + budget * DRAWN_WIDTH),
            flop: 0,
        };
        clock.time(work, 1, |_| ops.grow(&top, &[tree], &mut out))?;
    }
    Ok(())
}

/// Walks down all rows of a chain, or to the last leaf of a tree; what they need is copied each time.
fn walks(clock: &mut Clock, rows: usize, tree: bool) -> Result<()> {
    let ops = clock.ops;
    let above = |row: usize| row.checked_sub(1 + row % 2).map(|row| row as u32);
    let batch = Batch {
        segments: vec![Segment {
            rows: 0..rows,
            slot: 0,
            past: 0,
            blocks: (0..rows.div_ceil(ops.block_size()) as u32).collect(),
            parents: tree.then(|| (0..rows).map(above).collect()),
        }],
    };
    let ids = vec![7; rows];
    let drawn = vec![7.0; rows * DRAWN_WIDTH];
    let drawn = ops.upload(&drawn, rows, DRAWN_WIDTH, Dtype::F32)?;
    let mut out = ops.alloc(1, WALKED_WIDTH, Dtype::F32)?;
    let ends = [WalkEnd {
        most: rows,
        stops: &[1, 2],
    }];
    let walk = Walk {
        ids: &ids,
        drafts: &drawn,
        chosen: Chosen::Drawn(&drawn),
        ends: &ends,
    };
    ops.recorded(&mut Default::default(), &batch, None, &mut || {
        Ok::<_, Error>(())
    })?;
    let work = Work {
        kernel: "walk",
        case: format!("{rows} rows{}", if tree { ", tree" } else { "" }),
        bytes: 4 * rows * (2 + DRAWN_WIDTH),
        flop: 0,
    };
    clock
        .time(work, 1, |_| ops.walk(&batch, &walk, &mut out))
        .map(drop)
}
