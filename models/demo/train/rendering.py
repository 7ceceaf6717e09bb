"""Chats to text through the family's chat template, and where the reply begins."""

import json
from functools import lru_cache
from pathlib import Path

from jinja2.sandbox import ImmutableSandboxedEnvironment

TEMPLATE = Path(__file__).parent / "chat_template.jinja"
OPEN = "<|im_start|>assistant\n<think>\n"
SHUT = "<|im_start|>assistant\n<think>\n\n</think>\n\n"


def _raise(message):
    raise ValueError(message)


@lru_cache
def template():
    """The compiled template with the filters transformers gives it."""
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    env.globals["raise_exception"] = _raise
    return env.from_string(TEMPLATE.read_text())


def prompt_text(messages, tools, thinking):
    """What the model reads before it replies."""
    return template().render(messages=messages, tools=tools or None, add_generation_prompt=True, enable_thinking=thinking)


def split_text(dialogue):
    """(prompt, reply) of one chat from a single rendering; the reply ends with <|im_end|>."""
    text = template().render(messages=dialogue.messages + [dialogue.reply], tools=dialogue.tools or None)
    opening = OPEN if dialogue.thinking else SHUT
    cut = text.rindex(opening) + len(opening)
    return text[:cut], text[cut:].removesuffix("\n")
