use volley_model::{Checkpoint, Drafter, Limits, TargetConfig};
use volley_ops::{Dtype, Ops};
use volley_ops_candle::CandleOps;

use crate::golden::{
    Golden, LIMITS, TOLERANCE, Text, argmax, assert_close, chunks, cpu, difference, hashed, open,
    target,
};
use crate::variants::{edited, memory};

const HIDDEN: usize = 64;
const BLOCK: usize = 16;
const LONG: Limits = Limits {
    max_rows: 3000,
    blocks: 900,
    ..LIMITS
};

fn load(ops: &CandleOps, checkpoint: &Checkpoint) -> Drafter<CandleOps> {
    load_for("target", ops, checkpoint)
}

fn load_for(target: &str, ops: &CandleOps, checkpoint: &Checkpoint) -> Drafter<CandleOps> {
    let target = TargetConfig::read(&open(target)).unwrap();
    Drafter::load(ops, checkpoint, &target, LONG).unwrap()
}

/// Final hidden states of a block behind `context` hashed features, appended in these chunks.
fn block(
    ops: &CandleOps,
    drafter: &mut Drafter<CandleOps>,
    context: usize,
    chunks: &[usize],
) -> Vec<f32> {
    let width = drafter.config().target_layer_ids.len() * HIDDEN;
    let features = hashed(1000 + context as u64, context * width);
    let embeddings = hashed(2000 + context as u64, BLOCK * HIDDEN);
    let mut text = Text::new(1, LONG.blocks);
    for &n in chunks {
        let rows = &features[text.past * width..(text.past + n) * width];
        let taps = ops.upload(rows, n, width, Dtype::Activation).unwrap();
        let all: Vec<u32> = (0..n as u32).collect();
        drafter
            .append(ops, &taps, &all, &text.batch(ops, n))
            .unwrap();
        text.past += n;
    }
    let embeddings = ops
        .upload(&embeddings, BLOCK, HIDDEN, Dtype::Activation)
        .unwrap();
    drafter
        .run(ops, &embeddings, &text.batch(ops, BLOCK))
        .unwrap();
    ops.read(drafter.hidden(), 0..BLOCK).unwrap()
}

#[test]
fn blocks_behind_64_and_3000_tokens() {
    let ops = cpu();
    let golden = Golden::read("drafter_goldens");
    let mut drafter = load(&ops, &open("drafter"));
    for context in [64, 3000] {
        let found = block(&ops, &mut drafter, context, &[context]);
        let expected = golden.floats(&format!("ctx{context}.out"));
        assert_close(&format!("context {context}"), &found, &expected);
    }
}

#[test]
fn context_in_random_chunks_and_after_rejected_blocks() {
    let ops = cpu();
    let golden = Golden::read("drafter_goldens");
    let mut drafter = load(&ops, &open("drafter"));
    for (context, most) in [(64, 9), (3000, 700)] {
        let expected = golden.floats(&format!("ctx{context}.out"));
        for seed in 0..3 {
            let chunks = chunks(context, most, seed);
            let found = block(&ops, &mut drafter, context, &chunks);
            assert_close(&format!("context {context}"), &found, &expected);
        }
    }
}

/// Sliding layers that look ahead in the block, or one token further back, are visibly wrong.
#[test]
fn wrong_masks_fail() {
    let ops = cpu();
    let golden = Golden::read("drafter_goldens");
    let controls = [
        (
            "bidirectional",
            edited("drafter", &[("is_causal", "false")]),
        ),
        (
            "window_plus_one",
            edited("drafter", &[("sliding_window", "49")]),
        ),
    ];
    for (name, checkpoint) in controls {
        let mut drafter = load(&ops, &checkpoint);
        for context in [64, 3000] {
            let found = block(&ops, &mut drafter, context, &[context]);
            let right = golden.floats(&format!("ctx{context}.out"));
            assert!(difference(&found, &right) > 100.0 * TOLERANCE, "{name}");
            let wrong = golden.floats(&format!("ctx{context}.{name}"));
            assert_close(&format!("{name}, context {context}"), &found, &wrong);
        }
    }
}

#[test]
fn variant_with_yarn_and_causal_full_layers() {
    let ops = cpu();
    let golden = Golden::read("drafter_variant_goldens");
    let controls = [
        ("out", open("drafter_variant")),
        (
            "bidirectional",
            edited("drafter_variant", &[("is_causal", "null")]),
        ),
        (
            "plain_rope",
            edited("drafter_variant", &[("rope_scaling", "null")]),
        ),
    ];
    for (name, checkpoint) in controls {
        let found = block(&ops, &mut load(&ops, &checkpoint), 64, &[64]);
        assert_close(name, &found, &golden.floats(&format!("ctx64.{name}")));
    }
}

/// Heads as wide as those of the 27B's drafter.
#[test]
fn wide_heads() {
    let ops = cpu();
    let golden = Golden::read("drafter_wide_goldens");
    let mut drafter = load_for("target_wide", &ops, &open("drafter_wide"));
    let found = block(&ops, &mut drafter, 64, &[64]);
    assert_close("wide", &found, &golden.floats("ctx64.out"));
    step("target_wide", "drafter_wide");
}

#[test]
fn step_from_prompt_to_drafts() {
    step("target", "drafter");
}

