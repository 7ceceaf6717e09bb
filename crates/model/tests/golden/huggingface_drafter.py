"""The drafter out of Hugging Face Qwen3 parts in float32: the second opinion on `drafter.Drafter`.

The context enters as an already filled key/value cache, so that the library's layer sees only the block rows.
"""

import torch
from safetensors.torch import load_file
from transformers import DynamicCache, Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import (
    Qwen3DecoderLayer,
    Qwen3RMSNorm,
    Qwen3RotaryEmbedding,
    apply_rotary_pos_emb,
)

from drafter import visibility

NOT_QWEN3 = ("architectures", "auto_map", "model_type", "block_size", "dflash_config", "is_causal", "rope_theta")


def qwen3_config(config):
    """The drafter's config with RoPE spelled the library's way."""
    rope = {"rope_type": "default", **(config.get("rope_parameters") or {"rope_theta": config["rope_theta"]})}
    scaling = dict(config.get("rope_scaling") or {})
    if scaling:
        rope |= scaling | {"rope_type": scaling.pop("type")}
    known = {key: value for key, value in config.items() if key not in NOT_QWEN3}
    known |= {"rope_parameters": rope, "rope_scaling": None, "dtype": "float32"}
    qwen3 = Qwen3Config(**known)
    qwen3._attn_implementation = "eager"
    return qwen3


class Parts(torch.nn.Module):
    """Modules under the checkpoint's own names."""

    def __init__(self, config):
        super().__init__()
        c = qwen3_config(config)
        taps = len(config["dflash_config"]["target_layer_ids"])
        self.fc = torch.nn.Linear(taps * c.hidden_size, c.hidden_size, bias=False)
        self.hidden_norm = Qwen3RMSNorm(c.hidden_size, eps=c.rms_norm_eps)
        self.norm = Qwen3RMSNorm(c.hidden_size, eps=c.rms_norm_eps)
        self.layers = torch.nn.ModuleList(Qwen3DecoderLayer(c, i) for i in range(c.num_hidden_layers))
        self.rotary = Qwen3RotaryEmbedding(c)


def forward(drafter, folder, features, block):
    """`drafter` supplies config and masks; the weights are read anew. Returns final-normed hidden [16, hidden]."""
    parts = Parts(drafter.config)
    tensors = {name: tensor.float() for name, tensor in load_file(folder / "model.safetensors").items()}
    missing = parts.load_state_dict(tensors, strict=False)
    assert not missing.unexpected_keys and all("rotary" in key for key in missing.missing_keys), missing
    features, hidden = torch.from_numpy(features).float()[None], torch.from_numpy(block).float()[None]
    context = features.shape[1]
    at = torch.arange(context + hidden.shape[1])
    cos, sin = parts.rotary(hidden, at[None])
    shared = parts.hidden_norm(parts.fc(features))
    for i, layer in enumerate(parts.layers):
        attention = layer.self_attn
        heads = (1, context, -1, attention.head_dim)
        k = attention.k_norm(attention.k_proj(shared).view(heads)).transpose(1, 2)
        _, k = apply_rotary_pos_emb(k, k, cos[:, :context], sin[:, :context])
        cache = DynamicCache()
        for below in range(i + 1):
            cache.update(k, attention.v_proj(shared).view(heads).transpose(1, 2), below)
        causal, window = drafter.layer_rule(drafter.config["layer_types"][i])
        visible = torch.from_numpy(visibility(at[context:].numpy(), at.numpy(), causal, window))
        mask = torch.zeros(visible.shape).masked_fill(~visible, float("-inf"))[None, None]
        rope = cos[:, context:], sin[:, context:]
        out = layer(hidden, attention_mask=mask, position_embeddings=rope, cache=cache)
        hidden = out[0] if isinstance(out, tuple) else out
    return parts.norm(hidden)[0]
