"""Goldens of the Hugging Face implementation in float32, each compared with the float64 reference."""

import copy

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, Qwen3_5ForCausalLM
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5DecoderLayer, Qwen3_5RMSNorm

import weights
from folders import ATTENTION

STATE_LENGTH = 70
CHAIN = 2


class Errors(dict):
    """The largest difference from float64 per quantity."""

    def note(self, name, value, expected):
        difference = float(np.abs(np.asarray(value, np.float64) - expected).max())
        self[name] = max(self.get(name, 0.0), difference)


def load(folder):
    """The text model in f32 (BF16 weights widen exactly)."""
    config = AutoConfig.from_pretrained(folder)
    text = getattr(config, "text_config", config)
    model, info = Qwen3_5ForCausalLM.from_pretrained(
        folder, config=text, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    assert not info["missing_keys"] and not info["mismatched_keys"], info
    return model.eval()


def batch(ids):
    return torch.from_numpy(np.asarray(ids))[None]


def logits(model, ids):
    return model(batch(ids), use_cache=False).logits[0]


def states(model, ids, reference, errors):
    """Residual outputs of every layer, the final-normed hidden, and the GDN and convolution states."""
    outputs = {}
    hooks = [
        layer.register_forward_hook(lambda _, __, out, i=i: outputs.__setitem__(i, out[0] if isinstance(out, tuple) else out))
        for i, layer in enumerate(model.model.layers)
    ]
    run = model(batch(ids), use_cache=True, output_hidden_states=True)
    for hook in hooks:
        hook.remove()
    residuals = torch.stack([outputs[i][0] for i in range(len(outputs))])
    for i, listed in enumerate(run.hidden_states[1:-1]):
        assert torch.equal(listed[0], residuals[i])
    tensors = {"residuals": residuals, "final": run.hidden_states[-1][0]}
    errors.note("residuals", tensors["residuals"], reference["residuals"])
    errors.note("final", tensors["final"], reference["final"])
    cache = getattr(run, "cache", None) or run.past_key_values
    for i, (state, conv) in reference["states"].items():
        layer = cache.layers[i]
        tensors[f"gdn.{i}.state"] = layer.recurrent_states[0][0]
        tensors[f"gdn.{i}.conv"] = layer.conv_states[0][0, :, -len(conv) :].T
        errors.note("gdn state", tensors[f"gdn.{i}.state"], state)
        errors.note("gdn conv", tensors[f"gdn.{i}.conv"], conv)
    return tensors


class MtpHead:
    """The MTP head out of Hugging Face parts, as the library does not load `mtp.*` of this family."""

    def __init__(self, model, folder):
        self.model = model
        config = copy.deepcopy(model.config)
        config.num_hidden_layers, config.layer_types = 1, [ATTENTION]
        hidden, eps = config.hidden_size, config.rms_norm_eps
        parts = torch.nn.Module()
        parts.fc = torch.nn.Linear(2 * hidden, hidden, bias=False)
        parts.layers = torch.nn.ModuleList([Qwen3_5DecoderLayer(config, 0)])
        for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
            setattr(parts, name, Qwen3_5RMSNorm(hidden, eps=eps))
        tensors = {}
        for path in folder.glob("*.safetensors"):
            tensors |= weights.below("mtp.", load_file(path))
        parts.load_state_dict({name: tensor.float() for name, tensor in tensors.items()}, strict=True)
        self.parts = parts.eval()

    def forward(self, tokens, hidden):
        """Rows (token p+1, hidden p) at positions p = 0.. -> normed hidden [rows, hidden]."""
        e = self.parts.pre_fc_norm_embedding(self.model.model.embed_tokens(batch(tokens)))
        u = self.parts.pre_fc_norm_hidden(hidden[None])
        x = self.parts.fc(torch.cat([e, u], -1))
        rows = x.shape[1]
        rope = self.model.model.rotary_emb(x, torch.arange(rows).expand(3, 1, rows))
        mask = torch.full((rows, rows), float("-inf")).triu(1)[None, None]
        out = self.parts.layers[0](x, position_embeddings=rope, attention_mask=mask)
        return self.parts.norm(out[0] if isinstance(out, tuple) else out)[0]


def mtp(model, folder, ids, target, errors):
    """First pass over all rows of `ids`, then chained drafts fed with their own normed output."""
    head = MtpHead(model, folder)
    final = model.model(batch(ids), use_cache=False).last_hidden_state[0]
    bonus = int(model.lm_head(final[-1]).argmax())
    tokens = [*ids[1:].tolist(), bonus]
    hidden, chain = final, []
    for _ in range(CHAIN + 1):
        out = head.forward(tokens, hidden)
        chain.append(int(model.lm_head(out[-1]).argmax()))
        hidden = torch.cat([final, out[len(ids) - 1 :]])
        tokens.append(chain[-1])
    tokens.pop()
    exact_hidden = target.forward(ids)["final"]
    exact = target.mtp_forward(tokens[: len(ids)], exact_hidden)
    for step in range(CHAIN):
        rows = np.concatenate([exact_hidden, exact[len(ids) - 1 :]])
        exact = target.mtp_forward(tokens[: len(ids) + step + 1], rows)
    errors.note("mtp hidden", out, exact)
    first, late = out[: len(ids)], out[len(ids) :]
    return {
        "mtp.tokens": torch.tensor(tokens[: len(ids)]),
        "mtp.hidden": first,
        "mtp.last_logits": model.lm_head(first[-4:]),
        "mtp.chain.tokens": torch.tensor(tokens[len(ids) :]),
        "mtp.chain.hidden": late,
        "mtp.chain.logits": model.lm_head(late),
        "mtp.chain.drafts": torch.tensor(chain),
    }
