//! Every size of the family and every drafter variant; what is not computed is refused.

use volley_model::{DrafterConfig, LayerKind, TargetConfig};
use volley_ops::AttentionMask;

use crate::golden::open;
use crate::variants::{edited, files, set_fields};

/// hidden, intermediate, layers, heads, kv heads, value heads, tied.
const FAMILY: [(&str, [usize; 6], bool); 5] = [
    ("0.8B", [1024, 3584, 24, 8, 2, 16], true),
    ("2B", [2048, 6144, 24, 8, 2, 16], true),
    ("4B", [2560, 9216, 32, 16, 4, 32], true),
    ("9B", [4096, 12288, 32, 16, 4, 32], false),
    ("27B", [5120, 17408, 64, 24, 4, 48], false),
];

/// A config.json of the family, nested as in the releases.
fn family([hidden, intermediate, layers, heads, kv, values]: [usize; 6], tied: bool) -> String {
    serde_json::json!({
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "tie_word_embeddings": tied,
        "vision_config": {"depth": 27},
        "text_config": {
            "model_type": "qwen3_5_text", "vocab_size": 248_320, "hidden_size": hidden,
            "intermediate_size": intermediate, "num_hidden_layers": layers,
            "full_attention_interval": 4, "num_attention_heads": heads,
            "num_key_value_heads": kv, "head_dim": 256, "attn_output_gate": true,
            "linear_num_key_heads": 16, "linear_num_value_heads": values,
            "linear_key_head_dim": 128, "linear_value_head_dim": 128,
            "linear_conv_kernel_dim": 4, "hidden_act": "silu", "output_gate_type": "swish",
            "rms_norm_eps": 1e-6, "max_position_embeddings": 262_144,
            "eos_token_id": 248_044, "bos_token_id": null, "mtp_num_hidden_layers": 1,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10_000_000,
                "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10]},
        },
    })
    .to_string()
}

#[test]
fn every_size_of_the_family() {
    for (name, sizes, tied) in FAMILY {
        let config = TargetConfig::parse(&family(sizes, tied), None).unwrap();
        let [hidden, _, layers, ..] = sizes;
        assert_eq!(
            (config.hidden_size, config.layers.len()),
            (hidden, layers),
            "{name}"
        );
        assert_eq!(config.gdn_layers(), layers / 4 * 3, "{name}");
        assert_eq!(config.layers[3], LayerKind::FullAttention, "{name}");
        assert_eq!((config.rope.dim, config.rope.theta), (64, 1e7), "{name}");
        assert_eq!(config.tie_word_embeddings, tied, "{name}");
        assert_eq!(config.eos, [248_044], "{name}");
    }
}

#[test]
fn nested_and_flat_fixtures() {
    let nested = TargetConfig::read(&open("target")).unwrap();
    assert_eq!((nested.hidden_size, nested.layers.len()), (64, 8));
    assert_eq!(nested.eos, [2, 1], "of generation_config.json");
    let flat = TargetConfig::read(&open("target_flat")).unwrap();
    assert_eq!((flat.hidden_size, flat.attention_layers()), (48, 1));
    assert!(flat.tie_word_embeddings);
    assert_eq!(flat.eos, [1], "of config.json");
    assert_eq!(flat.rope.dim, 8);
}

fn target_error(changes: &[(&str, &str)]) -> String {
    let config = set_fields(&files("target")["config.json"], changes);
    let config = String::from_utf8(config).unwrap();
    TargetConfig::parse(&config, None).unwrap_err().to_string()
}

#[test]
fn broken_target_configs_name_the_field() {
    let cases = [
        (
            "text_config.hidden_size",
            "null",
            "text_config.hidden_size is missing",
        ),
        (
            "text_config.hidden_size",
            "\"64\"",
            "text_config.hidden_size is \"64\", expected a positive whole number",
        ),
        (
            "text_config.hidden_size",
            "0",
            "text_config.hidden_size is 0, expected a positive whole number",
        ),
        (
            "text_config.head_dim",
            "1.5",
            "text_config.head_dim is 1.5, expected a positive whole number",
        ),
        (
            "text_config.rms_norm_eps",
            "null",
            "text_config.rms_norm_eps is missing",
        ),
        (
            "text_config.rope_parameters",
            "null",
            "text_config.rope_theta is missing",
        ),
        (
            "text_config.num_hidden_layers",
            "7",
            "layer_types has 8 entries, num_hidden_layers is 7",
        ),
        (
            "text_config.num_key_value_heads",
            "3",
            "text_config.num_attention_heads is 4, which is no multiple of 3",
        ),
        (
            "text_config.eos_token_id",
            "512",
            "text_config.eos_token_id has 512, the vocabulary has 512 ids",
        ),
        (
            "text_config.layer_types",
            "[\"mamba\"]",
            "layer_types has 1 entries",
        ),
        ("text_config", "[]", "text_config is [], expected an object"),
    ];
    for (field, value, expected) in cases {
        let message = target_error(&[(field, value)]);
        assert!(message.starts_with("config.json: "), "{message}");
        assert!(message.contains(expected), "{field} = {value}: {message}");
    }
}

