//! Broken checkpoints: each is an error that names tensor, shapes and file.

use std::path::Path;

use volley_model::{Checkpoint, Drafter, Mtp, Result, Target, TargetConfig};

use crate::golden::{Golden, LIMITS, Text, assert_close, cpu, open};
use crate::variants::{Files, Raw, Tensors, checkpoint, files, repacked, set_fields};

const WEIGHTS: &str = "model.safetensors";
const SHARDS: [&str; 2] = [
    "model.safetensors-00001-of-00002.safetensors",
    "model.safetensors-00002-of-00002.safetensors",
];

/// Writes the files into a folder and loads everything in it: target, MTP head.
fn load(files: &Files) -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    load_folder(folder.path())
}

fn load_folder(folder: &Path) -> Result<()> {
    let ops = cpu();
    let checkpoint = Checkpoint::open(folder)?;
    let target = Target::load(&ops, &checkpoint, &[], LIMITS)?;
    Mtp::load(&ops, &checkpoint, target.config(), LIMITS).map(|_| ())
}

#[track_caller]
fn assert_fails(what: &str, files: &Files, parts: &[&str]) {
    let message = match load(files) {
        Ok(()) => panic!("{what}: loads"),
        Err(error) => error.to_string(),
    };
    for part in parts {
        assert!(
            message.contains(part),
            "{what}: {part:?} is not in: {message}"
        );
    }
}

fn target(change: impl FnOnce(&mut Tensors)) -> Files {
    repacked("target", WEIGHTS, change)
}

fn flat(change: impl FnOnce(&mut Files)) -> Files {
    let mut files = files("target_flat");
    change(&mut files);
    files
}

#[test]
fn fixtures_load_from_folders() {
    load(&files("target")).unwrap();
    load(&files("target_flat")).unwrap();
}

#[test]
fn tensors_that_do_not_fit() {
    let layer = |name: &str| format!("model.language_model.layers.{name}");
    let z = layer("1.linear_attn.in_proj_z.weight");
    let missing = target(|t| drop(t.remove(&z)));
    let name = "model.layers.1.linear_attn.in_proj_z.weight";
    assert_fails("missing", &missing, &[name, "[96, 64]", "missing"]);

    let unknown = target(|t| {
        let copy = t[&z].clone();
        t.insert(layer("1.linear_attn.extra.weight"), copy);
    });
    let name = layer("1.linear_attn.extra.weight");
    assert_fails(
        "unknown",
        &unknown,
        &["unknown", &name, "[96, 64]", WEIGHTS],
    );

    let turned = target(|t| t.get_mut(&z).unwrap().shape.reverse());
    assert_fails("shape", &turned, &[&z, "[64, 96]", "[96, 64]", WEIGHTS]);

    let conv = layer("0.linear_attn.conv1d.weight");
    let flat_conv = target(|t| t.get_mut(&conv).unwrap().shape = vec![160, 4]);
    assert_fails(
        "dimensions",
        &flat_conv,
        &[&conv, "[160, 4]", "[160, 1, 4]", WEIGHTS],
    );

    let ints = target(|t| t.get_mut(&z).unwrap().dtype = "I16".to_string());
    assert_fails("dtype", &ints, &[&z, "I16", "BF16", "[96, 64]", WEIGHTS]);

    let many = target(|t| t.retain(|name, _| !name.contains("mlp")));
    assert_fails(
        "many",
        &many,
        &["model.layers.0.mlp.gate_proj.weight", "and 22 more"],
    );
}

#[test]
fn incomplete_mtp_heads() {
    let partial = target(|t| drop(t.remove("mtp.norm.weight")));
    assert_fails("partial", &partial, &["mtp.norm.weight", "[64]", "missing"]);
    let ops = cpu();
    let none = checkpoint(target(|t| t.retain(|name, _| !name.starts_with("mtp.")))).unwrap();
    let target = Target::load(&ops, &none, &[], LIMITS).unwrap();
    let error = Mtp::load(&ops, &none, target.config(), LIMITS)
        .err()
        .unwrap();
    assert!(
        error
            .to_string()
            .contains("mtp.fc.weight of shape [64, 128] is missing"),
        "{error}"
    );
}

