"""What the Python clients have in common: a question, a tool with its result, a format."""

import json
from typing import Literal

from pydantic import BaseModel

MODEL = "volley-demo"
SUM = "What is 17 + 25?"
WEATHER = {
    "name": "get_weather",
    "description": "Get the current weather",
    "parameters": {
        "type": "object",
        "properties": {"place": {"type": "string"}},
        "required": ["place"],
    },
}
BERGEN = "What's the weather in Bergen?"


class Sum(BaseModel):
    """A sum."""

    answer: int
    unit: Literal["none", "euros"]


def report(place):
    """What the tool returns."""
    return json.dumps({"city": place, "temperature": 27, "condition": "snowy", "wind": 1})


def user(text):
    """A list of one user message."""
    return [{"role": "user", "content": text}]


def run(client, checks, *arguments):
    """Runs checks, and tells of each that it passed."""
    for check in checks:
        check(*arguments)
        print(f"{client} {check.__name__}: ok", flush=True)
