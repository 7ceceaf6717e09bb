"""The held-out chats: written once, read by every evaluation."""

import json
import random
from pathlib import Path

from world import KINDS, Dialogue, dialogue

EVAL = Path(__file__).parent.parent / "eval"
PER_KIND = 100
PROMPTS = 100


def draw(per_kind):
    """`per_kind` chats of every kind whose asked question occurs in no training chat; no two are alike."""
    for kind in KINDS:
        seen, number = set(), 0
        while len(seen) < per_kind:
            chat = dialogue(random.Random(f"heldout {kind} {number}"), kind, test=True)
            number += 1
            text = json.dumps(chat.messages)
            if text not in seen and len(text) < 3600:
                seen.add(text)
                yield chat


def record(chat):
    """One line of heldout.jsonl."""
    line = {"kind": chat.kind, "messages": chat.messages}
    if chat.tools:
        line["tools"] = chat.tools
    return {**line, "enable_thinking": chat.thinking, "expect": chat.expect, "reply": chat.reply}


def write():
    """Writes eval/heldout.jsonl, and eval/prompts.jsonl: a hundred of the same chats, all kinds in turn."""
    EVAL.mkdir(exist_ok=True)
    lines = [record(chat) for chat in draw(PER_KIND)]
    mixed = [lines[k * PER_KIND + i] for i in range(PER_KIND) for k in range(len(KINDS))][:PROMPTS]
    keep = ("kind", "messages", "tools", "enable_thinking")
    prompts = [{k: v for k, v in line.items() if k in keep} for line in mixed]
    for name, rows in (("heldout.jsonl", lines), ("prompts.jsonl", prompts)):
        text = "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
        (EVAL / name).write_text(text)


def read():
    """The held-out chats as dialogues."""
    chats = []
    for line in (EVAL / "heldout.jsonl").read_text().splitlines():
        r = json.loads(line)
        chats.append(Dialogue(r["kind"], r["messages"], r["reply"], r.get("tools", []), r["enable_thinking"], r["expect"]))
    return chats
