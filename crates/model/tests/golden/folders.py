"""Writes the tiny model folders: random weights under the exact names and dtypes of the released checkpoints."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

MATRIX_STD = 0.1
# Scales q and k of the first GDN key head, so that the epsilon of their l2 norm shows in every output.
FAINT = 2.0**-10
ATTENTION, GDN = "full_attention", "linear_attention"

TARGET = dict(
    model_type="qwen3_5_text",
    vocab_size=512,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=8,
    layer_types=([GDN] * 3 + [ATTENTION]) * 2,
    full_attention_interval=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    attn_output_gate=True,
    attention_bias=False,
    attention_dropout=0.0,
    linear_num_key_heads=2,
    linear_num_value_heads=6,
    linear_key_head_dim=16,
    linear_value_head_dim=16,
    linear_conv_kernel_dim=4,
    hidden_act="silu",
    output_gate_type="swish",
    mamba_ssm_dtype="float32",
    rms_norm_eps=1e-6,
    rope_parameters=dict(
        rope_type="default",
        rope_theta=10000000,
        partial_rotary_factor=0.25,
        mrope_section=[2, 1, 1],
        mrope_interleaved=True,
    ),
    partial_rotary_factor=0.25,
    max_position_embeddings=4096,
    tie_word_embeddings=False,
    bos_token_id=1,
    eos_token_id=1,
    pad_token_id=None,
    mtp_num_hidden_layers=1,
    mtp_use_dedicated_embeddings=False,
    dtype="bfloat16",
    initializer_range=0.02,
    use_cache=True,
    mlp_only_layers=[],
)

# Differs from TARGET wherever a loader may have assumed: tied, flat, no layer_types, other head ratios.
FLAT = {
    **TARGET,
    "architectures": ["Qwen3_5ForCausalLM"],
    "vocab_size": 192,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "head_dim": 16,
    "linear_num_value_heads": 4,
    "rope_parameters": dict(
        rope_type="default",
        rope_theta=10000000,
        partial_rotary_factor=0.5,
        mrope_section=[2, 1, 1],
        mrope_interleaved=True,
    ),
    "partial_rotary_factor": 0.5,
    "tie_word_embeddings": True,
}
del FLAT["layer_types"], FLAT["output_gate_type"]

# The head widths and ratios of the 27B, which kernels are built for.
WIDE = {
    **TARGET,
    "num_hidden_layers": 4,
    "layer_types": [GDN] * 3 + [ATTENTION],
    "num_attention_heads": 6,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 3,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "rope_parameters": {**TARGET["rope_parameters"], "mrope_section": [11, 11, 10]},
}

DRAFTER = dict(
    architectures=["DFlashDraftModel"],
    model_type="qwen3",
    auto_map={"AutoModel": "dflash.DFlashDraftModel"},
    dtype="bfloat16",
    block_size=16,
    dflash_config=dict(mask_token_id=500, target_layer_ids=[1, 2, 3, 4, 5]),
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    attention_bias=False,
    attention_dropout=0.0,
    hidden_act="silu",
    initializer_range=0.02,
    rms_norm_eps=1e-6,
    layer_types=["sliding_attention", "sliding_attention", ATTENTION],
    sliding_window=48,
    use_sliding_window=True,
    max_window_layers=3,
    rope_theta=10000000,
    rope_scaling=None,
    max_position_embeddings=4096,
    num_target_layers=8,
    vocab_size=512,
    bos_token_id=None,
    eos_token_id=1,
    pad_token_id=1,
    tie_word_embeddings=False,
    use_cache=True,
)

DRAFTER_WIDE = {
    **DRAFTER,
    "dflash_config": dict(mask_token_id=500, target_layer_ids=[0, 1, 2, 3]),
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 128,
    "layer_types": ["sliding_attention", ATTENTION],
    "max_window_layers": 2,
    "num_target_layers": 4,
}

# The field variants of other published drafters in one config.
DRAFTER_VARIANT = {
    **DRAFTER,
    "dflash_config": dict(block_size=16, mask_token_id=500, target_layer_ids=[1, 2, 3, 4, 5]),
    "num_hidden_layers": 2,
    "layer_types": [ATTENTION] * 2,
    "sliding_window": None,
    "use_sliding_window": False,
    "max_window_layers": 2,
    "is_causal": True,
    "rope_parameters": dict(rope_theta=10000000),
    "rope_scaling": dict(
        type="yarn", factor=64.0, beta_fast=32.0, beta_slow=1.0, original_max_position_embeddings=4096
    ),
}
del DRAFTER_VARIANT["block_size"], DRAFTER_VARIANT["rope_theta"]


def layer_types(config):
    """The listed types, or the interval rule when the list is missing."""
    interval = config["full_attention_interval"]
    rule = [GDN if (i + 1) % interval else ATTENTION for i in range(config["num_hidden_layers"])]
    return config.get("layer_types", rule)


class Random:
    """Draws tensors already rounded to the precision in which they are stored."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, mean, std, *shape):
        values = torch.empty(shape).normal_(mean, std, generator=self.generator)
        return values.to(torch.bfloat16)

    def matrix(self, *shape):
        return self.normal(0, MATRIX_STD, *shape)

    def uniform_f32(self, low, high, *shape):
        return torch.empty(shape).uniform_(low, high, generator=self.generator)


