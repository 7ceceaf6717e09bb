//! Tokens drawn from rows that are changed first.

use rand::RngExt;
use volley_ops::{Change, DRAWN_WIDTH, Draw, Dtype, Edit, EditedRows, Ops, Result, TOP_WIDTH};

use super::Checks;
use crate::pair::{Devices, Pair};

const WARM: Draw = Draw {
    temperature: 1.0,
    ..Draw::GREEDY
};
const DRAWS: &[(&str, Draw)] = &[
    ("greedy", Draw::GREEDY),
    ("all", WARM),
    ("top 20", Draw { top_k: 20, ..WARM }),
    (
        "everything",
        Draw {
            temperature: 1.3,
            top_k: 300,
            top_p: 0.8,
            min_p: 0.01,
            ..WARM
        },
    ),
];

/// What is changed in a row of so many tokens.
type Make = fn(&mut Devices, usize) -> Edit;
const EDITS: &[(&str, Make)] = &[
    ("nothing", |_, _| Edit::default()),
    ("some", |d, width| Edit {
        changes: changes(d, width, 7),
        mask: None,
    }),
    ("every token", |d, width| Edit {
        changes: changes(d, width, 1),
        mask: None,
    }),
    ("some are ruled out", |d, width| Edit {
        changes: changes(d, width, 3)
            .into_iter()
            .map(|change| Change {
                bias: f32::NEG_INFINITY,
                ..change
            })
            .collect(),
        mask: None,
    }),
    ("masked", |d, width| Edit {
        changes: Vec::new(),
        mask: Some(mask(d, width, 3)),
    }),
    ("masked and changed", |d, width| Edit {
        changes: changes(d, width, 2),
        mask: Some(mask(d, width, 40)),
    }),
    ("one is left", |d, width| Edit {
        changes: changes(d, width, 5),
        mask: Some(only(d.rng.random_range(0..width as u32))),
    }),
    ("none is left", |d, width| Edit {
        changes: changes(d, width, 5),
        mask: Some(vec![0; width.div_ceil(32) / 2]),
    }),
    ("beyond all numbers", |d, width| Edit {
        changes: vec![Change {
            token: d.rng.random_range(0..width as u32),
            bias: f32::MAX,
            scale: 0.25,
            penalty: 0.0,
        }],
        mask: None,
    }),
    ("by turn", |d, width| match d.rng.random_range(0..4) {
        0 => Edit::default(),
        1 => Edit {
            changes: changes(d, width, 4),
            mask: None,
        },
        2 => Edit {
            changes: Vec::new(),
            mask: Some(mask(d, width, 9)),
        },
        _ => Edit {
            changes: changes(d, width, 50),
            mask: Some(mask(d, width, 2)),
        },
    }),
];

/// Bias and penalties of about one token in so many, in no order.
fn changes(d: &mut Devices, width: usize, one_in: usize) -> Vec<Change> {
    let start = d.rng.random_range(0..one_in);
    let tokens: Vec<u32> = (start..width).step_by(one_in).map(|id| id as u32).collect();
    let change = |token| Change {
        token,
        bias: [0.0, 3.0, -2.5][d.rng.random_range(0..3)],
        scale: [1.0, 1.3, 0.8][d.rng.random_range(0..3)],
        penalty: [0.0, 1.5, -0.7][d.rng.random_range(0..3)],
    };
    tokens.into_iter().rev().map(change).collect()
}

/// Lets about one token in so many be drawn, and one for certain.
fn mask(d: &mut Devices, width: usize, one_in: u32) -> Vec<u32> {
    let mut words = vec![0; width.div_ceil(32)];
    let certain = d.rng.random_range(0..width);
    for token in 0..width {
        if token == certain || d.rng.random_range(0..one_in) == 0 {
            words[token / 32] |= 1 << (token % 32);
        }
    }
    words
}

fn only(token: u32) -> Vec<u32> {
    let mut words = vec![0; token as usize / 32 + 1];
    words[token as usize / 32] = 1 << (token % 32);
    words
}

