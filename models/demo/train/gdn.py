"""The gated delta rule in chunks (WY form), for training.

Rows pack several chats: a first token's log decay of RESET empties the state before it.
"""

import torch

RESET = -40.0


def l2norm(x):
    """x / sqrt(sum x^2 + 1e-6) over the last dimension."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def gated_delta_rule(q, k, v, g, beta, chunk=64):
    """The state is f32, products follow autocast. q, k, v: [B, T, H, D]; g (log decay), beta: [B, T, H]; returns [B, T, H, D]."""
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
    inner, last = (q @ k.mT) * decay, total[..., -1:, None]
    keys, keep = (k * (last - total[..., None]).exp()).mT, last.exp()
    if torch.is_autocast_enabled(q.device.type):
        w, keys = (x.to(torch.get_autocast_dtype(q.device.type)) for x in (w, keys))
    state, states, fresh = q.new_zeros(b, h, d, d), [], []
    for i in range(n):
        states.append(state)
        fresh.append(u[i] - w[i] @ state)
        state = state * keep[i] + keys[i] @ fresh[i]
    out = (q * total.exp()[..., None]) @ torch.stack(states) + inner @ torch.stack(fresh)
    return out.permute(1, 0, 3, 2, 4).reshape(b, t + pad, h, d)[:, :t]
