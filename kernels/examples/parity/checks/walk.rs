//! Walks down verified drafts, and what goes on from the rows on the way.

use std::path::Path;

use rand::RngExt;
use volley_model::{Drafter, Drawn, Target};
use volley_ops::{
    AttentionDims, Batch, CANDIDATES, Chosen, DRAWN, DRAWN_WIDTH, Draw, Dtype, Error, Growth, Keep,
    Ops, Result, Segment, TOP_WIDTH, WALKED_WIDTH, Walk, WalkEnd, walked,
};

use super::Checks;
use super::attention::{attention_dims, filled, seen};
use super::model::{self, BLOCK, PROMPTS, VOCAB, failed, prompted, states};
use crate::pair::{Devices, Shape, batch};

/// The same rows, caches and gathered rows.
pub fn walk(checks: &mut Checks) {
    let (chain, tree) = (Shape::chain, Shape::tree);
    let shapes = [
        vec![chain(1, 0)],
        vec![chain(16, 20)],
        vec![tree(64, 3)],
        vec![chain(64, 100), tree(1, 4), chain(1, 0), tree(23, 7)],
        vec![
            tree(32, 9),
            tree(16, 0),
            chain(16, 5),
            tree(64, 40),
            chain(3, 3),
        ],
    ];
    let dims = attention_dims(checks)[0];
    for (i, shapes) in shapes.iter().enumerate() {
        for drawn in [false, true] {
            for ends in [false, true] {
                let case = format!("{shapes:?}, drawn {drawn}, ends {ends}");
                checks.case("walk", case, |d| walk_of(d, dims, shapes, [drawn, ends], i));
            }
        }
    }
    checks.case("walk", "what is not there".to_string(), refused);
}