/// The tokens must be the same, their logits, and what is left of the rows, bit by bit.
pub fn edit(checks: &mut Checks) {
    let mut shapes = vec![(1, 5), (15, 33), (16, 64), (17, 65), (2, 9001)];
    if checks.full() {
        shapes.extend([
            (31, 700),
            (33, 4096),
            (1, 248_320),
            (15, 248_320),
            (16, 248_320),
            (17, 151_937),
        ]);
    } else {
        shapes.extend([(31, 40), (33, 100)]);
    }
    for (edited, make) in EDITS {
        for (name, draw) in DRAWS {
            for &(n, width) in &shapes {
                checks.case(
                    "edit",
                    format!("{n} rows of {width}, {edited}, {name}"),
                    |d| {
                        let edits: Vec<Edit> = (0..n).map(|_| make(d, width)).collect();
                        let logits = d.numbers(n * width, 6.0);
                        drawn(d, logits, width, width as u32, &edits, *draw, 0)
                    },
                );
            }
        }
    }
    checks.case(
        "edit",
        "rows apart, tokens that do not count".to_string(),
        |d| {
            let edits: Vec<Edit> = (0..5).map(|_| EDITS[5].1(d, 300)).collect();
            let logits = d.numbers(5 * 300, 6.0);
            drawn(d, logits, 300, 290, &edits, WARM, 3)
        },
    );
    // More than the table of changes holds at a time.
    let (n, width) = if checks.full() {
        (16, 248_320)
    } else {
        (5, 131_072)
    };
    checks.case("edit", format!("{n} rows of {width} in parts"), |d| {
        let edits: Vec<Edit> = (0..n).map(|_| EDITS[2].1(d, width)).collect();
        let logits = d.numbers(n * width, 12.0);
        drawn(d, logits, width, width as u32, &edits, WARM, 0)
    });
    checks.case("edit", "a token too many".to_string(), |d| {
        let edits = vec![Edit {
            changes: vec![Change {
                token: 100,
                bias: 0.0,
                scale: 1.0,
                penalty: 0.0,
            }],
            mask: None,
        }];
        let mut rows = Rows::new(d, vec![0.0; 100], 1, 100, 0)?;
        let mut refused = |edits: &[Edit]| {
            let said = rows.draw(d, 100, edits, &[WARM], 0);
            said.iter().all(Result::is_err)
        };
        let both = refused(&edits) && refused(&[]);
        Ok(vec![(f64::from(u8::from(!both)), 0.0)])
    });
}

/// Rows, what is found in them, and what is drawn.
struct Rows {
    whole: Pair,
    tops: Pair,
    out: Pair,
}

impl Rows {
    fn new(d: &Devices, logits: Vec<f32>, n: usize, width: usize, first: usize) -> Result<Self> {
        Ok(Self {
            whole: d.pair(logits, n, width, Dtype::F32)?,
            tops: d.output(n, TOP_WIDTH, Dtype::F32)?,
            out: d.output(first + n, DRAWN_WIDTH, Dtype::F32)?,
        })
    }

    /// What each device says to it.
    fn draw(
        &mut self,
        d: &Devices,
        allowed: u32,
        edits: &[Edit],
        draws: &[Draw],
        first: usize,
    ) -> [Result<()>; 2] {
        let Self { whole, tops, out } = self;
        let cpu = EditedRows {
            whole: &mut whole.cpu,
            tops: &mut tops.cpu,
            allowed,
            first,
        };
        let gpu = EditedRows {
            whole: &mut whole.gpu,
            tops: &mut tops.gpu,
            allowed,
            first,
        };
        [
            d.cpu.draw_edited(cpu, edits, draws, &mut out.cpu),
            d.gpu.draw_edited(gpu, edits, draws, &mut out.gpu),
        ]
    }
}

fn drawn(
    d: &mut Devices,
    logits: Vec<f32>,
    width: usize,
    allowed: u32,
    edits: &[Edit],
    draw: Draw,
    first: usize,
) -> Result<Vec<(f64, f64)>> {
    let n = edits.len();
    let draws: Vec<Draw> = (0..n as u64)
        .map(|row| Draw {
            seed: 77 ^ (row % 3),
            position: 500 + row,
            ..draw
        })
        .collect();
    let mut rows = Rows::new(d, logits, n, width, first)?;
    let [cpu, gpu] = rows.draw(d, allowed, edits, &draws, first);
    cpu.and(gpu)?;
    let read = |pair: &Pair, rows: std::ops::Range<usize>| -> Result<[Vec<u32>; 2]> {
        let bits = |values: Vec<f32>| values.iter().map(|x| (x + 0.0).to_bits()).collect();
        Ok([
            bits(d.cpu.read(&pair.cpu, rows.clone())?),
            bits(d.gpu.read(&pair.gpu, rows)?),
        ])
    };
    let tokens = read(&rows.out, first..first + n)?;
    let left = read(&rows.whole, 0..n)?;
    let before = read(&rows.out, 0..first)?;
    let untouched = before.iter().flatten().all(|x| f32::from_bits(*x).is_nan());
    let differ = |[cpu, gpu]: [Vec<u32>; 2]| f64::from(u8::from(cpu != gpu));
    Ok(vec![
        (differ(tokens), 0.0),
        (differ(left), 0.0),
        (f64::from(u8::from(!untouched)), 0.0),
    ])
}
