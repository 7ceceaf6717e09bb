"""Answers from tool results: the model reports the fields a tool returned."""

import json

from . import tools
from .split import held_out
from .turn import Turn

ERRORS = ["not found", "permission denied", "service unavailable", "timeout", "invalid request", "limit reached",
          "network down", "not allowed", "unknown name", "no connection"]


def result_for(rng, tool, values):
    """A result object in some order of its fields, or an error."""
    if rng.random() < 0.12:
        return {"error": rng.choice(ERRORS)}
    fields = tool.result(rng, values)
    if rng.random() < 0.4:
        keys = list(fields)
        rng.shuffle(keys)
        fields = {k: fields[k] for k in keys}
    if rng.random() < 0.15:
        fields["source"] = rng.choice(["demo", "cache", "live"])
    return fields


def report(tool, fields):
    """The sentence that tells a result."""
    if "error" in fields:
        return f"I am sorry, the tool reported an error: {fields['error']}."
    return tool.report.format(**fields)


def words(tool, fields):
    """What the reported sentence must contain."""
    if "error" in fields:
        return [fields["error"]]
    return [str(v) for k, v in fields.items() if "{" + k + "}" in tool.report]


def make(rng, chat_kit, thinking):
    """A request, the call it led to, its result, and the report."""
    asked = tools.make(rng, chat_kit)
    while not asked.calls or held_out(asked.key):
        asked = tools.make(rng, chat_kit)
    tool = asked.facts["declared"].tool
    results = [result_for(rng, tool, values) for values in asked.facts["values"]]
    compact = rng.random() < 0.25
    texts = [json.dumps(r, ensure_ascii=False, separators=(",", ":") if compact else None) for r in results]
    kept = thinking and rng.random() < 0.6
    messages = asked.prompt + [asked.reply(kept)] + [{"role": "tool", "content": t} for t in texts]
    count = "one result" if len(results) == 1 else f"{len(results)} results"
    return Turn(messages, f"The tool returned {count}. I report it to the user.",
                " ".join(report(tool, r) for r in results),
                {"answer": [w for r in results for w in words(tool, r)]},
                key="\n".join([asked.key] + texts), facts=asked.facts)