fn walk_of(
    d: &mut Devices,
    dims: AttentionDims,
    shapes: &[Shape],
    [drawn, ends]: [bool; 2],
    salt: usize,
) -> Result<Vec<(f64, f64)>> {
    let (known, blocks, _) = batch(d, shapes);
    let n = known.rows();
    let width = 40;
    // Rows name each other's tokens, so that many stand; some of them only the device knows.
    let tokens: Vec<u32> = (0..n).map(|i| ((i * 7 + salt) % width) as u32).collect();
    let ids: Vec<u32> = (0..n as u32)
        .map(|i| match i % 3 {
            0 => DRAWN | i,
            _ => tokens[i as usize],
        })
        .collect();
    let mut drafts: Vec<f32> = tokens.iter().flat_map(|&id| [id as f32, 0.0]).collect();
    // And some of their parents.
    let mut batch = known.clone();
    for segment in &mut batch.segments {
        let parents = segment.parents.iter_mut().flatten();
        for (row, parent) in segment.rows.clone().zip(parents) {
            if let Some(known) = parent.filter(|_| drawn && row % 2 == 1) {
                drafts[2 * row + 1] = known as f32;
                *parent = Some(DRAWN | row as u32);
            }
        }
    }
    let drafts = d.pair(drafts, n, DRAWN_WIDTH, Dtype::F32)?;
    let mut chosen = vec![0; n];
    for segment in &known.segments {
        for row in 0..segment.rows.len() {
            let below: Vec<usize> = (row + 1..segment.rows.len())
                .filter(|&below| segment.parent(below) == Some(row))
                .collect();
            chosen[segment.rows.start + row] = match below.len() {
                some if some > 0 && d.rng.random_range(0..10) > 0 => {
                    tokens[segment.rows.start + below[d.rng.random_range(0..some)]]
                }
                _ => d.rng.random_range(0..width as u32),
            };
        }
    }
    let values = match drawn {
        true => chosen.iter().flat_map(|&id| [id as f32, 1.0]).collect(),
        false => tops_of(d, &chosen, width)?,
    };
    let chosen_width = if drawn { DRAWN_WIDTH } else { TOP_WIDTH };
    let choices = d.pair(values, n, chosen_width, Dtype::F32)?;
    let stops: Vec<u32> = (0..if ends { 4 } else { 0 }).map(|i| 9 * i).collect();
    let ends: Vec<WalkEnd<'_>> = (0..batch.segments.len())
        .map(|i| WalkEnd {
            most: if ends { 1 + 3 * i } else { 1 << 20 },
            stops: &stops[..stops.len().min(2 * i)],
        })
        .collect();
    let mut out = d.output(batch.segments.len(), WALKED_WIDTH, Dtype::F32)?;

    let x = d.random(n, 96, 1.0)?;
    let mut kv = filled(d, dims, &known, blocks)?;
    let counts = batch.segments.iter().map(|s| s.rows.len().min(BLOCK));
    let counts: Vec<usize> = counts.collect();
    let most = counts.iter().sum();
    let mut gathered = d.output(most, 96, Dtype::Activation)?;

    macro_rules! on {
        ($device:ident) => {{
            let (ops, keep) = (d.$device, walked(&batch));
            let chosen = match drawn {
                true => Chosen::Drawn(&choices.$device),
                false => Chosen::Likeliest(&choices.$device),
            };
            let walk = Walk {
                ids: &ids,
                drafts: &drafts.$device,
                chosen,
                ends: &ends,
            };
            if batch.is_grown() {
                ops.plant(&batch, &drafts.$device)?;
            }
            // A pass before, whose tables the walk looks at.
            let mut recorded = Default::default();
            ops.recorded(&mut recorded, &batch, None, &mut || Ok::<_, Error>(()))?;
            ops.walk(&batch, &walk, &mut out.$device)?;
            let mut recorded = Default::default();
            ops.recorded(&mut recorded, &batch, Some(&keep), &mut || -> Result<()> {
                ops.kv_commit(dims.kv(), &batch, &keep, &mut kv.$device)
            })?;
            ops.gather_walked(&x.$device, &batch, &counts, &mut gathered.$device)?;
            let kept: Keep = ops
                .read(&out.$device, 0..batch.segments.len())?
                .chunks(WALKED_WIDTH)
                .map(|row| {
                    row[1..][..row[0] as usize]
                        .iter()
                        .map(|&x| x as u32)
                        .collect()
                })
                .collect();
            let all = ops.read(&gathered.$device, 0..most + 1)?;
            let mut rows = Vec::new();
            let mut first = 0;
            for (kept, &count) in kept.iter().zip(&counts) {
                rows.extend_from_slice(&all[first * 96..][..96 * kept.len().min(count)]);
                first += count;
            }
            let untouched = all[most * 96..].iter().all(|x| x.is_nan());
            (kept, rows, untouched)
        }};
    }
    let (expected, found) = (on!(cpu), on!(gpu));
    let wrong = usize::from(expected.0 != found.0)
        + usize::from(expected.1 != found.1)
        + usize::from(!found.2);
    let kept: usize = expected.0.iter().map(Vec::len).sum();
    // More than the first rows stand.
    let few = n > 1 && stops.is_empty() && kept == batch.segments.len();
    // The rows as a chain see what was moved.
    let mut chains = known.clone();
    chains.segments.iter_mut().for_each(|s| s.parents = None);
    let mut outcomes = seen(d, dims, &chains, &kv)?;
    outcomes.push((wrong as f64, 0.0));
    outcomes.push((f64::from(u8::from(few)), 0.0));
    Ok(outcomes)
}

/// Candidates of all rows, of which the likeliest is the one chosen.
fn tops_of(d: &mut Devices, chosen: &[u32], width: usize) -> Result<Vec<f32>> {
    let n = chosen.len();
    let mut logits = d.numbers(n * width, 1.0);
    for (row, &token) in chosen.iter().enumerate() {
        logits[row * width + token as usize] = 2.0;
    }
    let x = d.cpu.upload(&logits, n, width, Dtype::F32)?;
    let mut tops = d.cpu.alloc(n, TOP_WIDTH, Dtype::F32)?;
    d.cpu.top(&x, n, 0, width as u32, &mut tops)?;
    d.cpu.read(&tops, 0..n)
}