#[test]
fn models_that_are_not_computed_are_refused() {
    let cases = [
        (
            "text_config.model_type",
            "\"qwen3_5_moe_text\"",
            "mixtures of experts",
        ),
        ("text_config.model_type", "\"llama\"", "Qwen3.5"),
        ("text_config.num_experts", "256", "dense"),
        ("quantization_config", "{\"quant_method\": \"fp8\"}", "BF16"),
        ("text_config.hidden_act", "\"gelu\"", "silu"),
        ("text_config.output_gate_type", "\"sigmoid\"", "silu"),
        ("text_config.attn_output_gate", "false", "gated"),
        ("text_config.attention_bias", "true", "biases"),
        (
            "text_config.rope_parameters.rope_type",
            "\"linear\"",
            "yarn",
        ),
    ];
    for (field, value, expected) in cases {
        let message = target_error(&[(field, value)]);
        assert!(message.contains("is not supported"), "{message}");
        assert!(message.contains(expected), "{field} = {value}: {message}");
    }
}

#[test]
fn yarn_of_the_target() {
    let yarn = r#"{"rope_type": "yarn", "rope_theta": 10000000, "partial_rotary_factor": 0.25,
        "factor": 4.0, "original_max_position_embeddings": 262144}"#;
    let config = edited("target", &[("text_config.rope_parameters", yarn)]);
    let rope = TargetConfig::read(&config).unwrap().rope;
    assert_eq!(rope.dim, 8);
    let (_, scale) = rope.frequencies();
    assert!((f64::from(scale) - (0.1 * 4f64.ln() + 1.0)).abs() < 1e-6);
}

/// Fields to set in a config.
type Changes<'a> = &'a [(&'a str, &'a str)];

const SLIDING: AttentionMask = AttentionMask {
    causal: true,
    window: Some(48),
};
const FULL: AttentionMask = AttentionMask {
    causal: false,
    window: None,
};

fn drafter(changes: &[(&str, &str)]) -> DrafterConfig {
    DrafterConfig::read(&edited("drafter", changes), None).unwrap()
}

#[test]
fn masks_of_drafter_variants() {
    let causal = AttentionMask {
        causal: true,
        ..FULL
    };
    let wide = AttentionMask {
        window: Some(100),
        ..SLIDING
    };
    let blind = AttentionMask {
        causal: false,
        ..SLIDING
    };
    let no_types = ("layer_types", "null");
    let cases: [(Changes, [AttentionMask; 3]); 9] = [
        (&[], [SLIDING, SLIDING, FULL]),
        (&[("is_causal", "true")], [SLIDING, SLIDING, causal]),
        (&[("dflash_config.causal", "false")], [blind, blind, FULL]),
        (
            &[("dflash_config.swa_window_size", "100")],
            [wide, wide, FULL],
        ),
        (&[("swa_window_size", "100")], [wide, wide, FULL]),
        (&[("dflash_config.use_swa", "false")], [FULL; 3]),
        (&[("use_swa", "true")], [SLIDING; 3]),
        (&[no_types], [FULL; 3]),
        (
            &[no_types, ("max_window_layers", "1")],
            [FULL, SLIDING, SLIDING],
        ),
    ];
    for (changes, expected) in cases {
        assert_eq!(drafter(changes).masks, expected, "{changes:?}");
    }
}

#[test]
fn places_of_drafter_fields() {
    let nested = DrafterConfig::read(&open("drafter_variant"), None).unwrap();
    assert_eq!((nested.block_size, nested.rope.theta), (16, 1e7));
    assert_eq!(nested.rope.yarn.as_ref().unwrap().factor, 64.0);
    let plain = drafter(&[]);
    assert!(plain.guesses.is_empty());
    let same: [Changes; 4] = [
        &[("block_size", "null"), ("dflash_config.block_size", "16")],
        &[
            ("dflash_config.mask_token_id", "null"),
            ("dflash_config.mask_token", "500"),
        ],
        &[("eagle_aux_hidden_state_layer_ids", "[2, 3, 4, 5, 6]")],
        &[
            ("dflash_config.target_layer_ids", "null"),
            ("eagle_aux_hidden_state_layer_ids", "[2, 3, 4, 5, 6]"),
        ],
    ];
    for changes in same {
        assert_eq!(drafter(changes), plain, "{changes:?}");
    }
    let old = drafter(&[
        ("rope_theta", "null"),
        ("rope_parameters.rope_theta", "5000000"),
    ]);
    assert_eq!(old.rope.theta, 5e6);
}