def mlp(random, hidden, intermediate):
    return {
        "mlp.gate_proj.weight": random.matrix(intermediate, hidden),
        "mlp.up_proj.weight": random.matrix(intermediate, hidden),
        "mlp.down_proj.weight": random.matrix(hidden, intermediate),
    }


def target_layer(random, c, kind):
    hidden, head = c["hidden_size"], c["head_dim"]
    tensors = {
        "input_layernorm.weight": random.normal(0, 0.1, hidden),
        "post_attention_layernorm.weight": random.normal(0, 0.1, hidden),
        **mlp(random, hidden, c["intermediate_size"]),
    }
    if kind == ATTENTION:
        q, kv = c["num_attention_heads"] * head, c["num_key_value_heads"] * head
        mixer = {
            "self_attn.q_proj.weight": random.matrix(2 * q, hidden),
            "self_attn.k_proj.weight": random.matrix(kv, hidden),
            "self_attn.v_proj.weight": random.matrix(kv, hidden),
            "self_attn.o_proj.weight": random.matrix(hidden, q),
            "self_attn.q_norm.weight": random.normal(0, 0.1, head),
            "self_attn.k_norm.weight": random.normal(0, 0.1, head),
        }
    else:
        heads, dv = c["linear_num_value_heads"], c["linear_value_head_dim"]
        values = heads * dv
        channels = 2 * c["linear_num_key_heads"] * c["linear_key_head_dim"] + values
        conv = random.normal(0, 0.5, channels, 1, c["linear_conv_kernel_dim"])
        dk, keys = c["linear_key_head_dim"], c["linear_num_key_heads"] * c["linear_key_head_dim"]
        conv[:dk] *= FAINT
        conv[keys : keys + dk] *= FAINT
        mixer = {
            "linear_attn.in_proj_qkv.weight": random.matrix(channels, hidden),
            "linear_attn.in_proj_z.weight": random.matrix(values, hidden),
            "linear_attn.in_proj_b.weight": random.matrix(heads, hidden),
            "linear_attn.in_proj_a.weight": random.matrix(heads, hidden),
            "linear_attn.conv1d.weight": conv,
            "linear_attn.A_log": random.uniform_f32(-2, 2, heads),
            "linear_attn.dt_bias": random.normal(0, 1, heads),
            "linear_attn.norm.weight": 1 + random.uniform_f32(-0.2, 0.2, dv),
            "linear_attn.out_proj.weight": random.matrix(hidden, values),
        }
    return tensors | mixer


def under(prefix, tensors):
    return {prefix + name: tensor for name, tensor in tensors.items()}


def target_tensors(random, c, prefix):
    hidden = c["hidden_size"]
    tensors = {
        "embed_tokens.weight": random.matrix(c["vocab_size"], hidden),
        "norm.weight": random.normal(0, 0.1, hidden),
    }
    for i, kind in enumerate(layer_types(c)):
        tensors |= under(f"layers.{i}.", target_layer(random, c, kind))
    tensors = under(prefix, tensors)
    if not c["tie_word_embeddings"]:
        # Half the usual spread, so that transformers itself is within 5e-5 of float64.
        tensors["lm_head.weight"] = random.matrix(c["vocab_size"], hidden) * 0.5
    return tensors


def mtp_tensors(random, c):
    hidden = c["hidden_size"]
    tensors = {
        "fc.weight": random.matrix(hidden, 2 * hidden),
        "pre_fc_norm_embedding.weight": random.normal(0, 0.1, hidden),
        "pre_fc_norm_hidden.weight": random.normal(0, 0.1, hidden),
        "norm.weight": random.normal(0, 0.1, hidden),
        **under("layers.0.", target_layer(random, c, ATTENTION)),
    }
    return under("mtp.", tensors)


