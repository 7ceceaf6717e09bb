"""The gated delta rule in float64, token by token, and the fixtures of the bare operation."""

import numpy as np
import torch

KEY_HEADS, VALUE_HEADS, DIM = 1, 2, 128


def recurrence(q, k, v, g, beta, state):
    """q, k [n, key heads, dk], v [n, value heads, dv], g and beta [n, value heads], state [value heads, dk, dv].

    q and k are used as given: normalised and scaled by the caller. Returns (out [n, value heads, dv], state).
    """
    share = v.shape[1] // k.shape[1]
    q, k = q.repeat(share, 1), k.repeat(share, 1)
    out = np.empty(v.shape)
    for t in range(len(v)):
        state = state * np.exp(g[t])[:, None, None]
        delta = beta[t][:, None] * (v[t] - np.einsum("hkv,hk->hv", state, k[t]))
        state = state + k[t][:, :, None] * delta[:, None]
        out[t] = np.einsum("hkv,hk->hv", state, q[t])
    return out, state


def chunked(q, k, v, g, beta, state, size=64):
    """The same by chunks (WY form): checks `recurrence`."""
    share = v.shape[1] // k.shape[1]
    q, k = q.repeat(share, 1), k.repeat(share, 1)
    out, state = np.empty(v.shape), state.copy()
    for start in range(0, len(v), size):
        rows = slice(start, min(start + size, len(v)))
        for h in range(v.shape[1]):
            Q, K, V, b = q[rows, h], k[rows, h], v[rows, h], beta[rows, h][:, None]
            G = g[rows, h].cumsum()
            decay = np.exp(np.tril(G[:, None] - G)) * np.tri(len(G))
            inverse = np.linalg.inv(np.eye(len(G)) + np.tril(b * (K @ K.T) * decay, -1))
            grown = np.exp(G)[:, None]
            fresh = inverse @ (b * V) - inverse @ (b * grown * K) @ state[h]
            out[rows, h] = (grown * Q) @ state[h] + (Q @ K.T * decay) @ fresh
            state[h] = np.exp(G[-1]) * state[h] + (np.exp(G[-1] - G)[:, None] * K).T @ fresh
    return out, state


def inputs(rng, n, correlated):
    """Random rows; `correlated` keys share a direction, so that the triangular system is far from the identity."""

    def unit(x):
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    q = unit(rng.normal(size=(n, KEY_HEADS, DIM))) * DIM**-0.5
    k = rng.normal(size=(n, KEY_HEADS, DIM))
    if correlated:
        k = 0.3 * k + 2 * rng.normal(size=(1, KEY_HEADS, DIM))
    v = rng.normal(size=(n, VALUE_HEADS, DIM))
    slow = 0.02 if correlated else 0.5
    g = -slow * rng.exponential(size=(n, VALUE_HEADS))
    beta = 1 / (1 + np.exp(-rng.normal(1.5 if correlated else 0, 1, size=(n, VALUE_HEADS))))
    return q, unit(k), v, g, beta


def fixtures():
    """Returns (tensors, largest difference between the two forms).

    The states after 70 and 200 rows belong to the same run, as do the outputs of any shorter run.
    """
    rng = np.random.default_rng(7)
    as_f32 = lambda x: torch.from_numpy(np.ascontiguousarray(x)).float()
    as_bf16 = lambda x: torch.from_numpy(x).to(torch.bfloat16)
    initial = as_bf16(rng.normal(0, 0.3, size=(VALUE_HEADS, DIM, DIM)))
    tensors, worst = {"initial_state": initial}, 0.0
    for name, correlated, lengths in (("random", False, (70, 200)), ("correlated", True, (70,))):
        q, k, v, g, beta = inputs(rng, max(lengths), correlated)
        rows = dict(q=as_bf16(q), k=as_bf16(k), v=as_bf16(v), g=as_f32(g), beta=as_f32(beta))
        tensors |= {f"{name}.{key}": value for key, value in rows.items()}
        for n in lengths:
            exact = [x.double().numpy() for x in (*(value[:n] for value in rows.values()), initial)]
            out, state = recurrence(*exact)
            out2, state2 = chunked(*exact)
            worst = max(worst, abs(out - out2).max(), abs(state - state2).max())
            tensors[f"{name}.out"], tensors[f"{name}.state.{n}"] = as_f32(out), as_f32(state)
    return tensors, worst
