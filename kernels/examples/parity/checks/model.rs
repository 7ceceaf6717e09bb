//! Whole steps of a small target and drafter whose heads have the real widths: prompt, drafts,
//! verification of a chain and of a tree, commit.

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::tensor::{Dtype, TensorView, serialize_to_file};
use serde_json::json;
use volley_model::{Checkpoint, Drafter, Limits, Target};
use volley_ops::{Batch, CANDIDATES, DRAWN, Draw, Error, Growth, Keep, Ops, Result, Segment};

use super::{Checks, walk};
use crate::pair::{Devices, relative};

/// Rounding of bf16 activations through all layers.
const TOLERANCE: f64 = 4e-2;
pub(super) const VOCAB: usize = 512;
const HIDDEN: usize = 256;
const INTERMEDIATE: usize = 384;
pub(super) const BLOCK: usize = 16;
/// Tokens of the two prompts.
pub(super) const PROMPTS: [usize; 2] = [70, 33];

pub fn model(checks: &mut Checks) {
    let folder = tempfile::tempdir();
    checks.case("model", "target and drafter".to_string(), |d| {
        let folder = folder.map_err(failed)?;
        write_target(d, folder.path())?;
        write_drafter(d, folder.path())?;
        let expected = steps(d.cpu, folder.path())?;
        let found = steps(d.gpu, folder.path())?;
        let pairs = expected.iter().zip(&found);
        let mut outcomes: Vec<_> = pairs.map(|(a, b)| (relative(b, a), TOLERANCE)).collect();
        outcomes.push((grown(d.cpu, folder.path())?, 0.0));
        outcomes.push((grown(d.gpu, folder.path())?, 0.0));
        outcomes.push((walk::steps(d.cpu, folder.path())?, 0.0));
        outcomes.push((walk::steps(d.gpu, folder.path())?, 0.0));
        Ok(outcomes)
    });
}

pub fn failed(error: impl std::fmt::Display) -> Error {
    Error::Device {
        op: "model",
        message: error.to_string(),
    }
}

/// Logits after every stage of two steps.
fn steps<O: Ops>(ops: &O, folder: &Path) -> Result<Vec<Vec<f32>>> {
    let (mut target, mut drafter) = prompted(ops, folder)?;
    let every: Vec<u32> = (0..PROMPTS.iter().sum::<usize>() as u32).collect();
    let mut all = vec![target.logits(ops, &every).map_err(failed)?];
    let blocks = batch(PROMPTS, [BLOCK; 2], [false; 2]);
    let drafts = drafter.draft_logits(ops, &mut target, &[5, 9], &blocks);
    all.push(drafts.map_err(failed)?);

    let proposed = batch(PROMPTS, [BLOCK, 24], [false, true]);
    let rows: Vec<u32> = (0..proposed.rows() as u32).collect();
    target
        .verify(ops, &ids(rows.len(), 2), &proposed)
        .map_err(failed)?;
    all.push(target.logits(ops, &rows).map_err(failed)?);
    let keep: Keep = vec![(0..9).collect(), path(&proposed.segments[1])];
    target.commit(ops, &proposed, &keep).map_err(failed)?;

    let past = [PROMPTS[0] + keep[0].len(), PROMPTS[1] + keep[1].len()];
    let next = batch(past, [1, 1], [false; 2]);
    target.verify(ops, &ids(2, 3), &next).map_err(failed)?;
    all.push(target.logits(ops, &[0, 1]).map_err(failed)?);
    all.extend(rounds(ops, &mut target, &mut drafter, past)?);
    Ok(all)
}

fn ids(n: usize, salt: usize) -> Vec<u32> {
    let id = |i| ((i * 37 + salt * 101) % VOCAB) as u32;
    (0..n).map(id).collect()
}

/// Target and drafter behind two prompts.
pub(super) fn prompted<O: Ops>(ops: &O, folder: &Path) -> Result<(Target<O>, Drafter<O>)> {
    let limits = Limits {
        max_rows: 128,
        verify_rows: 64,
        slots: 5,
        blocks: 24,
    };
    let open = |part: &str| Checkpoint::open(&folder.join(part)).map_err(failed);
    let mut target = Target::load(ops, &open("target")?, &[0, 3], limits).map_err(failed)?;
    let config = target.config().clone();
    let mut drafter = Drafter::load(ops, &open("drafter")?, &config, limits).map_err(failed)?;
    let prompt = batch([0, 0], PROMPTS, [false; 2]);
    let rows = prompt.rows();
    target
        .prefill(ops, &ids(rows, 1), &prompt)
        .map_err(failed)?;
    let every: Vec<u32> = (0..rows as u32).collect();
    drafter
        .append(ops, target.taps(), &every, &prompt)
        .map_err(failed)?;
    Ok((target, drafter))
}

