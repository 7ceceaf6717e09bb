"""Makes fixtures of the agents' requests: their shape stays, their texts are cut short, and what
differs from run to run is made the same. Usage: condense.py WORK OUT

Of each agent the longest request of each set of tools is kept: the end of the tool loop.
"""

import json
import pathlib
import re
import sys

KEEP = ("seen by volley", "the words of the day", "note.txt", "cache_control")
LONGEST = 60


def text(value, key, work):
    value = value.replace(str(work), "/work")
    value = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "0" * 8, value)
    value = re.sub(r"\b[0-9a-f]{24,}\b", "0" * 24, value)
    value = re.sub(r"\b(msg|call|toolu|resp|fc|rs|req|ses)_[0-9A-Za-z_-]{8,}", r"\1_0", value)
    if len(value) > LONGEST and not (len(value) < 600 and any(word in value for word in KEEP)):
        value = value[:LONGEST].rstrip() + " ..."
    return value


def condensed(value, key, work, calls):
    if isinstance(value, dict):
        return {name: condensed(item, name, work, calls) for name, item in value.items()}
    if isinstance(value, list):
        return [condensed(item, key, work, calls) for item in value]
    if not isinstance(value, str):
        return value
    if key in ("id", "call_id", "tool_call_id", "tool_use_id"):
        return calls.setdefault(value, f"{key.removeprefix('tool_')}_{len(calls)}")
    if key in ("pattern", "$schema", "model", "type", "name", "role"):
        return value
    return text(value, key, work)


def kind(request):
    tools = request.get("tools") or []
    return tuple(str(tool.get("name") or tool.get("function", {}).get("name")) for tool in tools)


def main():
    work, out = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    for agent in ("claude", "codex", "opencode", "qwen"):
        longest = {}
        for file in sorted((work / agent / "recorded").glob("*.json")):
            request = json.loads(file.read_text())["request"]
            turns = request.get("messages") or request.get("input")
            if len(turns) > longest.get(kind(request), (0,))[0]:
                longest[kind(request)] = (len(turns), request)
        # The agent itself first: it has the most tools.
        order = sorted(longest, key=len, reverse=True)
        for index, tools in enumerate(order):
            request = condensed(longest[tools][1], "", work / agent, {})
            path = out / f"{agent}-{index}.json"
            path.write_text(json.dumps(request, ensure_ascii=False, indent=1) + "\n")


main()