/// What the config leaves out comes from the target or the reference formula, and is said.
#[test]
fn guesses_of_the_drafter() {
    let target = TargetConfig::read(&open("target")).unwrap();
    let changes = [
        ("dflash_config.target_layer_ids", "null"),
        ("rope_theta", "null"),
        ("block_size", "null"),
        ("head_dim", "null"),
    ];
    let checkpoint = edited("drafter", &changes);
    let config = DrafterConfig::read(&checkpoint, Some(&target)).unwrap();
    assert_eq!(config.target_layer_ids, [1, 2, 3, 4, 5]);
    assert_eq!(config.shapes.head_dim, 32);
    let expected = [
        "target_layer_ids = [1, 2, 3, 4, 5]",
        "rope_theta = 10000000.0",
        "block_size = 16",
    ];
    assert_eq!(config.guesses, expected);
    let alone = DrafterConfig::read(&checkpoint, None)
        .unwrap_err()
        .to_string();
    assert!(alone.contains("rope_theta is missing"), "{alone}");
}

#[test]
fn drafters_that_are_not_computed_are_refused() {
    let cases = [
        (
            "architectures",
            "[\"DFlash2DraftModel\"]",
            "DFlash2DraftModel",
        ),
        ("output_multiplier", "2.0", "output_multiplier"),
        ("final_logit_softcapping", "30.0", "final_logit_softcapping"),
        ("input_embedding_scale", "71.5", "input_embedding_scale"),
        ("attention_sink_bias", "true", "attention_sink_bias"),
        ("sample_from_anchor", "true", "sample_from_anchor"),
        (
            "dflash_config.sample_from_anchor",
            "true",
            "sample_from_anchor",
        ),
        ("projector_type", "\"domino\"", "domino"),
        ("dflash_config.projector_type", "\"domino\"", "domino"),
        ("dflash_config.new_trick", "3", "new_trick"),
        ("attention_bias", "true", "biases"),
        ("hidden_act", "\"gelu\"", "silu"),
        (
            "rope_scaling",
            "{\"type\": \"linear\", \"factor\": 2}",
            "yarn",
        ),
    ];
    for (field, value, expected) in cases {
        let checkpoint = edited("drafter", &[(field, value)]);
        let message = DrafterConfig::read(&checkpoint, None)
            .unwrap_err()
            .to_string();
        assert!(message.contains("is not supported"), "{field}: {message}");
        assert!(message.contains(expected), "{field} = {value}: {message}");
    }
    // Switched off, the same keys change nothing.
    let off = [
        ("sample_from_anchor", "false"),
        ("output_multiplier", "1.0"),
    ];
    assert_eq!(drafter(&off), drafter(&[]));
}

#[test]
fn contradictions_of_drafter_configs() {
    let cases = [
        (
            "dflash_config.block_size",
            "8",
            "block_size is 16, elsewhere it is 8",
        ),
        (
            "eagle_aux_hidden_state_layer_ids",
            "[1, 2, 3, 4, 5]",
            "minus one is [0, 1, 2, 3, 4]",
        ),
        (
            "eagle_aux_hidden_state_layer_ids",
            "[0]",
            "ids there start at 1",
        ),
        (
            "layer_types",
            "[\"full_attention\"]",
            "has 1 entries for 3 layers",
        ),
        ("sliding_window", "null", "sliding_window is missing"),
        ("block_size", "1", "is 1"),
        (
            "dflash_config.mask_token_id",
            "null",
            "mask_token_id is missing",
        ),
        ("num_key_value_heads", "3", "no multiple of 3"),
        ("dflash_config.target_layer_ids", "[]", "is empty"),
        (
            "dflash_config.mask_token_id",
            "\"<mask>\"",
            "expected a token id",
        ),
    ];
    for (field, value, expected) in cases {
        let checkpoint = edited("drafter", &[(field, value)]);
        let message = DrafterConfig::read(&checkpoint, None)
            .unwrap_err()
            .to_string();
        assert!(message.contains(expected), "{field} = {value}: {message}");
    }
}