/// Draft, verification and commit of the same shape, again and again: a device may record them, and
/// what it repeats must follow the lengths, blocks and kept rows of every round.
fn rounds<O: Ops>(
    ops: &O,
    target: &mut Target<O>,
    drafter: &mut Drafter<O>,
    mut past: [usize; 2],
) -> Result<Vec<Vec<f32>>> {
    let mut all = Vec::new();
    for round in 0..5usize {
        let blocks = batch(past, [BLOCK; 2], [false; 2]);
        let anchors = [round as u32, 7 + round as u32];
        let drafts = drafter.draft_logits(ops, target, &anchors, &blocks);
        all.push(drafts.map_err(failed)?);
        let proposed = batch(past, [6, 6], [false, true]);
        let ids: Vec<u32> = (0..12).map(|i| 31 * (i + 1) + round as u32).collect();
        target.verify(ops, &ids, &proposed).map_err(failed)?;
        let rows: Vec<u32> = (0..12).collect();
        all.push(target.logits(ops, &rows).map_err(failed)?);
        // Five rows in all, shared in another way each time.
        let keep: Keep = match round % 2 {
            0 => vec![(0..3).collect(), vec![2, 4]],
            _ => vec![(0..4).collect(), vec![1]],
        };
        target.commit(ops, &proposed, &keep).map_err(failed)?;
        let kept = [keep[0].len(), keep[1].len()];
        let committed = batch(past, kept, [false; 2]);
        let second = keep[1].iter().map(|row| 6 + row);
        let rows: Vec<u32> = keep[0].iter().copied().chain(second).collect();
        drafter
            .append(ops, target.taps(), &rows, &committed)
            .map_err(failed)?;
        past = [past[0] + kept[0], past[1] + kept[1]];
    }
    Ok(all)
}

/// Differing numbers between steps whose tree only the device knows, and the same ones with all of it given: of the
/// logits, and of the states after the commit. Steps of one shape come again and again, so that they are recorded.
fn grown<O: Ops>(ops: &O, folder: &Path) -> Result<f64> {
    let (mut target, mut drafter) = prompted(ops, folder)?;
    let (mut past, mut wrong, mut paths) = (PROMPTS, 0, 0);
    for round in 0..2u32 {
        let anchors = [3 * round + 5, 7 * round + 9];
        let blocks = batch(past, [BLOCK; 2], [false; 2]);
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
        drafter
            .draw(
                ops,
                &mut target,
                &anchors,
                &blocks,
                sizes,
                &[Draw::GREEDY; 30],
                &[tree],
            )
            .map_err(failed)?;
        let mut proposed = batch(past, [3, 13], [false, true]);
        let drawn = |first: u32, n: u32| (first..first + n).map(|row| DRAWN | row);
        let parents = drawn(30, 12).map(Some);
        proposed.segments[1].parents = Some([None].into_iter().chain(parents).collect());
        // Nobody has planted it.
        wrong += usize::from(ops.begin(&proposed).is_ok());
        let first = [anchors[0]].into_iter().chain(drawn(0, 2));
        let mut ids: Vec<u32> = first.chain([anchors[1]]).chain(drawn(30, 12)).collect();
        for (from, to) in [(2, 4), (1, 3)] {
            target.copy_slot(ops, from, to).map_err(failed)?;
        }
        target.verify(ops, &ids, &proposed).map_err(failed)?;
        let rows: Vec<u32> = (0..16).collect();
        let mut draws = [warm(u64::from(round), Draw::BEHIND_ROW); 16];
        let outcome = target
            .outcome(ops, &rows, VOCAB, &draws, &[])
            .map_err(failed)?;
        let mut found = vec![target.logits(ops, &rows).map_err(failed)?];
        let known = |id: u32| outcome.drafts[(id ^ DRAWN) as usize];
        let unknown = |id: &&mut u32| **id & DRAWN != 0;
        ids.iter_mut()
            .filter(unknown)
            .for_each(|id| *id = known(*id).token);
        let parents = proposed.segments[1].parents.iter_mut().flatten().flatten();
        parents
            .filter(unknown)
            .for_each(|id| *id = known(*id).parent);
        let keep: Keep = vec![(0..2).collect(), path(&proposed.segments[1])];
        target.commit(ops, &proposed, &keep).map_err(failed)?;
        found.extend(states(ops, &target)?);

        for (from, to) in [(4, 2), (3, 1)] {
            target.copy_slot(ops, from, to).map_err(failed)?;
        }
        target.verify(ops, &ids, &proposed).map_err(failed)?;
        for segment in &proposed.segments {
            let positions = (0..segment.rows.len()).map(|i| segment.position(i) as u64 + 1);
            let draws = draws[segment.rows.clone()].iter_mut();
            draws
                .zip(positions)
                .for_each(|(draw, position)| draw.position = position);
        }
        let known = target
            .outcome(ops, &rows, VOCAB, &draws, &[])
            .map_err(failed)?;
        let pairs = known.drawn.iter().zip(&outcome.drawn);
        wrong += pairs.filter(|(a, b)| a != b).count() + 16 - outcome.drawn.len();
        let mut expected = vec![target.logits(ops, &rows).map_err(failed)?];
        target.commit(ops, &proposed, &keep).map_err(failed)?;
        expected.extend(states(ops, &target)?);
        let pairs = found.iter().flatten().zip(expected.iter().flatten());
        wrong += pairs.filter(|(a, b)| a != b).count();

        let kept = [keep[0].len(), keep[1].len()];
        let committed = batch(past, kept, [false; 2]);
        let second = keep[1].iter().map(|row| 3 + row);
        let rows: Vec<u32> = keep[0].iter().copied().chain(second).collect();
        drafter
            .append(ops, target.taps(), &rows, &committed)
            .map_err(failed)?;
        past = [past[0] + kept[0], past[1] + kept[1]];
        paths += kept[1];
    }
    // Paths that are longer than the anchor were walked.
    Ok((wrong + usize::from(paths <= 2)) as f64)
}