/// Walks and kept rows that make no sense are errors.
fn refused(d: &mut Devices) -> Result<Vec<(f64, f64)>> {
    let (batch, _, _) = self::batch(d, &[Shape::tree(5, 3)]);
    let (other, _, _) = self::batch(d, &[Shape::chain(4, 3)]);
    let drafts = d.output(5, DRAWN_WIDTH, Dtype::F32)?;
    let mut out = d.output(1, WALKED_WIDTH, Dtype::F32)?;
    let x = d.random(5, 16, 1.0)?;
    let mut gathered = d.output(5, 16, Dtype::Activation)?;
    let end = WalkEnd {
        most: 9,
        stops: &[],
    };
    let ids = [1, 2, 3, 4, 5];
    let mut taken = 0;
    macro_rules! on {
        ($device:ident) => {{
            let ops = d.$device;
            let mut walk = |batch: &Batch, ids: &[u32], ends: &[WalkEnd<'_>]| {
                let walk = Walk {
                    ids,
                    drafts: &drafts.$device,
                    chosen: Chosen::Drawn(&drafts.$device),
                    ends,
                };
                ops.walk(batch, &walk, &mut out.$device).is_ok()
            };
            let mut recorded = Default::default();
            ops.recorded(&mut recorded, &batch, None, &mut || Ok::<_, Error>(()))?;
            taken += usize::from(walk(&batch, &ids[1..], &[end]));
            taken += usize::from(walk(&batch, &ids, &[]));
            taken += usize::from(walk(&batch, &ids, &[WalkEnd { most: 0, ..end }]));
            taken += usize::from(walk(&batch, &[1, 2, 3, 4, DRAWN | 77], &[end]));
            let mut gather = |batch: &Batch, counts: &[usize]| {
                let out = &mut gathered.$device;
                usize::from(ops.gather_walked(&x.$device, batch, counts, out).is_ok())
            };
            // Nothing has been walked yet; then another batch, too many rows, too few counts.
            taken += gather(&batch, &[5]);
            taken += usize::from(!walk(&batch, &ids, &[end]));
            taken += gather(&other, &[4]);
            taken += gather(&batch, &[6]);
            taken += gather(&batch, &[]);
            let mut recorded = Default::default();
            let keep = walked(&other);
            let run = ops.recorded(&mut recorded, &other, Some(&keep), &mut || {
                Err::<(), _>(failed("what was not walked is kept"))
            });
            taken += usize::from(!format!("{run:?}").contains("walked last"));
        }};
    }
    on!(gpu);
    Ok(vec![(taken as f64, 0.0)])
}

/// Differing numbers between steps that the device walks and commits, and the same ones that the host does: of
/// states, and of what the drafter says next. A block of chain and tree is drawn and grown twice, and the tokens
/// of the tree are made to stand.
pub fn steps<O: Ops>(ops: &O, folder: &Path) -> Result<f64> {
    let (mut target, mut drafter) = prompted(ops, folder)?;
    let (mut past, mut wrong, mut stood) = (PROMPTS, 0, [0; 2]);
    for round in 0..4u32 {
        let anchors = [3 * round + 5, 7 * round + 9];
        let draws = flat(30, |i| past[i / 15] + 1 + i % 15);
        let proposed = unseen(past);
        let mut ids: Vec<u32> = [anchors[0]].into_iter().chain(drawn(0, 15)).collect();
        ids.extend([anchors[1]].into_iter().chain(drawn(30, 12)));
        let grow = |target: &mut Target<O>, drafter: &mut Drafter<O>| {
            let blocks = model::batch(past, [BLOCK; 2], [false; 2]);
            let tree = Growth {
                first: 15,
                depth: 15,
                budget: 12,
                seeded: round % 2 == 0,
                temperature: 1.0,
                candidates: CANDIDATES,
                to: 30,
            };
            let sizes = [15, VOCAB];
            let drawn = drafter.draw(ops, target, &anchors, &blocks, sizes, &draws, &[tree]);
            drawn.map_err(failed)
        };
        // What the target says behind the nodes, one after the other, is what they become.
        grow(&mut target, &mut drafter)?;
        target.verify(ops, &ids, &proposed).map_err(failed)?;
        let rows: Vec<u32> = (0..29).collect();
        let draws = flat(29, |_| Draw::BEHIND_ROW as usize);
        let asked = |target: &mut Target<O>, draws: &[Draw]| {
            target
                .outcome(ops, &rows, VOCAB, draws, &[])
                .map_err(failed)
        };
        let outcome = asked(&mut target, &draws)?;
        let known = |id: u32| outcome.drafts[(id ^ DRAWN) as usize];
        let mut given = proposed.clone();
        for parent in given.segments[1].parents.iter_mut().flatten().flatten() {
            if *parent & DRAWN != 0 {
                *parent = known(*parent).parent;
            }
        }
        let positions = |i: usize| {
            let segment = &given.segments[usize::from(i >= 16)];
            segment.position(i - segment.rows.start) + 1
        };
        let placed = flat(29, positions);
        let mut seen: Vec<u32> = ids
            .iter()
            .map(|&id| if id & DRAWN == 0 { id } else { known(id).token })
            .collect();
        for row in model::path(&given.segments[1]).into_iter().skip(1) {
            target.verify(ops, &seen, &given).map_err(failed)?;
            let said = asked(&mut target, &placed)?.drawn;
            let above = given.segments[1].parent(row as usize).unwrap_or_default();
            seen[16 + row as usize] = said[16 + above].token;
        }
        ids[16..].copy_from_slice(&seen[16..]);
        for (from, to) in [(2, 4), (1, 3)] {
            target.copy_slot(ops, from, to).map_err(failed)?;
        }

        grow(&mut target, &mut drafter)?;
        target.verify(ops, &ids, &proposed).map_err(failed)?;
        let stops = [seen[2 + round as usize]];
        let ends = [(6, &stops[..]), (64, &[])].map(|(most, stops)| WalkEnd { most, stops });
        let asked_ahead = target
            .walk(ops, &ids, VOCAB, &draws, &ends)
            .map_err(failed)?;
        drafter
            .append_walked(ops, target.taps(), &proposed, &[16, 13])
            .map_err(failed)?;
        let walked = target.answer(ops, asked_ahead).map_err(failed)?;
        wrong += usize::from(walked.kept.len() != 2);
        let kept = [walked.kept[0].len(), walked.kept[1].len()];
        let next = [past[0] + kept[0], past[1] + kept[1]];
        let found = after(ops, &mut target, &mut drafter, next)?;

        for (from, to) in [(4, 2), (3, 1)] {
            target.copy_slot(ops, from, to).map_err(failed)?;
        }
        target.verify(ops, &seen, &given).map_err(failed)?;
        let said = asked(&mut target, &placed)?;
        wrong += said
            .drawn
            .iter()
            .zip(&walked.drawn)
            .filter(|(a, b)| a != b)
            .count();
        let host: Keep = (0..2)
            .map(|i| by_hand(&given.segments[i], &seen, &said.drawn, &ends[i]))
            .collect();
        wrong += usize::from(host != walked.kept);
        target.commit(ops, &given, &host).map_err(failed)?;
        let committed = model::batch(past, kept, [false; 2]);
        let second = host[1].iter().map(|row| 16 + row);
        let rows: Vec<u32> = host[0].iter().copied().chain(second).collect();
        let appended = drafter.append(ops, target.taps(), &rows, &committed);
        appended.map_err(failed)?;
        let expected = after(ops, &mut target, &mut drafter, next)?;
        let pairs = found.iter().flatten().zip(expected.iter().flatten());
        wrong += pairs.filter(|(a, b)| a != b).count();
        past = next;
        stood = [stood[0] + kept[0], stood[1] + kept[1]];
    }
    // Rows behind the anchors stood.
    Ok((wrong + usize::from(stood.iter().any(|&n| n <= 6))) as f64)
}