/// Prompt -> taps of the target -> one block -> drafts by the target's head.
fn step(target_folder: &str, drafter_folder: &str) {
    let ops = cpu();
    let golden = Golden::read(&format!("{drafter_folder}_goldens"));
    let ids = golden.ids("step.ids");
    let checkpoint = open(drafter_folder);
    let mut drafter = load_for(target_folder, &ops, &checkpoint);
    let taps = drafter.config().target_layer_ids.clone();
    let mut model = target(&ops, target_folder, &taps);
    let mut text = Text::new(0, LIMITS.blocks);
    let batch = text.batch(&ops, ids.len());
    let logits = text.prefill(&ops, &mut model, &ids);
    let bonus = argmax(&logits[logits.len() - 512..]);
    assert_eq!(vec![bonus], golden.ids("step.bonus"));
    let all: Vec<u32> = (0..ids.len() as u32).collect();
    drafter.append(&ops, model.taps(), &all, &batch).unwrap();

    let blocks = text.batch(&ops, BLOCK);
    let logits = drafter
        .draft_logits(&ops, &mut model, &[bonus], &blocks)
        .unwrap();
    let out = ops.read(drafter.hidden(), 0..BLOCK).unwrap();
    assert_close("step.out", &out, &golden.floats("step.out"));
    let drafts: Vec<u32> = logits.chunks(512).map(argmax).collect();
    let gaps = golden.floats("step.gaps");
    for ((found, expected), gap) in drafts.iter().zip(golden.ids("step.drafts")).zip(gaps) {
        assert!(
            *found == expected || gap < TOLERANCE,
            "{found} for {expected}, gap {gap}"
        );
    }
    assert_eq!(drafts.len(), BLOCK - 1);
}

/// Two texts in one draft, one of them with its taps out of order in the buffer.
#[test]
fn texts_of_a_batch_do_not_see_each_other() {
    let ops = cpu();
    let mut drafter = load(&ops, &open("drafter"));
    let mut model = target(&ops, "target", &[1, 2, 3, 4, 5]);
    let mut alone = Vec::new();
    let mut texts = Vec::new();
    for (slot, n) in [(0, 20), (2, 33)] {
        let ids: Vec<u32> = (0..n).map(|i| (i * 37 + slot as u32) % 512).collect();
        let mut text = Text::new(slot, LIMITS.blocks);
        let batch = text.batch(&ops, ids.len());
        text.prefill(&ops, &mut model, &ids);
        let rows: Vec<u32> = (0..n).collect();
        drafter.append(&ops, model.taps(), &rows, &batch).unwrap();
        let blocks = text.batch(&ops, BLOCK);
        alone.extend(
            drafter
                .draft_logits(&ops, &mut model, &[7], &blocks)
                .unwrap(),
        );
        texts.push(text);
    }
    let segments = vec![
        texts[0].segment(&ops, 0, BLOCK),
        texts[1].segment(&ops, BLOCK, BLOCK),
    ];
    let batch = volley_ops::Batch { segments };
    let together = drafter
        .draft_logits(&ops, &mut model, &[7, 7], &batch)
        .unwrap();
    assert_close("two blocks", &together, &alone);
}

#[test]
fn a_bare_file_is_read_with_stated_guesses() {
    let bytes = std::fs::read(crate::golden::path("drafter/model.safetensors")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.safetensors");
    std::fs::write(&file, &bytes).unwrap();
    let checkpoint = Checkpoint::open(&file).unwrap();
    let mut target = TargetConfig::read(&open("target")).unwrap();
    let error = volley_model::DrafterConfig::read(&checkpoint, Some(&target)).unwrap_err();
    assert!(
        error.to_string().contains("mask_token_id is missing"),
        "{error}"
    );

    // With the family's vocabulary the mask token is known.
    target.vocab_size = 248_320;
    let found = volley_model::DrafterConfig::read(&checkpoint, Some(&target)).unwrap();
    let known = volley_model::DrafterConfig::read(&open("drafter"), None).unwrap();
    assert_eq!(found.shapes, known.shapes);
    assert_eq!(found.rope, known.rope);
    assert_eq!(found.mask_token_id, 248_070);
    assert_eq!(found.target_layer_ids, [1, 2, 3, 4, 5]);
    assert_eq!(
        found.guesses,
        [
            "target_layer_ids = [1, 2, 3, 4, 5]",
            "rms_norm_eps = 1e-6",
            "layer_types = \"sliding but for the last layer, which is full\"",
            "sliding_window = 2048",
            "rope_theta = 10000000.0",
            "block_size = 16",
            "mask_token_id = 248070",
        ]
    );
    assert!(known.guesses.is_empty());
}

#[test]
fn a_drafter_of_another_target_is_refused() {
    let ops = cpu();
    let checkpoint = open("drafter");
    let mut other = TargetConfig::read(&open("target")).unwrap();
    other.hidden_size = 128;
    let error = Drafter::load(&ops, &checkpoint, &other, LONG)
        .err()
        .unwrap();
    let expected = "the drafter's hidden_size is 64, the target's is 128";
    assert_eq!(error.to_string(), expected);
    let flat = TargetConfig::read(&open("target_flat")).unwrap();
    assert!(Drafter::load(&ops, &checkpoint, &flat, LONG).is_err());
    let small = Limits {
        max_rows: 15,
        verify_rows: 15,
        ..LONG
    };
    let right = TargetConfig::read(&open("target")).unwrap();
    let error = Drafter::load(&ops, &checkpoint, &right, small)
        .err()
        .unwrap();
    assert!(error.to_string().contains("block of 16"), "{error}");
}

#[test]
fn a_checkpoint_in_memory_gives_the_same() {
    let ops = cpu();
    let golden = Golden::read("drafter_goldens");
    let mut drafter = load(&ops, &memory("drafter"));
    let found = block(&ops, &mut drafter, 64, &[64]);
    assert_close("from memory", &found, &golden.floats("ctx64.out"));
}
