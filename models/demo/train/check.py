"""Whether a generated reply is right: parses it as a server would and compares with what is expected."""

import json
import re

CALL = re.compile(r"<tool_call>\n<function=([^>\s<]+)>\n(.*?)</function>\n</tool_call>", re.S)
PARAMETER = re.compile(r"<parameter=([^>\s<]+)>\n(.*?)\n</parameter>\n", re.S)


def split(text, thinking):
    """(reasoning, content) of raw generated text."""
    if not thinking:
        return "", text.strip()
    reasoning, _, content = text.partition("</think>")
    return reasoning.strip(), content.strip()


def typed(value, schema):
    """A parameter's text as the value its declared type asks for."""
    if schema.get("type") in ("integer", "number", "boolean", "array", "object"):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def calls(content, tools):
    """The tool calls in `content` as [{name, arguments}]."""
    schemas = {t["function"]["name"]: t["function"]["parameters"]["properties"] for t in tools}
    return [
        {"name": name, "arguments": {k: typed(v, schemas.get(name, {}).get(k, {})) for k, v in PARAMETER.findall(body)}}
        for name, body in CALL.findall(content)
    ]


def runs_alike(content, expect):
    """Whether the function in `content` gives what the expected one gives on all listed arguments."""
    def load(text):
        scope = {}
        exec(re.search(r"```python\n(.*?)```", text, re.S).group(1), scope)  # written by our own small model
        return scope[expect["function"]]
    try:
        got, wanted = load(content), load(expect["content"])
        return all(got(*a) == wanted(*a) for a in json.loads(json.dumps(expect["arguments"])))
    except Exception:
        return False


def right(text, chat):
    """Whether the raw reply `text` (without <|im_end|>) answers `chat`."""
    content, expect = split(text, chat.thinking)[1], chat.expect
    if "tool_calls" in expect:
        return calls(content, chat.tools) == expect["tool_calls"]
    if "function" in expect:
        return content == expect["content"] or runs_alike(content, expect)
    if "content" in expect:
        return content == expect["content"]
    if "one_of" in expect:
        return content in expect["one_of"]
    return all(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", content) for word in expect["answer"])
