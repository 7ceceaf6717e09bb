"""The DFlash drafter in float64 NumPy, written from its description. Norm weights are plain here."""

import numpy as np

import weights
from folders import load_config
from reference import attend, rms_norm, rotate, swiglu


def inverse_frequencies(config):
    """(inverse frequencies [head_dim / 2], factor on cos and sin); YaRN when rope_scaling asks for it."""
    theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
    dim = config["head_dim"]
    plain = theta ** (-np.arange(0, dim, 2) / dim)
    scaling = config.get("rope_scaling")
    if scaling is None:
        return plain, 1.0

    def pair_turning(turns):
        """The (fractional) pair that makes `turns` turns over the original context."""
        return dim * np.log(scaling["original_max_position_embeddings"] / (turns * 2 * np.pi)) / (2 * np.log(theta))

    low = max(np.floor(pair_turning(scaling["beta_fast"])), 0)
    high = min(np.ceil(pair_turning(scaling["beta_slow"])), dim - 1)
    stretched = np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)
    factor = scaling["factor"]
    return plain / factor * stretched + plain * (1 - stretched), 0.1 * np.log(factor) + 1


def visibility(q_at, k_at, causal, window):
    """[queries, keys] by absolute position; a window of W holds W keys including the query's own."""
    distance = q_at[:, None] - k_at[None, :]
    visible = np.ones(distance.shape, bool)
    if causal:
        visible &= distance >= 0
    if window is not None:
        visible &= distance < window
    return visible


class Drafter:
    """`sliding_causal=False` and changes of the config exist for the negative controls."""

    def __init__(self, folder, sliding_causal=True, **changes):
        self.config = {**load_config(folder), **changes}
        self.sliding_causal = sliding_causal
        self.tensors = weights.read(folder)
        self.eps = self.config["rms_norm_eps"]

    def layer_rule(self, kind):
        """(causal inside the block, window) of one layer type."""
        sliding = kind == "sliding_attention"
        causal = self.config.get("is_causal")
        if causal is None:
            causal = sliding and self.sliding_causal
        return causal, self.config["sliding_window"] if sliding else None

    def forward(self, features, block):
        """features [context, taps * hidden], block [block_size, hidden] raw embeddings -> final-normed hidden."""
        c, context = self.config, len(features)
        heads, kv, dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        frequencies, magnitude = inverse_frequencies(c)
        at = np.arange(context + len(block))
        angles = at[:, None] * frequencies
        cos, sin = np.cos(angles) * magnitude, np.sin(angles) * magnitude
        shared = rms_norm(features @ self.tensors["fc.weight"].T, self.tensors["hidden_norm.weight"], self.eps)
        hidden = block
        for i, kind in enumerate(c["layer_types"]):
            w = weights.below(f"layers.{i}.", self.tensors)
            x = rms_norm(hidden, w["input_layernorm.weight"], self.eps)
            rows = np.concatenate([shared, x])
            q = (x @ w["self_attn.q_proj.weight"].T).reshape(len(x), heads, dim)
            k = (rows @ w["self_attn.k_proj.weight"].T).reshape(len(rows), kv, dim)
            v = (rows @ w["self_attn.v_proj.weight"].T).reshape(len(rows), kv, dim)
            q = rotate(rms_norm(q, w["self_attn.q_norm.weight"], self.eps), cos[context:], sin[context:])
            k = rotate(rms_norm(k, w["self_attn.k_norm.weight"], self.eps), cos, sin)
            out = attend(q, k, v, visibility(at[context:], at, *self.layer_rule(kind)))
            hidden = hidden + out @ w["self_attn.o_proj.weight"].T
            z = rms_norm(hidden, w["post_attention_layernorm.weight"], self.eps)
            hidden = hidden + swiglu(z, weights.below("mlp.", w))
        return rms_norm(hidden, self.tensors["norm.weight"], self.eps)
