"""Endless packed rows of training chats, made by worker processes."""

import random
from dataclasses import dataclass

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from rendering import split_text
from world import KINDS, dialogue

PROMPT, REPLY, PAD = 0, 1, 2
SHARES = [{"arithmetic": 3, "facts": 3, "followup": 3, "tools": 4}.get(kind, 2) for kind in KINDS]


@dataclass
class Batch:
    """ids, positions within the chat, and part (prompt, reply or padding): each [B, T]."""

    ids: torch.Tensor
    positions: torch.Tensor
    part: torch.Tensor

    def to(self, device):
        """Copies to a device."""
        return Batch(*(x.to(device, non_blocking=True).long() for x in (self.ids, self.positions, self.part)))


def encode(tokenizer, chat):
    """(prompt ids, reply ids); the two are encoded apart, as a server does."""
    return tuple(tokenizer.encode(text, add_special_tokens=False).ids for text in split_text(chat))


def pack(chats, width, pad_id):
    """Rows of `width` tokens from (prompt, reply) pairs, longest first into the first row with room."""
    rows = []
    for prompt, reply in sorted(chats, key=lambda c: -len(c[0]) - len(c[1])):
        length = len(prompt) + len(reply)
        row = next((r for r in rows if len(r[0]) + length <= width), None)
        if row is None:
            row = ([], [], [])
            rows.append(row)
        row[0].extend(prompt + reply)
        row[1].extend(range(length))
        row[2].extend([PROMPT] * len(prompt) + [REPLY] * len(reply))
    for ids, positions, part in rows:
        rest = width - len(ids)
        ids.extend([pad_id] * rest)
        positions.extend(range(rest))
        part.extend([PAD] * rest)
    return rows


class Chats(IterableDataset):
    """Batches of packed rows; worker w of stream `seed` draws chats `seed w 0`, `seed w 1`, ..."""

    def __init__(self, tokenizer, seed, rows, width):
        self.tokenizer, self.seed, self.rows, self.width = tokenizer, seed, rows, width

    def __iter__(self):
        info = get_worker_info()
        rng = random.Random(f"train {self.seed} {info.id if info else 0}")
        pad_id = self.tokenizer.token_to_id("<|endoftext|>")
        ready = []
        while True:
            chats, size = [], 0
            while size < 32 * self.width:
                kind = rng.choices(KINDS, SHARES)[0]
                pair = encode(self.tokenizer, dialogue(random.Random(rng.getrandbits(64)), kind))
                if sum(map(len, pair)) <= self.width:
                    chats.append(pair)
                    size += sum(map(len, pair))
            packed = pack(chats, self.width, pad_id)[:-1]
            rng.shuffle(packed)
            ready.extend(packed)
            while len(ready) >= self.rows:
                batch, ready = ready[: self.rows], ready[self.rows:]
                yield Batch(*(torch.tensor(column, dtype=torch.int16) for column in zip(*batch)))


def loader(tokenizer, seed, rows, width, workers):
    """An endless iterator of batches."""
    data = Chats(tokenizer, seed, rows, width)
    extra = {"prefetch_factor": 4, "multiprocessing_context": "fork"} if workers else {}
    return iter(DataLoader(data, batch_size=None, num_workers=workers, pin_memory=torch.cuda.is_available(), **extra))
