//! The trained pair in models/demo.

use std::path::PathBuf;

use volley_model::{
    Checkpoint, Drafter, DrafterConfig, HiddenRows, Limits, Mtp, Target, TargetConfig, inspect,
};
use volley_ops_candle::CandleOps;

use crate::golden::{Golden, Text, argmax, assert_logits, cpu};

const LIMITS: Limits = Limits {
    max_rows: 512,
    verify_rows: 16,
    slots: 3,
    blocks: 192,
};
const CHATS: usize = 3;

fn open(part: &str) -> Checkpoint {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../models/demo");
    Checkpoint::open(&path.join(part)).unwrap()
}

fn load(ops: &CandleOps) -> (Target<CandleOps>, Drafter<CandleOps>) {
    let taps = [1, 2, 3, 4, 5];
    let target = Target::load(ops, &open("target"), &taps, LIMITS).unwrap();
    let drafter = Drafter::load(ops, &open("drafter"), target.config(), LIMITS).unwrap();
    assert_eq!(drafter.config().target_layer_ids, taps);
    (target, drafter)
}

#[test]
fn both_checkpoints_are_complete() {
    for part in ["target", "drafter"] {
        let found = inspect(&open(part)).unwrap();
        assert_eq!(found.problems, [""; 0]);
        assert_eq!(found.memory.len(), 2, "two ranks can share it");
    }
}

#[test]
fn the_drafter_is_inferred_from_its_tensors_alone() {
    let target = TargetConfig::read(&open("target")).unwrap();
    let bare = DrafterConfig::read(&open("drafter/model.safetensors"), Some(&target)).unwrap();
    let full = DrafterConfig::read(&open("drafter"), Some(&target)).unwrap();
    assert_eq!(bare.shapes, full.shapes);
    assert_eq!(bare.block_size, full.block_size);
    assert_eq!(bare.mask_token_id, full.mask_token_id);
    assert_eq!(bare.target_layer_ids, full.target_layer_ids);
    assert!(full.guesses.is_empty());
    let guessed = |key: &str| bare.guesses.iter().any(|guess| guess.contains(key));
    assert!(guessed("mask_token_id") && guessed("target_layer_ids"));
}

#[test]
fn logits_of_chats_equal_hugging_face() {
    let ops = cpu();
    let golden = Golden::read("demo");
    let (mut target, _) = load(&ops);
    for chat in 0..CHATS {
        let ids = golden.ids(&format!("chat{chat}.ids"));
        target.reset(&ops, 1).unwrap();
        let logits = Text::new(1, LIMITS.blocks).prefill(&ops, &mut target, &ids);
        let expected = golden.floats(&format!("chat{chat}.logits"));
        let last = &logits[logits.len() - expected.len()..];
        assert_logits(&format!("chat {chat}"), last, &expected);
    }
}

/// Greedy text by one row per step.
fn plain(ops: &CandleOps, target: &mut Target<CandleOps>, ids: &[u32], most: usize) -> Vec<u32> {
    let mut text = Text::new(0, LIMITS.blocks);
    target.reset(ops, 0).unwrap();
    let mut logits = text.prefill(ops, target, ids);
    let vocab = target.config().vocab_size;
    let mut out = Vec::new();
    while out.len() < most {
        let id = argmax(&logits[logits.len() - vocab..]);
        out.push(id);
        if target.config().eos.contains(&id) {
            break;
        }
        logits = text.step(ops, target, id);
    }
    out
}

