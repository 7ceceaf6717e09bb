"""Requests that need a declared tool: the right call with typed arguments."""

import json
import re

from .phrasing import dress, listing
from .tool_library import TOOLS
from .turn import Turn, user

NO_TOOL = "I am sorry, I have no tool for that."


class Declared:
    """One tool as a chat declares it: chosen names, description, order of parameters."""

    def __init__(self, rng, tool):
        self.tool = tool
        self.name = rng.choice(tool.names)
        self.keys = list(tool.params)
        if rng.random() < 0.3:
            rng.shuffle(self.keys)
        self.names = {key: rng.choice(tool.params[key].names) for key in self.keys}
        self.definition = self._define(rng)

    def _define(self, rng):
        described = rng.random() < 0.7
        properties = {}
        for key in self.keys:
            param = self.tool.params[key]
            schema = {"type": param.type}
            if described:
                schema["description"] = param.about
            if param.enum:
                schema["enum"] = list(param.enum)
            if param.items:
                schema["items"] = {"type": param.items}
            properties[self.names[key]] = schema
        parameters = {"type": "object", "properties": properties,
                      "required": [self.names[k] for k in self.keys if k in self.tool.required]}
        if rng.random() < 0.15:
            parameters["additionalProperties"] = False
        function = {"name": self.name, "description": rng.choice(self.tool.about), "parameters": parameters}
        return {"type": "function", "function": function}

    def call(self, values):
        """(name, arguments) in declared order."""
        return self.name, {self.names[k]: values[k] for k in self.keys if k in values}


def kit(rng, count):
    """`count` declared tools with distinct names."""
    return [Declared(rng, tool) for tool in rng.sample(TOOLS, count)]


def draw(rng, tool, form):
    """Values for the parameters a request form names, plus those it fixes."""
    text, fixed = form
    keys = [k for k in re.findall(r"{(\w+)}", text)]
    values = {k: tool.params[k].draw(rng) for k in keys} | fixed
    if {"source", "target"} <= values.keys():
        while values["source"] == values["target"]:
            values["target"] = tool.params["target"].draw(rng)
    if {"start", "end"} <= values.keys():
        while values["start"] == values["end"]:
            values["end"] = tool.params["end"].draw(rng)
    return values


def spoken(value):
    """A value as users say it."""
    return listing([str(v) for v in value]) if isinstance(value, list) else str(value)


def written(value):
    """A value as it stands in a call."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def reasoning_for(calls):
    """What the model thinks before calling."""
    lines = []
    for name, arguments in calls:
        given = listing([f"{k} is {written(v)}" for k, v in arguments.items()])
        lines.append(f"The tool {name} fits. {given}.")
    return "The user wants something that needs a tool.\n" + "\n".join(lines)


def calling(messages, calls, **facts):
    """The turn whose reply is one or more calls."""
    expect = {"tool_calls": [{"name": n, "arguments": a} for n, a in calls]}
    return Turn(messages, reasoning_for(calls), "", expect, calls=calls, facts=facts)


def request(rng, declared):
    """A request for one declared tool: (user text, list of value dicts)."""
    tool = declared.tool
    if tool.plural and rng.random() < 0.2:
        text = rng.choice(tool.plural)
        first, second = tool.params["city"].draw(rng), tool.params["city"].draw(rng)
        while second == first:
            second = tool.params["city"].draw(rng)
        return text.format(city=first, city2=second), [{"city": first}, {"city": second}]
    form = rng.choice(tool.forms)
    values = draw(rng, tool, form)
    return form[0].format(**{k: spoken(v) for k, v in values.items()}), [values]


def polite(rng, text):
    """Dresses a request, but never one that ends in a message to be passed on."""
    if ": " in text:
        return text if rng.random() < 0.7 else "Please " + text[0].lower() + text[1:]
    return dress(rng, text, casual=False)


def make(rng, chat_kit):
    """One request: a call if its tool is declared, else a polite no."""
    if not chat_kit or rng.random() < 0.18:
        there = {d.tool.names[0] for d in chat_kit}
        missing = Declared(rng, rng.choice([t for t in TOOLS if t.names[0] not in there]))
        question = polite(rng, request(rng, missing)[0])
        return Turn([user(question)], "The user wants something that needs a tool. No declared tool fits.",
                    NO_TOOL, {"answer": ["no tool for that"]})
    declared = rng.choice(chat_kit)
    text, values = request(rng, declared)
    question = polite(rng, text)
    return calling([user(question)], [declared.call(v) for v in values], declared=declared, values=values)
