"""Qwen3.5 text model and MTP head in float64 NumPy, written from the formulas: the second opinion on Hugging Face.

Rows are tokens. Norm weights are zero-centred except the gated norm of GDN.
"""

import numpy as np

import gdn
import weights
from folders import ATTENTION, layer_types


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def softplus(x):
    return np.logaddexp(0, x)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def l2_norm(x):
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)


def rotate(x, cos, sin):
    """Rotates channel pairs (i, i + n) where n = cos.shape[-1]; channels past 2n pass. x [rows, heads, dim]."""
    n = cos.shape[-1]
    a, b, rest = x[..., :n], x[..., n : 2 * n], x[..., 2 * n :]
    cos, sin = cos[:, None], sin[:, None]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)


def attend(q, k, v, visible):
    """Grouped-query attention. q [rows, heads, dim], k and v [keys, kv heads, dim], visible [rows, keys]."""
    share = q.shape[1] // k.shape[1]
    k, v = k.repeat(share, 1), v.repeat(share, 1)
    scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(q.shape[-1])
    scores = np.where(visible, scores, -np.inf)
    return np.einsum("hqk,khd->qhd", softmax(scores), v).reshape(len(q), -1)


def swiglu(x, w):
    return (silu(x @ w["gate_proj.weight"].T) * (x @ w["up_proj.weight"].T)) @ w["down_proj.weight"].T


class Target:
    """One loaded folder; every method takes whole prompts from position 0."""

    def __init__(self, folder):
        self.config = weights.text_config(folder)
        tensors = weights.read(folder)
        nested = any(name.startswith("model.language_model.") for name in tensors)
        self.body = weights.below("model.language_model." if nested else "model.", tensors)
        self.mtp = weights.below("mtp.", tensors)
        self.embed = self.body["embed_tokens.weight"]
        self.head = self.embed if self.config["tie_word_embeddings"] else tensors["lm_head.weight"]
        self.eps = self.config["rms_norm_eps"]

    def norm(self, x, weight):
        return rms_norm(x, 1 + weight, self.eps)

    def gdn(self, x, w):
        """Returns (output, final state [heads, dk, dv], last three pre-convolution rows [3, channels])."""
        c = self.config
        rows, taps = len(x), c["linear_conv_kernel_dim"]
        nk, nv = c["linear_num_key_heads"], c["linear_num_value_heads"]
        dk, dv = c["linear_key_head_dim"], c["linear_value_head_dim"]
        qkv = x @ w["in_proj_qkv.weight"].T
        z = (x @ w["in_proj_z.weight"].T).reshape(rows, nv, dv)
        history = np.concatenate([np.zeros((taps - 1, qkv.shape[1])), qkv])
        kernel = w["conv1d.weight"][:, 0]
        mixed = silu(sum(history[j : j + rows] * kernel[:, j] for j in range(taps)))
        q, k, v = np.split(mixed, [nk * dk, 2 * nk * dk], axis=1)
        q = l2_norm(q.reshape(rows, nk, dk)) * dk**-0.5
        k = l2_norm(k.reshape(rows, nk, dk))
        beta = sigmoid(x @ w["in_proj_b.weight"].T)
        g = -np.exp(w["A_log"]) * softplus(x @ w["in_proj_a.weight"].T + w["dt_bias"])
        state = np.zeros((nv, dk, dv))
        out, state = gdn.recurrence(q, k, v.reshape(rows, nv, dv), g, beta, state)
        out = rms_norm(out, w["norm.weight"], self.eps) * silu(z)
        return out.reshape(rows, -1) @ w["out_proj.weight"].T, state, history[rows:]

    def attention(self, x, w):
        c = self.config
        rows, heads, kv, dim = len(x), c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        q, gate = np.split((x @ w["q_proj.weight"].T).reshape(rows, heads, 2 * dim), 2, -1)
        k = (x @ w["k_proj.weight"].T).reshape(rows, kv, dim)
        v = (x @ w["v_proj.weight"].T).reshape(rows, kv, dim)
        rope = c["rope_parameters"]
        rotary = int(dim * rope["partial_rotary_factor"])
        angles = np.arange(rows)[:, None] * rope["rope_theta"] ** (-np.arange(0, rotary, 2) / rotary)
        q = rotate(self.norm(q, w["q_norm.weight"]), np.cos(angles), np.sin(angles))
        k = rotate(self.norm(k, w["k_norm.weight"]), np.cos(angles), np.sin(angles))
        out = attend(q, k, v, np.tri(rows, dtype=bool)) * sigmoid(gate.reshape(rows, -1))
        return out @ w["o_proj.weight"].T

    def layer(self, x, w, kind):
        """Returns (residual output, state, convolution rows); the last two are None for attention."""
        normed = self.norm(x, w["input_layernorm.weight"])
        if kind == ATTENTION:
            mixed, state, conv = self.attention(normed, weights.below("self_attn.", w)), None, None
        else:
            mixed, state, conv = self.gdn(normed, weights.below("linear_attn.", w))
        x = x + mixed
        mlp = swiglu(self.norm(x, w["post_attention_layernorm.weight"]), weights.below("mlp.", w))
        return x + mlp, state, conv

    def forward(self, ids):
        """Returns a dict: residuals [layers, n, hidden], final, logits, and per GDN layer (state, conv)."""
        x, residuals, states = self.embed[ids], [], {}
        for i, kind in enumerate(layer_types(self.config)):
            x, state, conv = self.layer(x, weights.below(f"layers.{i}.", self.body), kind)
            residuals.append(x)
            if state is not None:
                states[i] = (state, conv)
        final = self.norm(x, self.body["norm.weight"])
        return dict(residuals=np.stack(residuals), final=final, logits=final @ self.head.T, states=states)

    def mtp_forward(self, tokens, hidden):
        """Rows (token p+1, final-normed hidden p) -> normed MTP hidden of every row."""
        w = self.mtp
        e = self.norm(self.embed[tokens], w["pre_fc_norm_embedding.weight"])
        u = self.norm(hidden, w["pre_fc_norm_hidden.weight"])
        x = np.concatenate([e, u], -1) @ w["fc.weight"].T
        x, _, _ = self.layer(x, weights.below("layers.0.", w), ATTENTION)
        return self.norm(x, w["norm.weight"])