/// Greedy text by blocks of the drafter, and the tokens per step.
fn drafted(
    ops: &CandleOps,
    (target, drafter): (&mut Target<CandleOps>, &mut Drafter<CandleOps>),
    ids: &[u32],
    len: usize,
) -> (Vec<u32>, f64) {
    let mut text = Text::new(2, LIMITS.blocks);
    target.reset(ops, 2).unwrap();
    let (vocab, block) = (target.config().vocab_size, drafter.config().block_size);
    let mut context = text.batch(ops, ids.len());
    let logits = text.prefill(ops, target, ids);
    let mut kept: Vec<u32> = (0..ids.len() as u32).collect();
    let mut out = vec![argmax(&logits[logits.len() - vocab..])];
    let mut steps = 0;
    while out.len() < len {
        drafter.append(ops, target.taps(), &kept, &context).unwrap();
        let batch = text.batch(ops, block);
        let anchor = *out.last().unwrap();
        let drafts = drafter
            .draft_logits(ops, target, &[anchor], &batch)
            .unwrap();
        let mut rows = vec![anchor];
        rows.extend(drafts.chunks(vocab).map(argmax));
        target.verify(ops, &rows, &batch).unwrap();
        let all: Vec<u32> = (0..block as u32).collect();
        let logits = target.logits(ops, &all).unwrap();
        let right: Vec<u32> = logits.chunks(vocab).map(argmax).collect();
        let accepted = (1..block).take_while(|&i| rows[i] == right[i - 1]).count();
        kept = (0..=accepted as u32).collect();
        target.commit(ops, &batch, &vec![kept.clone()]).unwrap();
        context = text.batch(ops, kept.len());
        text.past += kept.len();
        out.extend(&right[..=accepted]);
        steps += 1;
    }
    let tokens = out.len() - 1;
    out.truncate(len);
    (out, tokens as f64 / f64::from(steps))
}

/// The same text, in far fewer steps: a drafter that reads wrong taps or masks would not get there.
#[test]
fn drafted_text_is_the_plain_text_in_fewer_steps() {
    let ops = cpu();
    let golden = Golden::read("demo");
    let (mut target, mut drafter) = load(&ops);
    let mut lengths = Vec::new();
    for chat in 0..CHATS {
        let ids = golden.ids(&format!("chat{chat}.ids"));
        let expected = plain(&ops, &mut target, &ids, 120);
        let pair = (&mut target, &mut drafter);
        let (found, length) = drafted(&ops, pair, &ids, expected.len());
        assert_eq!(found, expected, "chat {chat}");
        println!("chat {chat}: {} tokens, {length:.2} per step", found.len());
        lengths.push(length);
    }
    let mean = lengths.iter().sum::<f64>() / CHATS as f64;
    assert!(mean >= 3.0, "acceptance lengths {lengths:?}");
}

/// The MTP head predicts the token after next of the model's own text.
#[test]
fn mtp_head_predicts() {
    let ops = cpu();
    let golden = Golden::read("demo");
    let (mut target, _) = load(&ops);
    let mut mtp = Mtp::load(&ops, &open("target"), target.config(), LIMITS).unwrap();
    let (mut right, mut total) = (0, 0);
    for chat in 0..CHATS {
        let prompt = golden.ids(&format!("chat{chat}.ids"));
        let answer = plain(&ops, &mut target, &prompt, 60);
        let ids = [&prompt[..], &answer].concat();
        let n = ids.len() - 1;
        let mut text = Text::new(1, LIMITS.blocks);
        target.reset(&ops, 1).unwrap();
        let batch = text.batch(&ops, n);
        text.prefill(&ops, &mut target, &ids[..n]);
        let rows: Vec<u32> = (0..n as u32).collect();
        mtp.forward(&ops, &target, &ids[1..], HiddenRows::Target(&rows), &batch)
            .unwrap();
        let answered = &rows[prompt.len()..n - 1];
        let logits = mtp.logits(&ops, &mut target, answered).unwrap();
        let vocab = target.config().vocab_size;
        for (row, &at) in logits.chunks(vocab).zip(answered) {
            right += usize::from(argmax(row) == ids[at as usize + 2]);
            total += 1;
        }
    }
    println!("mtp: {right} of {total}");
    assert!(right * 10 >= total * 7, "mtp: {right} of {total}");
}