/// A chain of which the drafts are drawn, and a tree that is grown.
fn unseen(past: [usize; 2]) -> Batch {
    let mut proposed = model::batch(past, [16, 13], [false, true]);
    let parents = drawn(30, 12).map(Some);
    proposed.segments[1].parents = Some([None].into_iter().chain(parents).collect());
    proposed
}

fn drawn(first: u32, n: u32) -> impl Iterator<Item = u32> {
    (first..first + n).map(|row| DRAWN | row)
}

/// Draws at a temperature at which drafter and target are nearly flat, so that the noise they share decides.
fn flat(n: usize, position: impl Fn(usize) -> usize) -> Vec<Draw> {
    let draw = |i| Draw {
        temperature: 40.0,
        seed: 7,
        position: position(i) as u64,
        ..Draw::GREEDY
    };
    (0..n).map(draw).collect()
}

fn by_hand(segment: &Segment, tokens: &[u32], said: &[Drawn], end: &WalkEnd<'_>) -> Vec<u32> {
    let first = segment.rows.start;
    let mut path = vec![0];
    for below in 1..segment.rows.len() {
        let above = path[path.len() - 1] as usize;
        let chosen = said[first + above].token;
        let ends = path.len() == end.most || end.stops.contains(&chosen);
        if !ends && segment.parent(below) == Some(above) && tokens[first + below] == chosen {
            path.push(below as u32);
        }
    }
    path
}

/// States, and what the drafter says.
fn after<O: Ops>(
    ops: &O,
    target: &mut Target<O>,
    drafter: &mut Drafter<O>,
    past: [usize; 2],
) -> Result<Vec<Vec<f32>>> {
    let mut all = states(ops, target)?;
    let blocks = model::batch(past, [BLOCK; 2], [false; 2]);
    let drafts = drafter.draft_logits(ops, target, &[11, 12], &blocks);
    all.push(drafts.map_err(failed)?);
    Ok(all)
}
