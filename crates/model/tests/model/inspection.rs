use std::collections::BTreeMap;

use volley_model::{Kind, Part, inspect};

use crate::golden::{open, path};
use crate::variants::{checkpoint, edited, files, repacked};

#[test]
fn a_target_with_everything() {
    let found = inspect(&open("target")).unwrap();
    assert_eq!(found.kind, Kind::Target);
    assert_eq!(found.problems, [""; 0]);
    assert_eq!(found.vision_tensors, 5);
    // 512 x 64; per GDN layer 160 + 96 + 2 x 6 rows of 64, 160 x 4 taps, 2 x 6 gates, norm 16,
    // 64 x 96 out; per attention layer (256 + 2 x 64) x 64, 64 x 128 out, two norms of 32.
    let gdn = (160 + 96 + 12) * 64 + 160 * 4 + 12 + 16 + 64 * 96;
    let attention = (256 + 128) * 64 + 64 * 128 + 2 * 32;
    let mlp = 3 * 96 * 64;
    let expected = BTreeMap::from([
        (Part::Embedding, 512 * 64),
        (Part::Head, 512 * 64),
        (Part::Gdn, 6 * gdn),
        (Part::Attention, 2 * attention),
        (Part::Mlp, 8 * mlp),
        (Part::Norm, 17 * 64),
        (Part::Mtp, 64 * 128 + 5 * 64 + attention + mlp),
    ]);
    assert_eq!(found.parameters, expected);

    let [one, two] = &found.memory[..] else {
        panic!("{:?}", found.memory)
    };
    // A_log and the gated norm are F32, all else is BF16.
    let wide = 6 * (6 + 16) * 2;
    assert_eq!(one.weight_bytes, 2 * found.total_parameters + wide);
    assert!(two.weight_bytes > one.weight_bytes / 2);
    assert!(two.weight_bytes < one.weight_bytes * 11 / 20);
    // Two attention layers and the MTP layer, keys and values of 2 heads of 32.
    assert_eq!(one.kv_bytes_per_token, 3 * 2 * 64 * 2);
    assert_eq!(two.kv_bytes_per_token, one.kv_bytes_per_token / 2);
    assert_eq!(
        one.state_bytes_per_sequence,
        6 * (6 * 16 * 16 * 4 + 3 * 160 * 2)
    );
    assert_eq!(
        two.state_bytes_per_sequence,
        one.state_bytes_per_sequence / 2
    );

    let text = found.to_string();
    assert!(text.contains("8 layers (6 GDN, 2 attention)"), "{text}");
    assert!(text.contains("all tensors are there"), "{text}");
    let json = serde_json::to_value(&found).unwrap();
    assert_eq!(json["parameters"]["embedding"].as_u64(), Some(512 * 64));
    assert_eq!(json["target"]["layers"][3], "full_attention");
}

#[test]
fn a_drafter() {
    let found = inspect(&open("drafter")).unwrap();
    assert_eq!(found.kind, Kind::Drafter);
    assert_eq!(found.problems, [""; 0]);
    assert_eq!(found.parameters[&Part::Features], 64 * 320 + 64);
    assert_eq!(found.memory[0].kv_bytes_per_token, 3 * 2 * 64 * 2);
    let text = found.to_string();
    assert!(text.contains("layer 1: causal, window 48"), "{text}");
    assert!(
        text.contains("layer 2: bidirectional, whole context"),
        "{text}"
    );
}

/// Problems are listed, the rest is still shown.
#[test]
fn broken_checkpoints() {
    let missing = repacked("target", "model.safetensors", |t| {
        t.retain(|name, _| !name.contains("layers.2.mlp"));
    });
    let found = inspect(&checkpoint(missing).unwrap()).unwrap();
    assert_eq!(found.problems.len(), 3, "{:?}", found.problems);
    assert!(
        found
            .problems
            .iter()
            .any(|p| p.contains("layers.2.mlp.up_proj.weight"))
    );
    assert_eq!(found.parameters[&Part::Embedding], 512 * 64);
    assert!(found.to_string().contains("3 problems"));

    let broken = inspect(&edited("target", &[("text_config.head_dim", "null")])).unwrap();
    assert_eq!(
        broken.problems,
        ["config.json: text_config.head_dim is missing"]
    );
    let mut bare = files("drafter");
    bare.remove("config.json");
    let bare = inspect(&checkpoint(bare).unwrap()).unwrap();
    assert_eq!(bare.problems, [""; 0]);
    assert!(
        bare.notes[0].contains("target_layer_ids is missing"),
        "{:?}",
        bare.notes
    );
    assert_eq!(bare.memory.len(), 2);
}

/// It is served all the same, by other ways to draft.
#[test]
fn an_mtp_head_that_is_announced_and_not_there_is_no_problem() {
    let without = repacked("target", "model.safetensors", |t| {
        t.retain(|name, _| !name.starts_with("mtp."));
    });
    let found = inspect(&checkpoint(without).unwrap()).unwrap();
    assert_eq!(found.problems, [""; 0]);
    assert!(found.notes[0].contains("no file holds it"), "{found}");
    assert!(found.to_string().contains("note: config.json announces"));
}

/// Only headers are read of a folder.
#[test]
fn files_are_summed_up() {
    let found = inspect(&open("target_flat")).unwrap();
    assert_eq!(found.problems, [""; 0]);
    let names: Vec<&str> = found.files.iter().map(|file| file.name.as_str()).collect();
    let shard = |i: usize| format!("model.safetensors-0000{i}-of-00002.safetensors");
    assert_eq!(names, [shard(1).as_str(), &shard(2), "mtp.safetensors"]);
    for file in &found.files {
        let on_disk = std::fs::metadata(path("target_flat").join(&file.name))
            .unwrap()
            .len();
        assert!(file.bytes < on_disk as usize && file.bytes > on_disk as usize / 2);
    }
    let tensors: usize = found.files.iter().map(|file| file.tensors).sum();
    assert_eq!(tensors, 3 * 14 + 11 + 2 + 15);
}
