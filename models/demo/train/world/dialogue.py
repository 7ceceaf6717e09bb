"""Whole chats: an optional system message, earlier turns, and the turn that is asked."""

from dataclasses import dataclass

from . import arithmetic, chat, facts, followup, python_tasks, tool_results, tools
from .split import held_out

KINDS = ["arithmetic", "python", "facts", "followup", "tools", "tool_results", "chat"]
SYSTEMS = [
    "You are a helpful assistant.", "You are volley, a small demo assistant.", "Answer the user.", "Be polite and brief.",
    "You are a shop assistant.", "You help people with sums, code and products.", "You are a careful assistant. Think step by step.",
    "Answer in English.", "You are an assistant with access to tools.", "Help the user as well as you can.",
]


@dataclass
class Dialogue:
    """A chat up to the open reply, that reply, and how to check another one."""

    kind: str
    messages: list
    reply: dict
    tools: list
    thinking: bool
    expect: dict


def _turns(rng, kind, kit, thinking):
    if kind == "tools":
        return [tools.make(rng, kit)]
    if kind == "tool_results":
        return [tool_results.make(rng, kit, thinking)]
    if kind == "followup":
        return followup.make(rng, kit, thinking)
    module = {"arithmetic": arithmetic, "python": python_tasks, "facts": facts, "chat": chat}[kind]
    return [module.make(rng)]


def _drawn(rng, kind, kit, thinking, test):
    """Turns of one kind whose last question is (or is not) held out and whose others are not."""
    while True:
        turns = _turns(rng, kind, kit, thinking)
        if held_out(turns[-1].key) == test and not any(held_out(t.key) for t in turns[:-1]):
            return turns


def dialogue(rng, kind, test=False):
    """One chat that ends with an open question of `kind`; `test` picks a held-out question."""
    thinking = rng.random() < 0.6
    chance = {"tools": 0.93, "tool_results": 1}.get(kind, 0.12)
    tooled = rng.random() < chance
    kit = tools.kit(rng, rng.choice([1, 1, 2, 2, 3, 4])) if tooled else []
    asked = _drawn(rng, kind, kit, thinking, test)
    length = 0 if asked[-1].facts.get("opens") else rng.choice([0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 5, 8])
    earlier = []
    for _ in range(length):
        other = rng.choice(["arithmetic", "python", "facts", "facts", "chat"] + (["tool_results"] * 2 if kit else []))
        earlier += _drawn(rng, other, kit, thinking, False)
    messages = [{"role": "system", "content": rng.choice(SYSTEMS)}] if rng.random() < 0.35 else []
    for turn in earlier + asked[:-1]:
        messages += turn.prompt + [turn.reply(thinking)]
    last = asked[-1]
    return Dialogue(kind, messages + last.prompt, last.reply(thinking), [d.definition for d in kit], thinking, last.expect)
