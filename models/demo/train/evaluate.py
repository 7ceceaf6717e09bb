"""Right answers and acceptance length on the held-out chats."""

import argparse
import json
from collections import defaultdict
from pathlib import Path

import torch
from tokenizers import Tokenizer

import check
import checkpoint
import heldout
from data import encode
from drafter import Drafter
from fit import device
from shapes import DRAFTER, TARGET
from spec_loop import generate
from target import Target
from world import KINDS

HOME = Path(__file__).parent.parent


@torch.no_grad()
def exact_share(target, tokenizer, chats, batch=64):
    """Per kind, the share of replies whose every token is the target's greedy choice (one forward pass)."""
    device = target.embed_tokens.weight.device
    hits = defaultdict(list)
    for start in range(0, len(chats), batch):
        part = chats[start : start + batch]
        pairs = [encode(tokenizer, chat) for chat in part]
        width = max(len(p) + len(r) for p, r in pairs)
        ids = torch.zeros(len(part), width, dtype=torch.long)
        for i, (p, r) in enumerate(pairs):
            ids[i, : len(p) + len(r)] = torch.tensor(p + r)
        ids = ids.to(device)
        best = target.logits(target(ids, torch.arange(width, device=device).expand(len(part), -1))[0]).argmax(-1)
        for i, (p, r) in enumerate(pairs):
            span = slice(len(p), len(p) + len(r))
            hits[part[i].kind].append(bool((best[i, len(p) - 1 : len(p) + len(r) - 1] == ids[i, span]).all()))
    return {kind: sum(h) / len(h) for kind, h in hits.items()}


def played(target, drafter, tokenizer, chats, batch=120):
    """Generates every reply greedily. Per kind: chats, right answers, tokens, steps, tokens per step; and the wrong ones."""
    stop, mask = tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|audio_start|>")
    table = {kind: {"chats": 0, "right": 0, "tokens": 0, "steps": 0} for kind in KINDS}
    wrong = []
    order = sorted(range(len(chats)), key=lambda i: len(str(chats[i].messages)))
    for start in range(0, len(order), batch):
        part = [chats[i] for i in order[start : start + batch]]
        replies, steps = generate(target, drafter, [encode(tokenizer, c)[0] for c in part], mask, stop)
        for chat, reply, count in zip(part, replies, steps):
            row = table[chat.kind]
            text = tokenizer.decode(reply, skip_special_tokens=False).removesuffix("<|im_end|>")
            good = check.right(text, chat)
            row["chats"] += 1
            row["right"] += good
            row["tokens"] += len(reply) - 1
            row["steps"] += count
            if not good:
                wrong.append({"kind": chat.kind, "messages": chat.messages, "expect": chat.expect, "got": text})
    total = {key: sum(row[key] for row in table.values()) for key in ("chats", "right", "tokens", "steps")}
    for row in [*table.values(), total]:
        row["acceptance_length"] = round(row["tokens"] / max(row["steps"], 1), 3)
    return {**table, "all": total}, wrong


def printed(table):
    """The table as text."""
    lines = [f"{'kind':14}{'chats':>6}{'right':>7}{'tokens':>8}{'steps':>7}{'tokens per step':>17}"]
    for kind, row in table.items():
        lines.append(f"{kind:14}{row['chats']:6}{row['right']:7}{row['tokens']:8}{row['steps']:7}{row['acceptance_length']:17.2f}")
    return "\n".join(lines)


def main():
    """Plays the held-out chats with the stored pair and writes results.json."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--pair", type=Path, default=HOME, help="folder that holds target/ and drafter/")
    p.add_argument("--out", type=Path, default=heldout.EVAL / "results.json")
    p.add_argument("--every", type=int, default=1, help="plays every n-th chat")
    args = p.parse_args()
    target, drafter = Target(TARGET).to(device()), Drafter(DRAFTER).to(device())
    checkpoint.load_target(target, None, args.pair / "target")
    checkpoint.load_drafter(drafter, args.pair / "drafter")
    tokenizer = Tokenizer.from_file(str(args.pair / "target/tokenizer.json"))
    table, wrong = played(target, drafter, tokenizer, heldout.read()[:: args.every])
    print(printed(table), flush=True)
    args.out.write_text(json.dumps({"greedy": table, "wrong": wrong}, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
