"""The gated delta rule in chunks (WY form), for training.

Rows pack several chats: a first token's log decay of RESET empties the state before it.
"""

import torch

try:  # The Triton kernels of flash-linear-attention, several times faster on a GPU.
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule
except ImportError:
    chunk_gated_delta_rule = None

RESET = -40.0


def l2norm(x):
    """x / sqrt(sum x^2 + 1e-6) over the last dimension."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def chunked(q, k, v, g, beta, chunk=64):
    """Plain PyTorch, f32. q, k, v: [B, T, H, D]; g (log decay), beta: [B, T, H]; returns [B, T, H, D]."""
    b, t, h, d = q.shape
    pad = -t % chunk
    q, k, v = (torch.nn.functional.pad(x.float(), (0, 0, 0, 0, 0, pad)) for x in (q, k, v))
    g, beta = (torch.nn.functional.pad(x.float(), (0, 0, 0, pad)) for x in (g, beta))
    n = (t + pad) // chunk
    q, k, v = (x.view(b, n, chunk, h, d).permute(1, 0, 3, 2, 4) for x in (l2norm(q) * d**-0.5, l2norm(k), v))
    g, beta = (x.view(b, n, chunk, h).permute(1, 0, 3, 2) for x in (g, beta))
    total = g.cumsum(-1)
    lower = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).tril()
    decay = (total[..., :, None] - total[..., None, :]).masked_fill(~lower, float("-inf")).exp()
    mix = (beta[..., None] * (k @ k.mT) * decay).tril(-1) + torch.eye(chunk, device=q.device)
    right = torch.cat([beta[..., None] * v, (beta * total.exp())[..., None] * k], -1)
    u, w = torch.linalg.solve_triangular(mix, right, upper=False, unitriangular=True).split(d, -1)
    inner = (q @ k.mT) * decay
    state, out = q.new_zeros(b, h, d, d), []
    for i in range(n):
        fresh = u[i] - w[i] @ state
        out.append((q[i] * total[i].exp()[..., None]) @ state + inner[i] @ fresh)
        last = total[i][..., -1:]
        state = state * last.exp()[..., None] + (k[i] * (last - total[i]).exp()[..., None]).mT @ fresh
    return torch.stack(out, 1).permute(0, 1, 3, 2, 4).reshape(b, t + pad, h, d)[:, :t]


def gated_delta_rule(q, k, v, g, beta):
    """The same function; in bf16 by the Triton kernels where autocast asks for it and they are installed."""
    if chunk_gated_delta_rule is None or not torch.is_autocast_enabled("cuda"):
        return chunked(q, k, v, g, beta)
    q, k, v = (x.to(torch.bfloat16) for x in (q, k, v))
    return chunk_gated_delta_rule(q, k, v, g, beta, use_qk_l2norm_in_kernel=True)[0]