#[test]
fn truncated_and_damaged_files() {
    let whole = &files("target")[WEIGHTS];
    let header = u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let with = |bytes: Vec<u8>| {
        let mut files = files("target");
        files.insert(WEIGHTS.to_string(), bytes);
        files
    };
    let cut = |len: usize| with(whole[..len].to_vec());
    assert_fails("empty", &cut(0), &[WEIGHTS, "truncated", "0 bytes"]);
    assert_fails("length", &cut(5), &[WEIGHTS, "truncated", "5 bytes"]);
    assert_fails("header", &cut(100), &[WEIGHTS, "truncated", "92"]);
    let needs = format!("needs bytes up to {}", whole.len());
    let has = format!("has {}", whole.len() - 1);
    assert_fails(
        "data",
        &cut(whole.len() - 1),
        &[WEIGHTS, "truncated: tensor ", &needs, &has],
    );
    assert_fails(
        "no data",
        &cut(8 + header),
        &[WEIGHTS, "truncated: tensor "],
    );

    let mut other = whole.clone();
    other[..4].copy_from_slice(b"GGUF");
    assert_fails(
        "other format",
        &with(other),
        &[WEIGHTS, "not a safetensors file"],
    );
    let mut garbled = whole.clone();
    garbled[8] = b'[';
    assert_fails("no JSON", &with(garbled), &[WEIGHTS, "not valid JSON"]);
    let z = "mtp.norm.weight";
    let short = target(|t| t.get_mut(z).unwrap().shape = vec![63]);
    assert_fails("range", &short, &[z, "[63]", "126", "128", WEIGHTS]);
    let strange = target(|t| t.get_mut(z).unwrap().dtype = "F12".to_string());
    assert_fails("format", &strange, &[z, "F12", WEIGHTS]);
}

#[test]
fn index_and_files_that_disagree() {
    let lost = flat(|f| drop(f.remove(SHARDS[1])));
    assert_fails(
        "file",
        &lost,
        &["model.safetensors.index.json", SHARDS[1], "not there"],
    );

    let twice = flat(|f| {
        let copy = f[SHARDS[0]].clone();
        f.insert("other.safetensors".to_string(), copy);
    });
    assert_fails(
        "duplicate",
        &twice,
        &["model.embed_tokens.weight", SHARDS[0], "other.safetensors"],
    );

    let moved = flat(|f| {
        let index = String::from_utf8(f["model.safetensors.index.json"].clone()).unwrap();
        let wrong = index.replacen(SHARDS[0], SHARDS[1], 1);
        f.insert(
            "model.safetensors.index.json".to_string(),
            wrong.into_bytes(),
        );
    });
    assert_fails(
        "moved",
        &moved,
        &["model.embed_tokens.weight", SHARDS[1], "does not hold it"],
    );

    let no_json =
        flat(|f| drop(f.insert("model.safetensors.index.json".to_string(), b"{".to_vec())));
    assert_fails("index", &no_json, &["model.safetensors.index.json"]);

    // The same tensor under the names of two exports.
    let renamed = repacked("target", WEIGHTS, |t| {
        let norm = t["model.language_model.norm.weight"].clone();
        t.insert("model.norm.weight".to_string(), norm);
    });
    assert_fails(
        "two names",
        &renamed,
        &["model.norm.weight", "model.language_model.norm.weight"],
    );
}

#[test]
fn folders_without_what_is_needed() {
    assert_fails(
        "config",
        &target_without("config.json"),
        &["config.json is missing"],
    );
    let empty = Files::from([("config.json".to_string(), b"{}".to_vec())]);
    assert_fails("weights", &empty, &["no .safetensors file"]);
    let error = Checkpoint::open(Path::new("/no/such/model")).err().unwrap();
    assert!(error.to_string().contains("/no/such/model"), "{error}");
}

fn target_without(name: &str) -> Files {
    let mut files = files("target");
    files.remove(name);
    files
}

#[test]
fn configs_that_contradict_the_tensors() {
    let with = |changes: &[(&str, &str)]| {
        let mut files = files("target");
        let config = set_fields(&files["config.json"], changes);
        files.insert("config.json".to_string(), config);
        files
    };
    let wide = with(&[("text_config.intermediate_size", "256")]);
    assert_fails(
        "width",
        &wide,
        &["mlp.gate_proj.weight", "[256, 64]", "[96, 64]", WEIGHTS],
    );
    let short = with(&[
        ("text_config.num_hidden_layers", "4"),
        ("text_config.layer_types", "null"),
    ]);
    assert_fails(
        "depth",
        &short,
        &["unknown tensor model.language_model.layers.4."],
    );
    let other = with(&[
        ("text_config.layer_types", "null"),
        ("text_config.full_attention_interval", "2"),
    ]);
    assert_fails(
        "kinds",
        &other,
        &["model.layers.1.self_attn.q_proj.weight", "missing"],
    );
    let untied = {
        let mut files = files("target_flat");
        let config = set_fields(&files["config.json"], &[("tie_word_embeddings", "false")]);
        files.insert("config.json".to_string(), config);
        files
    };
    assert_fails(
        "untied",
        &untied,
        &["lm_head.weight", "[192, 48]", "missing"],
    );
}

