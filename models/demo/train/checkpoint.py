"""Reading and writing the pair in the released format."""

import json
import shutil

import torch
from safetensors.torch import load_file, save_file

import tokenizer as demo_tokenizer
from rendering import TEMPLATE

PREFIX = "model.language_model."


def _stored(name, tensor):
    keep = name.endswith(("linear_attn.A_log", "linear_attn.norm.weight"))
    return tensor.detach().to("cpu", torch.float32 if keep else torch.bfloat16).contiguous()


def target_config(shape, tokenizer):
    """config.json of the target: the released wrapper around a text_config."""
    end = tokenizer.token_to_id("<|endoftext|>")
    kinds = ["full_attention" if shape.full(i) else "linear_attention" for i in range(shape.layers)]
    text = {
        "model_type": "qwen3_5_text", "vocab_size": shape.vocab, "hidden_size": shape.hidden, "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.layers, "layer_types": kinds, "full_attention_interval": shape.interval,
        "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_dim,
        "attn_output_gate": True, "attention_bias": False, "attention_dropout": 0.0,
        "linear_num_key_heads": shape.key_heads, "linear_num_value_heads": shape.value_heads,
        "linear_key_head_dim": shape.state_dim, "linear_value_head_dim": shape.state_dim, "linear_conv_kernel_dim": shape.conv,
        "hidden_act": "silu", "output_gate_type": "swish", "mamba_ssm_dtype": "float32", "rms_norm_eps": shape.eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": int(shape.theta), "partial_rotary_factor": shape.rotary / shape.head_dim,
                            "mrope_section": [11, 11, 10], "mrope_interleaved": True},
        "partial_rotary_factor": shape.rotary / shape.head_dim, "max_position_embeddings": shape.max_positions,
        "tie_word_embeddings": True, "bos_token_id": end, "eos_token_id": end, "pad_token_id": None,
        "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False, "dtype": "bfloat16",
        "initializer_range": 0.02, "use_cache": True, "mlp_only_layers": [],
    }
    vision = {"model_type": "qwen3_5", "depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 1, "out_hidden_size": shape.hidden}
    ids = {name: tokenizer.token_to_id(f"<|{token}|>") for name, token in (
        ("image_token_id", "image_pad"), ("video_token_id", "video_pad"),
        ("vision_start_token_id", "vision_start"), ("vision_end_token_id", "vision_end"))}
    return {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", **ids, "language_model_only": True,
            "text_config": text, "tie_word_embeddings": True, "vision_config": vision}


def drafter_config(shape, target, tokenizer):
    """config.json of the drafter."""
    end = tokenizer.token_to_id("<|endoftext|>")
    return {
        "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "attention_bias": False, "attention_dropout": 0.0,
        "block_size": shape.block, "bos_token_id": None, "dflash_config": {
            "mask_token_id": tokenizer.token_to_id("<|audio_start|>"), "target_layer_ids": list(shape.taps)},
        "dtype": "bfloat16", "eos_token_id": end, "head_dim": shape.head_dim, "hidden_act": "silu", "hidden_size": shape.hidden,
        "initializer_range": 0.02, "intermediate_size": shape.ffn, "layer_types": list(shape.kinds),
        "max_position_embeddings": target.max_positions, "max_window_layers": len(shape.kinds),
        "num_attention_heads": shape.heads, "num_hidden_layers": len(shape.kinds), "num_key_value_heads": shape.kv_heads,
        "num_target_layers": target.layers, "pad_token_id": end, "rms_norm_eps": shape.eps, "rope_scaling": None,
        "rope_theta": int(shape.theta), "sliding_window": shape.window, "tie_word_embeddings": False, "use_cache": True,
        "use_sliding_window": True, "vocab_size": target.vocab,
    }


def _save(tensors, path):
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(0o644)


def _write(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def save_target(target, mtp, tokenizer, folder):
    """Writes the whole target folder; `mtp` may be None while it is not trained yet."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {PREFIX + n: _stored(n, p) for n, p in target.state_dict().items()}
    if mtp is not None:
        tensors |= {"mtp." + n: _stored(n, p) for n, p in mtp.state_dict().items()}
    _save(tensors, folder / "model.safetensors")
    _write(folder / "config.json", target_config(target.shape, tokenizer))
    end, turn = tokenizer.token_to_id("<|endoftext|>"), tokenizer.token_to_id("<|im_end|>")
    _write(folder / "generation_config.json", {"bos_token_id": end, "do_sample": True, "eos_token_id": [turn, end],
                                               "pad_token_id": end, "temperature": 1.0, "top_k": 20, "top_p": 0.95})
    demo_tokenizer.save(tokenizer, folder)
    shutil.copyfile(TEMPLATE, folder / "chat_template.jinja")


def save_drafter(drafter, target_shape, tokenizer, folder):
    """Writes the drafter folder."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {n: _stored(n, p) for n, p in drafter.state_dict().items()}
    _save(tensors, folder / "model.safetensors")
    _write(folder / "config.json", drafter_config(drafter.shape, target_shape, tokenizer))


def _load(module, tensors, prefix):
    module.load_state_dict({n[len(prefix):]: t.float() for n, t in tensors.items() if n.startswith(prefix)})


def load_target(target, mtp, folder):
    """Reads the stored weights into f32 modules; `mtp` may be None, and is left as it is if its tensors are absent."""
    tensors = load_file(folder / "model.safetensors")
    _load(target, tensors, PREFIX)
    if mtp is not None and any(n.startswith("mtp.") for n in tensors):
        _load(mtp, tensors, "mtp.")


def load_drafter(drafter, folder):
    """Reads the stored weights into an f32 module."""
    _load(drafter, load_file(folder / "model.safetensors"), "")