def visual_tensors(random):
    """A few tensors of the vision tower, which a text server must skip."""
    return under(
        "model.visual.",
        {
            "patch_embed.proj.weight": random.matrix(16, 3, 2, 4, 4),
            "pos_embed.weight": random.matrix(16, 16),
            "blocks.0.norm1.weight": random.normal(1, 0.1, 16),
            "blocks.0.attn.qkv.weight": random.matrix(48, 16),
            "merger.linear_fc1.weight": random.matrix(16, 16),
        },
    )


def drafter_tensors(random, c):
    hidden, head = c["hidden_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * head, c["num_key_value_heads"] * head
    taps = len(c["dflash_config"]["target_layer_ids"])
    tensors = {
        "fc.weight": random.matrix(hidden, taps * hidden),
        "hidden_norm.weight": random.normal(1, 0.1, hidden),
        "norm.weight": random.normal(1, 0.1, hidden),
    }
    for i in range(c["num_hidden_layers"]):
        layer = {
            "input_layernorm.weight": random.normal(1, 0.1, hidden),
            "post_attention_layernorm.weight": random.normal(1, 0.1, hidden),
            "self_attn.q_proj.weight": random.matrix(q, hidden),
            "self_attn.k_proj.weight": random.matrix(kv, hidden),
            "self_attn.v_proj.weight": random.matrix(kv, hidden),
            "self_attn.o_proj.weight": random.matrix(hidden, q),
            "self_attn.q_norm.weight": random.normal(1, 0.1, head),
            "self_attn.k_norm.weight": random.normal(1, 0.1, head),
            **mlp(random, hidden, c["intermediate_size"]),
        }
        tensors |= under(f"layers.{i}.", layer)
    return tensors


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def save(tensors, path):
    save_file(tensors, path, metadata={"format": "pt"})


def write_target(folder):
    """The multimodal release: nested text_config, `model.language_model.` prefix, one file."""
    folder.mkdir(parents=True, exist_ok=True)
    random = Random(1)
    tensors = target_tensors(random, TARGET, "model.language_model.")
    save(tensors | mtp_tensors(random, TARGET) | visual_tensors(random), folder / "model.safetensors")
    config = dict(
        architectures=["Qwen3_5ForConditionalGeneration"],
        model_type="qwen3_5",
        text_config=TARGET,
        vision_config=dict(model_type="qwen3_5", depth=1, hidden_size=16, num_heads=2, patch_size=4),
        image_token_id=508,
        video_token_id=509,
        vision_start_token_id=506,
        vision_end_token_id=507,
        tie_word_embeddings=False,
        language_model_only=False,
    )
    write_json(folder / "config.json", config)
    generation = dict(do_sample=True, temperature=1.0, top_k=20, top_p=0.95, eos_token_id=[2, 1], pad_token_id=1)
    write_json(folder / "generation_config.json", generation)


def write_flat(folder):
    """A text-only export: flat config, `model.` prefix, tied head, two shards and an unlisted MTP file."""
    folder.mkdir(parents=True, exist_ok=True)
    random = Random(7)
    tensors = target_tensors(random, FLAT, "model.")
    late = {name for name in tensors if name.startswith(("model.layers.2.", "model.layers.3.", "model.norm."))}
    shards = {
        "model.safetensors-00001-of-00002.safetensors": {n: t for n, t in tensors.items() if n not in late},
        "model.safetensors-00002-of-00002.safetensors": {n: t for n, t in tensors.items() if n in late},
    }
    for name, shard in shards.items():
        save(shard, folder / name)
    save(mtp_tensors(random, FLAT), folder / "mtp.safetensors")
    size = sum(t.numel() * t.element_size() for t in tensors.values())
    weight_map = {tensor: file for file, shard in shards.items() for tensor in sorted(shard)}
    write_json(folder / "model.safetensors.index.json", dict(metadata=dict(total_size=size), weight_map=weight_map))
    write_json(folder / "config.json", FLAT)


def write_wide(folder):
    """One file without a vision tower."""
    folder.mkdir(parents=True, exist_ok=True)
    random = Random(3)
    save(target_tensors(random, WIDE, "model.") | mtp_tensors(random, WIDE), folder / "model.safetensors")
    write_json(folder / "config.json", WIDE)


def write_drafter(folder, config, seed):
    folder.mkdir(parents=True, exist_ok=True)
    save(drafter_tensors(Random(seed), config), folder / "model.safetensors")
    write_json(folder / "config.json", config)


def load_config(folder):
    return json.loads((Path(folder) / "config.json").read_text())
