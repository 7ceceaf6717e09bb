"""Parts the target and its MTP head share; module names are the checkpoint's tensor names."""

import torch
import torch.nn.functional as F
from torch import nn

from gdn import RESET, gated_delta_rule


class Norm(nn.Module):
    """RMSNorm in f32; `centred` weights are stored as w - 1."""

    def __init__(self, size, eps, centred=True):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size) if centred else torch.ones(size))
        self.eps, self.centred = eps, centred

    def forward(self, x):
        weight = self.weight + 1 if self.centred else self.weight
        return F.rms_norm(x.float(), (x.shape[-1],), weight, self.eps)


def linear(inputs, outputs):
    """A projection without bias."""
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, std=inputs**-0.5 * 0.5)
    return layer


def rotate(x, positions, size, theta):
    """RoPE over the first `size` channels in halves. x: [B, H, T, D]; positions: [B, T]."""
    half = size // 2
    inverse = theta ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angle = positions[:, None, :, None].float() * inverse
    cos, sin = angle.cos(), angle.sin()
    a, b, rest = x[..., :half], x[..., half:size], x[..., size:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self, shape):
        super().__init__()
        self.gate_proj = linear(shape.hidden, shape.ffn)
        self.up_proj = linear(shape.hidden, shape.ffn)
        self.down_proj = linear(shape.ffn, shape.hidden)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class GatedAttention(nn.Module):
    """Full attention with partial RoPE, per-head norms and an output gate."""

    def __init__(self, shape):
        super().__init__()
        s = self.shape = shape
        self.q_proj = linear(s.hidden, s.heads * 2 * s.head_dim)
        self.k_proj = linear(s.hidden, s.kv_heads * s.head_dim)
        self.v_proj = linear(s.hidden, s.kv_heads * s.head_dim)
        self.o_proj = linear(s.heads * s.head_dim, s.hidden)
        self.q_norm = Norm(s.head_dim, s.eps)
        self.k_norm = Norm(s.head_dim, s.eps)

    def forward(self, x, positions, mask):
        s, (b, t, _) = self.shape, x.shape
        q, gate = self.q_proj(x).view(b, t, s.heads, 2 * s.head_dim).chunk(2, -1)
        k = self.k_proj(x).view(b, t, s.kv_heads, s.head_dim)
        v = self.v_proj(x).view(b, t, s.kv_heads, s.head_dim).transpose(1, 2)
        q, k = (rotate(n(y).transpose(1, 2), positions, s.rotary, s.theta).to(v.dtype)
                for n, y in ((self.q_norm, q), (self.k_norm, k)))
        k, v = (y.repeat_interleave(s.heads // s.kv_heads, 1) for y in (k, v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        out = out.transpose(1, 2).reshape(b, t, -1)
        return self.o_proj(out * torch.sigmoid(gate.reshape(b, t, -1)))


class GatedDeltaNet(nn.Module):
    """Linear attention: short convolution, gated delta rule, gated norm."""

    def __init__(self, shape):
        super().__init__()
        s = self.shape = shape
        self.keys, self.values = s.key_heads * s.state_dim, s.value_heads * s.state_dim
        self.in_proj_qkv = linear(s.hidden, 2 * self.keys + self.values)
        self.in_proj_z = linear(s.hidden, self.values)
        self.in_proj_b = linear(s.hidden, s.value_heads)
        self.in_proj_a = linear(s.hidden, s.value_heads)
        channels = 2 * self.keys + self.values
        self.conv1d = nn.Conv1d(channels, channels, s.conv, groups=channels, bias=False)
        step = torch.exp(torch.empty(s.value_heads).uniform_(-6.9, -2.3))
        self.dt_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))
        self.A_log = nn.Parameter(torch.empty(s.value_heads).uniform_(1, 16).log())
        self.norm = Norm(s.state_dim, s.eps, centred=False)
        self.out_proj = linear(self.values, s.hidden)

    def convolve(self, x, positions):
        """Causal depthwise convolution and SiLU that does not look across the start of a chat."""
        taps, out = self.conv1d.weight[:, 0].to(x.dtype), x * self.conv1d.weight[:, 0, -1].to(x.dtype)
        for back in range(1, taps.shape[1]):
            shifted = F.pad(x, (0, 0, back, 0))[:, : x.shape[1]]
            out = out + shifted * (positions >= back)[..., None] * taps[:, -1 - back]
        return F.silu(out)

    def forward(self, x, positions, mask):
        s, (b, t, _) = self.shape, x.shape
        q, k, v = self.convolve(self.in_proj_qkv(x), positions).split([self.keys, self.keys, self.values], -1)
        q, k = (y.reshape(b, t, s.key_heads, s.state_dim).repeat_interleave(s.value_heads // s.key_heads, 2) for y in (q, k))
        v = v.reshape(b, t, s.value_heads, s.state_dim)
        beta = torch.sigmoid(self.in_proj_b(x).float())
        g = -self.A_log.exp() * F.softplus(self.in_proj_a(x).float() + self.dt_bias)
        g = torch.where((positions == 0)[..., None], RESET, g)
        out = self.norm(gated_delta_rule(q, k, v, g, beta)).reshape(b, t, -1)
        return self.out_proj(out * F.silu(self.in_proj_z(x).float()))


class Layer(nn.Module):
    """A decoder layer: GDN or full attention, then the MLP, both pre-normed and residual."""

    def __init__(self, shape, full):
        super().__init__()
        self.input_layernorm = Norm(shape.hidden, shape.eps)
        self.post_attention_layernorm = Norm(shape.hidden, shape.eps)
        if full:
            self.self_attn = GatedAttention(shape)
        else:
            self.linear_attn = GatedDeltaNet(shape)
        self.mlp = Mlp(shape)
        self.full = full

    def forward(self, x, positions, mask):
        mixer = self.self_attn if self.full else self.linear_attn
        x = x + mixer(self.input_layernorm(x), positions, mask)
        return x + self.mlp(self.post_attention_layernorm(x))