/// A draw at temperature 1.
fn warm(seed: u64, position: u64) -> Draw {
    Draw {
        temperature: 1.0,
        seed,
        position,
        ..Draw::GREEDY
    }
}

/// Recurrent and convolution states of both texts.
pub(super) fn states<O: Ops>(ops: &O, target: &Target<O>) -> Result<Vec<Vec<f32>>> {
    let mut all = Vec::new();
    for (layer, slot) in [(0, 1), (0, 2), (1, 1), (2, 2)] {
        let (state, conv) = target.state(ops, layer, slot).map_err(failed)?;
        all.extend([state, conv]);
    }
    Ok(all)
}

fn parent(row: usize) -> Option<u32> {
    row.checked_sub(1 + row % 3).map(|parent| parent as u32)
}

/// Two texts whose blocks alternate.
pub(super) fn batch(past: [usize; 2], rows: [usize; 2], trees: [bool; 2]) -> Batch {
    let segment = |i: usize| {
        let first = rows[..i].iter().sum();
        Segment {
            rows: first..first + rows[i],
            slot: 2 - i,
            past: past[i],
            blocks: (0..12).map(|block| 2 * block + i as u32).collect(),
            parents: trees[i].then(|| (0..rows[i]).map(parent).collect()),
        }
    };
    Batch {
        segments: (0..2).map(segment).collect(),
    }
}

/// The path to the last row.
pub(super) fn path(segment: &Segment) -> Vec<u32> {
    let last = segment.rows.len() - 1;
    let walk = std::iter::successors(Some(last), |&row| segment.parent(row));
    let mut path: Vec<u32> = walk.map(|row| row as u32).collect();
    path.reverse();
    path
}

/// Tensors to be, by name.
#[derive(Default)]
struct Tensors(BTreeMap<String, (Vec<usize>, Vec<u8>)>);

impl Tensors {
    /// Random values that keep the size of what they multiply; bf16 values, stored in f32.
    fn matrix(&mut self, d: &mut Devices, name: &str, out: usize, input: usize) {
        let scale = (3.0 / input as f32).sqrt();
        self.values(d, name, &[out, input], scale);
    }

    fn values(&mut self, d: &mut Devices, name: &str, shape: &[usize], scale: f32) {
        let numbers = d.numbers(shape.iter().product(), scale);
        let rounded = numbers
            .into_iter()
            .map(|x| half::bf16::from_f32(x).to_f32());
        let bytes = rounded.flat_map(f32::to_le_bytes).collect();
        self.0.insert(name.to_string(), (shape.to_vec(), bytes));
    }

    fn norm(&mut self, d: &mut Devices, name: &str, width: usize) {
        self.values(d, name, &[width], 0.5);
    }

    fn mlp(&mut self, d: &mut Devices, layer: &str) {
        for part in ["gate", "up"] {
            self.matrix(
                d,
                &format!("{layer}mlp.{part}_proj.weight"),
                INTERMEDIATE,
                HIDDEN,
            );
        }
        self.matrix(
            d,
            &format!("{layer}mlp.down_proj.weight"),
            HIDDEN,
            INTERMEDIATE,
        );
        for norm in ["input_layernorm", "post_attention_layernorm"] {
            self.norm(d, &format!("{layer}{norm}.weight"), HIDDEN);
        }
    }

