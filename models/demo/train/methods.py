"""Prompt sets for comparing ways to draft, from the held-out chats: writes eval/methods.jsonl.

    python methods.py
"""

import itertools
import json
from pathlib import Path

EVAL = Path(__file__).resolve().parent.parent / "eval"
PROMPTS = 24
# Characters of earlier turns in a long chat: about a thousand tokens, within what was trained.
LONG = 3600


def chat(kind, messages, tools=None, thinking=True):
    line = {"kind": kind, "messages": messages}
    if tools:
        line["tools"] = tools
    return line | {"enable_thinking": thinking}


def asked_again(heldout):
    """The same question after its answer: the answer can be copied."""
    code = [one for one in heldout if one["kind"] == "python"]
    code.sort(key=lambda one: -len(one["reply"]["content"]))
    for one in code:
        answer = {"role": "assistant", "content": one["reply"]["content"]}
        yield chat("copy", [*one["messages"], answer, one["messages"][-1]], thinking=False)


def long_chats(heldout):
    """Questions behind many answered ones."""
    plain = [one for one in heldout if one["kind"] in ("facts", "chat", "python") and "tools" not in one]
    # There are not enough for all chats: the second time they come in another order.
    pool = itertools.cycle(plain + plain[::-1])
    while True:
        turns = []
        while sum(len(turn["content"]) for turn in turns) < LONG:
            one = next(pool)
            turns += [turn for turn in one["messages"] if turn["role"] == "user"][-1:]
            turns.append({"role": "assistant", "content": one["reply"]["content"]})
        yield chat("long", [*turns, next(pool)["messages"][-1]])


def main():
    heldout = [json.loads(line) for line in (EVAL / "heldout.jsonl").read_text().splitlines()]

    def of(kind, *sources):
        lists = [[one for one in heldout if one["kind"] == source] for source in sources]
        for one in itertools.chain.from_iterable(zip(*lists)):
            yield chat(kind, one["messages"], one.get("tools"), one["enable_thinking"])

    sets = [
        of("thinking", "arithmetic"),
        of("code", "python"),
        of("chat", "chat", "facts", "followup"),
        of("tools", "tools", "tool_results"),
        asked_again(heldout),
        long_chats(heldout),
    ]
    with open(EVAL / "methods.jsonl", "w") as file:
        for one in sets:
            for line in itertools.islice(one, PROMPTS):
                file.write(json.dumps(line, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
