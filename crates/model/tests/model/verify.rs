//! Output-only passes and commits against plain prefill.

use volley_model::Target;
use volley_ops::{Batch, Ops};
use volley_ops_candle::CandleOps;

use crate::golden::{Golden, LIMITS, SplitMix, Text, assert_close, cpu, target};

/// Logits and states of prefilling `ids` in one go.
struct Truth {
    logits: Vec<f32>,
    states: Vec<(Vec<f32>, Vec<f32>)>,
}

const GDN_LAYERS: [usize; 6] = [0, 1, 2, 4, 5, 6];

fn states(ops: &CandleOps, model: &Target<CandleOps>, slot: usize) -> Vec<(Vec<f32>, Vec<f32>)> {
    let state = |&layer: &usize| model.state(ops, layer, slot).unwrap();
    GDN_LAYERS.iter().map(state).collect()
}

fn truth(ops: &CandleOps, ids: &[u32]) -> Truth {
    let mut model = target(ops, "target", &[]);
    let logits = Text::new(0, LIMITS.blocks).prefill(ops, &mut model, ids);
    let states = states(ops, &model, 0);
    Truth { logits, states }
}

fn assert_states(found: &[(Vec<f32>, Vec<f32>)], expected: &[(Vec<f32>, Vec<f32>)]) {
    for (found, expected) in found.iter().zip(expected) {
        assert_close("state", &found.0, &expected.0);
        assert_close("conv state", &found.1, &expected.1);
    }
}

/// Rounds of right and wrong proposals: only right rows are kept, and the result is the text's.
#[test]
fn chains_with_rejected_rows_equal_prefill() {
    let ops = cpu();
    let ids = Golden::read("target_goldens").ids("ids");
    let truth = truth(&ops, &ids);
    let mut model = target(&ops, "target", &[]);
    let mut text = Text::new(1, LIMITS.blocks);
    text.prefill(&ops, &mut model, &ids[..10]);
    let mut logits = Vec::new();
    let mut random = SplitMix(5);
    let mut draw = |most: usize| random.next().unwrap() as usize % most;
    while text.past < ids.len() {
        let right = (1 + draw(15)).min(ids.len() - text.past);
        let wrong = draw(16 - right.min(15));
        let mut rows = ids[text.past..text.past + right].to_vec();
        rows.extend((0..wrong).map(|_| draw(512) as u32));
        let batch = text.batch(&ops, rows.len());
        model.verify(&ops, &rows, &batch).unwrap();
        let kept: Vec<u32> = (0..right as u32).collect();
        logits.extend(model.logits(&ops, &kept).unwrap());
        model.commit(&ops, &batch, &vec![kept]).unwrap();
        text.past += right;
    }
    assert_close("logits", &logits, &truth.logits[10 * 512..]);
    assert_states(&states(&ops, &model, 1), &truth.states);
}

/// The right continuation lies scattered in a tree, in a batch with a second text.
#[test]
fn trees_equal_prefill() {
    let ops = cpu();
    let ids = Golden::read("target_goldens").ids("ids");
    let truth = truth(&ops, &ids[..60]);
    let mut model = target(&ops, "target", &[]);
    let mut texts = [Text::new(0, LIMITS.blocks), Text::new(2, LIMITS.blocks)];
    for text in &mut texts {
        text.prefill(&ops, &mut model, &ids[..20]);
    }
    let mut random = SplitMix(9);
    while texts[0].past < 60 {
        let mut batch = Batch::default();
        let (mut rows, mut keep) = (Vec::new(), Vec::new());
        for text in &texts {
            let (tree, parents, path) = tree(&ids[text.past..60], &mut random);
            let mut segment = text.segment(&ops, rows.len(), tree.len());
            segment.parents = Some(parents);
            rows.extend(tree);
            keep.push(path);
            batch.segments.push(segment);
        }
        model.verify(&ops, &rows, &batch).unwrap();
        for ((text, path), segment) in texts.iter_mut().zip(&keep).zip(&batch.segments) {
            let kept: Vec<u32> = path
                .iter()
                .map(|&i| i + segment.rows.start as u32)
                .collect();
            let logits = model.logits(&ops, &kept).unwrap();
            let expected = &truth.logits[text.past * 512..(text.past + path.len()) * 512];
            assert_close("logits of the path", &logits, expected);
        }
        model.commit(&ops, &batch, &keep).unwrap();
        for (text, path) in texts.iter_mut().zip(&keep) {
            text.past += path.len();
        }
    }
    while texts[1].past < 60 {
        let next = ids[texts[1].past];
        texts[1].step(&ops, &mut model, next);
    }
    assert_states(&states(&ops, &model, 0), &truth.states);
    assert_states(&states(&ops, &model, 2), &truth.states);
}

/// A tree that holds the first tokens of `text` among wrong ones: rows, parents, the right path.
fn tree(text: &[u32], random: &mut SplitMix) -> (Vec<u32>, Vec<Option<u32>>, Vec<u32>) {
    let mut draw = |most: usize| random.next().unwrap() as usize % most;
    let depth = (1 + draw(5)).min(text.len());
    let (mut rows, mut parents, mut path) = (Vec::new(), Vec::new(), Vec::<u32>::new());
    for &id in &text[..depth] {
        for _ in 0..draw(3) {
            let parent = match rows.len() {
                0 => None,
                n => Some(draw(n) as u32),
            };
            rows.push(draw(512) as u32);
            parents.push(parent);
        }
        parents.push(path.last().copied());
        path.push(rows.len() as u32);
        rows.push(id);
    }
    (rows, parents, path)
}

#[test]
fn nothing_moves_without_a_commit() {
    let ops = cpu();
    let ids = Golden::read("target_goldens").ids("ids");
    let mut model = target(&ops, "target", &[]);
    let mut text = Text::new(0, LIMITS.blocks);
    text.prefill(&ops, &mut model, &ids[..20]);
    let before = states(&ops, &model, 0);
    let batch = text.batch(&ops, 8);
    model.verify(&ops, &ids[50..58], &batch).unwrap();
    assert_eq!(states(&ops, &model, 0), before);
    model.commit(&ops, &batch, &vec![vec![]]).unwrap();
    assert_eq!(states(&ops, &model, 0), before);
    let again = text.batch(&ops, 8);
    model.verify(&ops, &ids[20..28], &again).unwrap();
    let logits = model.logits(&ops, &[7]).unwrap();
    let all = Golden::read("target_goldens").floats("logits.150");
    assert_close("after a rejected block", &logits, &all[27 * 512..28 * 512]);
    assert_eq!(ops.rank(), 0);
}
