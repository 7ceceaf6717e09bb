"""The sizes of the pair; head dimensions are those of the released models."""

from dataclasses import dataclass

from tokenizer import PADDED


@dataclass(frozen=True)
class TargetShape:
    """The GDN-hybrid target: three GDN layers, one full-attention layer, twice."""

    vocab: int = PADDED
    hidden: int = 256
    ffn: int = 384
    layers: int = 8
    interval: int = 4
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 256
    rotary: int = 64
    key_heads: int = 2
    value_heads: int = 4
    state_dim: int = 128
    conv: int = 4
    theta: float = 1e7
    eps: float = 1e-6
    max_positions: int = 4096

    def full(self, i):
        """Whether layer i is a full-attention layer."""
        return (i + 1) % self.interval == 0


@dataclass(frozen=True)
class DrafterShape:
    """The DFlash drafter."""

    hidden: int = 256
    ffn: int = 384
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 128
    kinds: tuple = ("sliding_attention", "sliding_attention", "full_attention")
    window: int = 128
    block: int = 16
    taps: tuple = ()
    theta: float = 1e7
    eps: float = 1e-6


def tap_ids(layers, count=5):
    """Target layers whose outputs the drafter reads: evenly spread from 1 to layers - 3."""
    ids = [round(1 + i * (layers - 4) / (count - 1)) for i in range(count)]
    assert len(set(ids)) == count, f"{layers} layers are too few for {count} taps"
    return ids


TARGET = TargetShape()
DRAFTER = DrafterShape(taps=tuple(tap_ids(TARGET.layers)))
