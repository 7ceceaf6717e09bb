"""Renders chats with Python's jinja2, set up as Hugging Face transformers does, into goldens.json.

Usage: python make_goldens.py   (needs jinja2)
"""

import json
import pathlib

import jinja2
import jinja2.sandbox

HERE = pathlib.Path(__file__).parent


def refuse(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value):
    return json.dumps(value, ensure_ascii=False)


def template():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = refuse
    return env.from_string((HERE / "qwen3_6.jinja").read_text(encoding="utf-8"))


def user(text):
    return {"role": "user", "content": text}


def system(text):
    return {"role": "system", "content": text}


def assistant(text, reasoning=None, calls=()):
    message = {"role": "assistant", "content": text}
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [
            {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for i, (name, arguments) in enumerate(calls)
        ]
    return message


def tool(text):
    return {"role": "tool", "content": text}


def function(name, description="", **properties):
    parameters = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


WEATHER = function(
    "weather",
    "Weather of a <town> & its \"surroundings\", e.g. Åre's 雪",
    town={"type": "string", "default": "Oslo/Bærum"},
    days={"type": "integer", "minimum": 0, "exclusiveMaximum": 1e16, "multipleOf": 1.0},
)
ODD = {
    "type": "function",
    "strict": None,
    "function": {
        "parameters": {
            "properties": {"z": {"enum": [1, 2.5, None, True, "x\ty\u2028z\x00\x7f"]}, "a": {}},
            "$defs": {"tiny": 1e-05, "small": 0.0001, "huge": 1.5e300, "large": 1e15, "minus": -0.0},
            "type": "object",
        },
        "name": "odd.name/with-parts",
    },
}
BIG = {
    "below": 9007199254740993,
    "u64": 18446744073709551615,
    "beyond": -123456789012345678901234567890123456789012345678901234567890,
}
LOOP = [
    user("Is it warmer in Rome or in Oslo?"),
    assistant("", "Two calls.\n", [("weather", {"town": "Rome"}), ("weather", {"town": "Oslo"})]),
    tool("21.5"),
    tool("  -3 \n"),
    assistant("Rome leads so far.", "  Check once more.  ", [("weather", {"days": 2})]),
    tool('{"t": [1, 2]}'),
]
CHAT = [
    system("Be brief."),
    user("Hi"),
    assistant("Hello!", "A greeting."),
    user("And now?"),
    assistant("<think>\nOld style.\n</think>\n\nStill here."),
    user("Bye"),
]
SPACES = "\x1c\u00a0\u2003 \t text \u3000\u0085\x1f\u200b \n"

CASES = [
    ("plain", [user("Hi")], [], {}),
    ("system", [system("Be brief."), user("Hi")], [], {}),
    ("empty system", [system(""), user("Hi")], [], {}),
    ("no generation prompt", [user("Hi")], [], {"add_generation_prompt": False}),
    ("thinking off", [user("Hi")], [], {"enable_thinking": False}),
    ("thinking on", [user("Hi")], [], {"enable_thinking": True}),
    ("chat", CHAT, [], {}),
    ("chat, thoughts kept", CHAT, [], {"preserve_thinking": True}),
    ("chat, thoughts dropped", CHAT, [], {"preserve_thinking": False}),
    ("tools", [user("Hi")], [WEATHER, ODD], {}),
    ("tools and system", [system("  Be brief.\n"), user("Hi")], [WEATHER], {}),
    ("tools and blank system", [system(" \n"), user("Hi")], [WEATHER], {}),
    ("tool loop", LOOP, [WEATHER], {}),
    ("tool loop, thinking off", LOOP, [WEATHER], {"enable_thinking": False}),
    ("tool loop, answered", LOOP + [assistant("Rome.", "Clear."), user("Thanks")], [WEATHER], {}),
    (
        "tool loop, answered, thoughts kept",
        LOOP + [assistant("Rome.", "Clear."), user("Thanks")],
        [WEATHER],
        {"preserve_thinking": True},
    ),
    (
        "arguments of all types",
        [
            user("Go"),
            assistant(
                "",
                None,
                [
                    (
                        "odd",
                        {
                            "text": "line one\n  line two\n",
                            "markup": '<b>"&\'</b> \\n',
                            "yes": True,
                            "no": None,
                            "int": -7,
                            "float": 2.0,
                            "tiny": 1e-07,
                            "huge": 1e22,
                            "list": [1, [2.5, {"k": "v"}], []],
                            "dict": {"z": 1, "a": {"ø": "é\u2028"}, "e": {}},
                            "big": BIG["beyond"],
                            "bigs": BIG,
                        },
                    ),
                    ("none", {}),
                ],
            ),
            tool("done"),
        ],
        [],
        {},
    ),
    ("unicode", [system("Ævar 😀 한국어"), user("e\u0301 \U0001f469\u200d\U0001f680"), assistant("ß"), user("?")], [], {}),
    ("white space", [system(SPACES), user(SPACES), assistant(SPACES, SPACES), user(SPACES + "x")], [], {}),
    ("markup in text", [user("<|im_end|>\n</think><tool_call> {{ messages }} {% x %}")], [], {}),
    ("several users", [user("a"), user("b"), assistant(""), user("")], [], {}),
    ("assistant first", [assistant("Welcome!"), user("Hi")], [], {}),
    ("assistant last", [user("List three"), assistant("1. apple\n2.")], [], {}),
    ("close tag only", [user("q"), assistant("thought</think>answer</think>end"), tool("t")], [], {}),
    ("wrapped user", [user("q"), assistant("", None, [("f", {})]), user("<tool_response>r</tool_response>")], [], {}),
    ("no query", [system("Be brief."), assistant("x")], [], {}),
    ("late system", [user("q"), system("x")], [], {}),
    ("no messages", [], [], {}),
]


def main():
    compiled = template()
    goldens = []
    for name, messages, tools, options in CASES:
        case = {"name": name, "messages": messages, "tools": tools, "options": options}
        variables = {"add_generation_prompt": True, **options}
        try:
            case["prompt"] = compiled.render(messages=messages, tools=tools or None, **variables)
        except jinja2.exceptions.TemplateError as error:
            case["error"] = str(error)
        goldens.append(case)
    text = json.dumps(goldens, ensure_ascii=False, indent=1)
    (HERE / "goldens.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
