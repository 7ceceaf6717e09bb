"""Pseudo-random inputs that a test can recompute in any language, so that they need not be stored."""

import numpy as np

GAMMA = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1


def splitmix64(counter):
    """The SplitMix64 output for a vector of 64-bit states (wrapping arithmetic)."""
    z = counter.astype(np.uint64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def bits(seed, count):
    """`count` outputs of the SplitMix64 generator whose state starts at `seed` (first state: seed + GAMMA)."""
    steps = np.arange(1, count + 1, dtype=np.uint64)
    return splitmix64(np.uint64(seed) + steps * np.uint64(GAMMA))


def uniform(seed, shape):
    """f32 in [-2^-6, 2^-6), row-major, exact: ((bits >> 40) - 2^23) * 2^-29."""
    top = (bits(seed, int(np.prod(shape))) >> np.uint64(40)).astype(np.int64)
    return np.ldexp((top - (1 << 23)).astype(np.float32), -29).reshape(shape)


def token_ids(seed, count, vocab):
    """`count` ids: bits mod vocab."""
    return (bits(seed, count) % np.uint64(vocab)).astype(np.int64)