/// A tied model may ship its head: it is the table, whatever the file says.
#[test]
fn tied_heads_in_the_files_are_not_used() {
    let with_head = |shape: [usize; 2]| {
        repacked("target_flat", "mtp.safetensors", |t| {
            let head = Raw {
                dtype: "BF16".to_string(),
                shape: shape.to_vec(),
                bytes: vec![0; 2 * shape[0] * shape[1]],
            };
            t.insert("lm_head.weight".to_string(), head);
        })
    };
    let ops = cpu();
    let tied = checkpoint(with_head([192, 48])).unwrap();
    let mut model = Target::load(&ops, &tied, &[], LIMITS).unwrap();
    let golden = Golden::read("target_flat_goldens");
    let logits = Text::new(0, LIMITS.blocks).prefill(&ops, &mut model, &golden.ids("ids"));
    assert_close("tied", &logits, &golden.floats("logits.150"));
    assert_fails(
        "misfit",
        &with_head([191, 48]),
        &["lm_head.weight", "[191, 48]", "[192, 48]"],
    );
}

/// Prefixes of other exports and other number formats give the same model.
#[test]
fn other_exports_of_the_same_model() {
    let golden = Golden::read("target_goldens");
    let ids = golden.ids("ids");
    let renamed = target(|t| {
        *t = std::mem::take(t)
            .into_iter()
            .map(
                |(name, raw)| match name.strip_prefix("model.language_model.") {
                    Some(rest) => (format!("language_model.model.{rest}"), raw),
                    None => (name, raw),
                },
            )
            .collect();
    });
    let widened = target(|t| {
        for raw in t.values_mut().filter(|raw| raw.dtype == "BF16") {
            let (values, _) = raw.bytes.as_chunks::<2>();
            raw.bytes = values.iter().flat_map(|v| [0, 0, v[0], v[1]]).collect();
            raw.dtype = "F32".to_string();
        }
    });
    let ops = cpu();
    for files in [renamed, widened] {
        let mut model = Target::load(&ops, &checkpoint(files).unwrap(), &[], LIMITS).unwrap();
        let logits = Text::new(0, LIMITS.blocks).prefill(&ops, &mut model, &ids);
        assert_close("export", &logits, &golden.floats("logits.150"));
    }
}

#[test]
fn drafters_that_do_not_fit() {
    let ops = cpu();
    let target = TargetConfig::read(&open("target")).unwrap();
    let check = |what: &str, change: fn(&mut Tensors), parts: &[&str]| {
        let files = repacked("drafter", WEIGHTS, change);
        let loaded = Drafter::load(&ops, &checkpoint(files).unwrap(), &target, LIMITS);
        let message = match loaded {
            Ok(_) => panic!("{what}: loads"),
            Err(error) => error.to_string(),
        };
        for part in parts {
            assert!(
                message.contains(part),
                "{what}: {part:?} is not in: {message}"
            );
        }
    };
    let parts = ["layers.1.self_attn.v_proj.weight", "[64, 64]", "missing"];
    check(
        "missing",
        |t| drop(t.remove("layers.1.self_attn.v_proj.weight")),
        &parts,
    );
    let parts = ["fc.weight", "[320, 64]", "[64, 320]", WEIGHTS];
    check(
        "shape",
        |t| t.get_mut("fc.weight").unwrap().shape.reverse(),
        &parts,
    );
    check(
        "unknown",
        |t| add(t, "layers.0.mystery.weight"),
        &["layers.0.mystery.weight", "unknown"],
    );
    check(
        "DFlash2",
        |t| add(t, "layers.0.conv.weight"),
        &["layers.0.conv.weight", "DFlash2"],
    );
    check(
        "taps",
        |t| add(t, "aux_hidden_norms.0.weight"),
        &["norms on the taps"],
    );
}

fn add(tensors: &mut Tensors, name: &str) {
    let norm = tensors["norm.weight"].clone();
    tensors.insert(name.to_string(), norm);
}