    fn attention(
        &mut self,
        d: &mut Devices,
        layer: &str,
        heads: [usize; 2],
        head: usize,
        gated: bool,
    ) {
        let [heads, kv] = heads.map(|heads| heads * head);
        let queries = if gated { 2 * heads } else { heads };
        let attn = format!("{layer}self_attn.");
        self.matrix(d, &format!("{attn}q_proj.weight"), queries, HIDDEN);
        self.matrix(d, &format!("{attn}k_proj.weight"), kv, HIDDEN);
        self.matrix(d, &format!("{attn}v_proj.weight"), kv, HIDDEN);
        self.matrix(d, &format!("{attn}o_proj.weight"), HIDDEN, heads);
        self.norm(d, &format!("{attn}q_norm.weight"), head);
        self.norm(d, &format!("{attn}k_norm.weight"), head);
    }

    fn gdn(&mut self, d: &mut Devices, layer: &str, keys: usize, values: usize) {
        let attn = format!("{layer}linear_attn.");
        let (channels, value) = ((2 * keys + values) * 128, values * 128);
        self.matrix(d, &format!("{attn}in_proj_qkv.weight"), channels, HIDDEN);
        self.matrix(d, &format!("{attn}in_proj_z.weight"), value, HIDDEN);
        self.matrix(d, &format!("{attn}in_proj_b.weight"), values, HIDDEN);
        self.matrix(d, &format!("{attn}in_proj_a.weight"), values, HIDDEN);
        self.values(d, &format!("{attn}conv1d.weight"), &[channels, 1, 4], 1.0);
        self.values(d, &format!("{attn}A_log"), &[values], 1.0);
        self.values(d, &format!("{attn}dt_bias"), &[values], 2.0);
        self.values(d, &format!("{attn}norm.weight"), &[128], 1.0);
        self.matrix(d, &format!("{attn}out_proj.weight"), HIDDEN, value);
    }

    fn write(&self, folder: &Path, config: &serde_json::Value) -> Result<()> {
        std::fs::create_dir_all(folder).map_err(failed)?;
        std::fs::write(folder.join("config.json"), config.to_string()).map_err(failed)?;
        let mut views = Vec::new();
        for (name, (shape, bytes)) in &self.0 {
            let view = TensorView::new(Dtype::F32, shape.clone(), bytes).map_err(failed)?;
            views.push((name.clone(), view));
        }
        serialize_to_file(views, None, &folder.join("model.safetensors")).map_err(failed)
    }
}

fn write_target(d: &mut Devices, folder: &Path) -> Result<()> {
    let mut tensors = Tensors::default();
    tensors.values(d, "model.embed_tokens.weight", &[VOCAB, HIDDEN], 1.0);
    tensors.matrix(d, "lm_head.weight", VOCAB, HIDDEN);
    tensors.norm(d, "model.norm.weight", HIDDEN);
    for i in 0..4 {
        let layer = format!("model.layers.{i}.");
        tensors.mlp(d, &layer);
        match i {
            3 => tensors.attention(d, &layer, [2, 1], 256, true),
            _ => tensors.gdn(d, &layer, 1, 4),
        }
    }
    let config = json!({
        "model_type": "qwen3_5_text", "vocab_size": VOCAB, "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE, "num_hidden_layers": 4, "full_attention_interval": 4,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 256,
        "attn_output_gate": true, "linear_num_key_heads": 1, "linear_num_value_heads": 4,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
        "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1e7,
        "partial_rotary_factor": 0.25, "max_position_embeddings": 4096,
        "tie_word_embeddings": false, "eos_token_id": 1,
    });
    tensors.write(&folder.join("target"), &config)
}

fn write_drafter(d: &mut Devices, folder: &Path) -> Result<()> {
    let mut tensors = Tensors::default();
    tensors.matrix(d, "fc.weight", HIDDEN, 2 * HIDDEN);
    for norm in ["hidden_norm.weight", "norm.weight"] {
        tensors.norm(d, norm, HIDDEN);
    }
    for i in 0..2 {
        let layer = format!("layers.{i}.");
        tensors.mlp(d, &layer);
        tensors.attention(d, &layer, [4, 2], 128, false);
    }
    let config = json!({
        "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "block_size": BLOCK,
        "dflash_config": {"mask_token_id": 500, "target_layer_ids": [0, 3]},
        "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 128,
        "hidden_act": "silu", "rms_norm_eps": 1e-6,
        "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 48,
        "use_sliding_window": true, "rope_theta": 1e7, "max_position_embeddings": 4096,
        "num_target_layers": 4, "vocab_size": VOCAB, "tie_word_embeddings": false,
    });
    tensors.write(&folder.join("drafter"), &config)
}
