//! Several ranks, each a thread with its share of the weights, against one.

use std::thread;

use candle_core::Device;
use volley_model::{Checkpoint, Drafter, HiddenRows, Mtp, Target};
use volley_ops_candle::CandleOps;

use crate::golden::{Golden, LIMITS, Text, argmax, assert_close, open};
use crate::variants::edited;

/// All logits of a run: prefill, MTP, a draft, a verification of it and a step.
fn run(ops: &CandleOps, target: &Checkpoint, drafter: &Checkpoint, ids: &[u32]) -> Vec<f32> {
    let taps = [1, 2, 3, 4, 5];
    let mut model = Target::load(ops, target, &taps, LIMITS).unwrap();
    let mut mtp = Mtp::load(ops, target, model.config(), LIMITS).unwrap();
    let mut drafter = Drafter::load(ops, drafter, model.config(), LIMITS).unwrap();
    let mut text = Text::new(1, LIMITS.blocks);
    let batch = text.batch(ops, ids.len());
    let mut logits = text.prefill(ops, &mut model, ids);
    let all: Vec<u32> = (0..ids.len() as u32).collect();
    drafter.append(ops, model.taps(), &all, &batch).unwrap();
    mtp.forward(ops, &model, ids, HiddenRows::Target(&all), &batch)
        .unwrap();
    logits.extend(mtp.logits(ops, &mut model, &all[60..]).unwrap());

    let batch = text.batch(ops, 16);
    let anchor = argmax(&logits[logits.len() - 512..]);
    let drafts = drafter
        .draft_logits(ops, &mut model, &[anchor], &batch)
        .unwrap();
    let mut rows = vec![anchor];
    rows.extend(drafts.chunks(512).map(argmax));
    logits.extend(drafts);
    model.verify(ops, &rows, &batch).unwrap();
    logits.extend(model.logits(ops, &all[..16]).unwrap());
    model.commit(ops, &batch, &vec![vec![0, 1, 2]]).unwrap();
    text.past += 3;
    logits.extend(text.step(ops, &mut model, rows[3]));
    logits
}

fn on_ranks(ranks: usize, target: &Checkpoint, drafter: &Checkpoint) -> Vec<Vec<f32>> {
    let ids = &Golden::read("target_goldens").ids("ids")[..70];
    thread::scope(|scope| {
        let spawn = |ops: CandleOps| scope.spawn(move || run(&ops, target, drafter, ids));
        let ranks: Vec<_> = CandleOps::ranks(ranks, Device::Cpu)
            .into_iter()
            .map(spawn)
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn two_ranks_equal_one() {
    let (target, drafter) = (open("target"), open("drafter"));
    let one = on_ranks(1, &target, &drafter).pop().unwrap();
    let two = on_ranks(2, &target, &drafter);
    assert_close("two ranks", &two[0], &one);
    assert_eq!(two[0], two[1], "ranks hold different bits");
}

/// Four ranks over two key/value heads: each head is held twice. The GDN heads of the fixture do
/// not divide by four, so its layers are all attention here.
#[test]
fn ranks_beyond_the_kv_heads_equal_one() {
    let target = all_attention();
    let drafter = edited("drafter", &[("num_target_layers", "8")]);
    let one = on_ranks(1, &target, &drafter).pop().unwrap();
    let four = on_ranks(4, &target, &drafter);
    assert_close("four ranks", &four[0], &one);
    for rank in &four[1..] {
        assert_eq!(*rank, four[0], "ranks hold different bits");
    }
}

/// The fixture with the attention weights of layer 3 in place of every GDN layer.
fn all_attention() -> Checkpoint {
    use crate::variants::{Tensors, checkpoint, repacked, set_fields};
    let mut files = repacked("target", "model.safetensors", |tensors| {
        let prefix = "model.language_model.layers.";
        let attention: Tensors = tensors
            .iter()
            .filter(|(name, _)| name.starts_with(&format!("{prefix}3.self_attn.")))
            .map(|(name, raw)| (name.clone(), raw.clone()))
            .collect();
        tensors.retain(|name, _| !name.contains(".linear_attn."));
        for layer in (0..8).filter(|layer| layer % 4 != 3) {
            for (name, raw) in &attention {
                tensors.insert(name.replace(".3.", &format!(".{layer}.")), raw.clone());
            }
        }
    });
    let types = serde_json::to_string(&vec!["full_attention"; 8]).unwrap();
    let config = set_fields(
        &files["config.json"],
        &[("text_config.layer_types", &types)],
    );
    files.insert("config.json".to_string(), config);
    checkpoint(files).unwrap()
}

#[test]
fn ranks_that_do_not_divide_are_an_error() {
    for (ranks, expected) in [
        (
            3,
            "3 ranks cannot share vocab_size = 512: 3 does not divide 512",
        ),
        (
            4,
            "4 ranks cannot share GDN key heads = 2: 4 does not divide 2",
        ),
    ] {
        let checkpoint = open("target");
        let ops = CandleOps::ranks(ranks, Device::Cpu).swap_remove(0);
        let error = Target::load(&ops, &checkpoint, &[], LIMITS).err().unwrap();
        assert_eq!(error.to_string(), expected);
    }
}
