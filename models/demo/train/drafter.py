"""The DFlash drafter: all slots of a block predicted in one pass from tapped target features."""

import torch
import torch.nn.functional as F
from torch import nn

from layers import Mlp, Norm, linear, rotate


class BlockAttention(nn.Module):
    """Attention of block rows over context rows and the block itself; context skips the input norm."""

    def __init__(self, shape):
        super().__init__()
        s = self.shape = shape
        self.q_proj = linear(s.hidden, s.heads * s.head_dim)
        self.k_proj = linear(s.hidden, s.kv_heads * s.head_dim)
        self.v_proj = linear(s.hidden, s.kv_heads * s.head_dim)
        self.o_proj = linear(s.heads * s.head_dim, s.hidden)
        self.q_norm = Norm(s.head_dim, s.eps, centred=False)
        self.k_norm = Norm(s.head_dim, s.eps, centred=False)

    def forward(self, x, context, at, context_at, mask):
        s = self.shape

        def heads(rows, projection, count):
            return projection(rows).view(*rows.shape[:2], count, s.head_dim).transpose(1, 2)

        both, both_at = torch.cat([context, x], 1), torch.cat([context_at, at], 1)
        v = heads(both, self.v_proj, s.kv_heads)
        q = rotate(self.q_norm(heads(x, self.q_proj, s.heads)), at, s.head_dim, s.theta).to(v.dtype)
        k = rotate(self.k_norm(heads(both, self.k_proj, s.kv_heads)), both_at, s.head_dim, s.theta).to(v.dtype)
        k, v = (y.repeat_interleave(s.heads // s.kv_heads, 1) for y in (k, v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o_proj(out.transpose(1, 2).flatten(2))


class DrafterLayer(nn.Module):
    """Attention and MLP, both pre-normed and residual."""

    def __init__(self, shape):
        super().__init__()
        self.input_layernorm = Norm(shape.hidden, shape.eps, centred=False)
        self.post_attention_layernorm = Norm(shape.hidden, shape.eps, centred=False)
        self.self_attn = BlockAttention(shape)
        self.mlp = Mlp(shape)

    def forward(self, x, *context):
        x = x + self.self_attn(self.input_layernorm(x), *context)
        return x + self.mlp(self.post_attention_layernorm(x))


def block_masks(shape, positions, anchors):
    """(sliding, full) masks [B, 1, A*block, T + A*block] for blocks that start at row indices `anchors` [B, A].

    Context is what precedes the anchor in its chat; blocks do not see each other. Sliding layers are
    causal with a window that includes the row itself; full layers see the whole block.
    """
    (b, t), n = positions.shape, shape.block
    chat = (positions == 0).cumsum(1)
    index = torch.arange(t, device=positions.device)
    before = (index < anchors[..., None]) & (chat[:, None] == chat.gather(1, anchors)[..., None])
    slot = torch.arange(n, device=positions.device)
    at = positions.gather(1, anchors)[..., None] + slot
    near = before[:, :, None] & (at[..., None] - positions[:, None, None] < shape.window)
    far = before[:, :, None].expand_as(near)
    own = torch.eye(anchors.shape[1], dtype=torch.bool, device=positions.device)[None, :, None, :, None]
    whole = own.expand(b, -1, n, -1, n)
    causal = whole & (slot[:, None] >= slot)[None, None, :, None]
    rows = anchors.shape[1] * n
    return [torch.cat([c.reshape(b, rows, t), o.reshape(b, rows, rows)], -1)[:, None] for c, o in ((near, causal), (far, whole))]


class Drafter(nn.Module):
    """Tapped features [B, T, taps*hidden] and block embeddings [B, A*block, hidden] to hidden states of the blocks."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.fc = linear(len(shape.taps) * shape.hidden, shape.hidden)
        self.hidden_norm = Norm(shape.hidden, shape.eps, centred=False)
        self.layers = nn.ModuleList(DrafterLayer(shape) for _ in shape.kinds)
        self.norm = Norm(shape.hidden, shape.eps, centred=False)

    def forward(self, tapped, embedded, positions, anchors):
        context = self.hidden_norm(self.fc(tapped))
        slot = torch.arange(self.shape.block, device=positions.device)
        at = (positions.gather(1, anchors)[..., None] + slot).flatten(1)
        sliding, full = block_masks(self.shape, positions, anchors)
        x = embedded
        for layer, kind in zip(self.layers, self.shape.kinds):
            x = layer(x, context, at, positions, sliding if kind == "sliding_attention" else full)
        return self.norm(x)


def block_ids(ids, anchors, block, mask_id):
    """[B, A*block] token ids: each anchor's token, then masks."""
    out = torch.full((*anchors.shape, block), mask_id, device=ids.device, dtype=ids.dtype)
    out[..., 0] = ids.gather(1, anchors)
    return out.flatten(1)
