"""Greedy generation by drafting and verifying blocks, many chats at once, without caches.

Every step runs the target over the whole text again: slow but plain, and lossless by construction.
"""

import torch

from drafter import block_ids


def _padded(rows, device):
    width = max(map(len, rows))
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
    return ids.to(device), torch.arange(width, device=device).expand(len(rows), -1)


@torch.no_grad()
def generate(target, drafter, prompts, mask_id, stop_id, limit=640):
    """Returns (replies, steps): token lists up to the stop token, and verify steps taken for each.

    The first token comes from the prompt pass; each step then yields its accepted drafts and one more token.
    Without a drafter each step yields one token.
    """
    device = target.embed_tokens.weight.device
    taps, block = (drafter.shape.taps, drafter.shape.block) if drafter else ((), 1)
    ids, at = _padded(prompts, device)
    hidden, _ = target(ids, at)
    last = torch.tensor([len(p) - 1 for p in prompts], device=device)
    first = target.logits(hidden[torch.arange(len(prompts)), last]).argmax(-1).tolist()
    texts = [p + [t] for p, t in zip(prompts, first)]
    steps = [0] * len(prompts)
    tapped = target(ids, at, taps)[1] if drafter else None
    live = [i for i in range(len(prompts)) if first[i] != stop_id]
    rows = {i: r for r, i in enumerate(range(len(prompts)))}
    while live:
        drafts = [[] for _ in live]
        if drafter:
            ids, at = _padded([texts[i] for i in live], device)
            context = ids.new_zeros(*ids.shape, tapped.shape[-1]).to(tapped.dtype)
            old = tapped[[rows[i] for i in live]]
            width = min(old.shape[1], context.shape[1])
            context[:, :width] = old[:, :width]
            anchors = torch.tensor([[len(texts[i]) - 1] for i in live], device=device)
            embedded = target.embed_tokens(block_ids(ids, anchors, block, mask_id))
            drafts = target.logits(drafter(context, embedded, at, anchors)).argmax(-1)[:, 1:].tolist()
        ids, at = _padded([texts[i] + d for i, d in zip(live, drafts)], device)
        hidden, tapped = target(ids, at, taps)
        rows = {i: r for r, i in enumerate(live)}
        still = []
        for r, i in enumerate(live):
            start = len(texts[i]) - 1
            wanted = target.logits(hidden[r, start : start + block]).argmax(-1).tolist()
            accepted = 0
            while accepted < len(drafts[r]) and drafts[r][accepted] == wanted[accepted]:
                accepted += 1
            fresh = wanted[: accepted + 1]
            if stop_id in fresh:
                fresh = fresh[: fresh.index(stop_id) + 1]
            texts[i] += fresh
            steps[i] += 1
            if fresh[-1] != stop_id and len(texts[i]) - len(prompts[i]) < limit:
                still.append(i)
        live = still
    return [t[len(p):] for t, p in zip(texts, prompts)], steps
