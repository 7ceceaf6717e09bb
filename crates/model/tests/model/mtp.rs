use volley_model::{HiddenRows, Mtp};
use volley_ops::Ops;

use crate::golden::{Golden, LIMITS, Text, argmax, assert_close, chunks, cpu, open, target};

/// First pass over the prompt in chunks of at most `most` rows, then the chained drafts.
fn check(folder: &str, most: usize) {
    let ops = cpu();
    let golden = Golden::read(&format!("{folder}_goldens"));
    let (ids, tokens) = (golden.ids("ids"), golden.ids("mtp.tokens"));
    let mut model = target(&ops, folder, &[]);
    let mut mtp = Mtp::load(&ops, &open(folder), model.config(), LIMITS).unwrap();
    let mut text = Text::new(1, LIMITS.blocks);
    let (mut hidden, mut last_logits) = (Vec::new(), Vec::new());
    for n in chunks(ids.len(), most, 3) {
        let past = text.past;
        let batch = text.batch(&ops, n);
        text.prefill(&ops, &mut model, &ids[past..past + n]);
        let rows: Vec<u32> = (0..n as u32).collect();
        let input = HiddenRows::Target(&rows);
        mtp.forward(&ops, &model, &tokens[past..past + n], input, &batch)
            .unwrap();
        hidden.extend(ops.read(mtp.hidden(), 0..n).unwrap());
        last_logits.extend(mtp.logits(&ops, &mut model, &rows).unwrap());
    }
    assert_close("mtp hidden", &hidden, &golden.floats("mtp.hidden"));
    let expected = golden.floats("mtp.last_logits");
    let last_logits = &last_logits[last_logits.len() - expected.len()..];
    assert_close("mtp logits", last_logits, &expected);

    let vocab = model.config().vocab_size;
    let mut drafts = vec![argmax(&last_logits[last_logits.len() - vocab..])];
    let (mut hidden, mut logits) = (Vec::new(), Vec::new());
    let mut row = (chunks(ids.len(), most, 3).last().unwrap() - 1) as u32;
    for &id in &golden.ids("mtp.chain.tokens") {
        assert_eq!(id, *drafts.last().unwrap());
        let batch = text.batch(&ops, 1);
        mtp.forward(&ops, &model, &[id], HiddenRows::Head(&[row]), &batch)
            .unwrap();
        text.past += 1;
        row = 0;
        hidden.extend(ops.read(mtp.hidden(), 0..1).unwrap());
        let out = mtp.logits(&ops, &mut model, &[0]).unwrap();
        drafts.push(argmax(&out));
        logits.extend(out);
    }
    assert_close(
        "chained hidden",
        &hidden,
        &golden.floats("mtp.chain.hidden"),
    );
    assert_close(
        "chained logits",
        &logits,
        &golden.floats("mtp.chain.logits"),
    );
    assert_eq!(drafts, golden.ids("mtp.chain.drafts"));
}

#[test]
fn first_pass_in_one_go_and_chained_drafts() {
    check("target", 1 << 20);
    check("target_flat", 1 << 20);
    check("target_wide", 1 << 20);
}

#[test]
fn first_pass_in_chunks() {
    check("target", 40);
    check("target_flat", 7);
}

#[test]
fn hidden_rows_must_match_the_ids() {
    let ops = cpu();
    let mut model = target(&ops, "target", &[]);
    let mut mtp = Mtp::load(&ops, &open("target"), model.config(), LIMITS).unwrap();
    let mut text = Text::new(0, LIMITS.blocks);
    let batch = text.batch(&ops, 2);
    text.prefill(&ops, &mut model, &[1, 2]);
    let error = mtp.forward(&ops, &model, &[2, 3], HiddenRows::Target(&[0]), &batch);
    assert!(error.unwrap_err().to_string().contains("one per id"));
    let error = mtp.forward(&ops, &model, &[2, 3], HiddenRows::Head(&[0, 1]), &batch);
    assert!(error.unwrap_err().to_string().contains("rows of the pass"));
}
