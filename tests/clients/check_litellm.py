"""Chats, responses and messages through litellm. Usage: check_litellm.py BASE_URL"""

import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm  # noqa: E402

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string"}},
            "required": ["place"],
        },
    },
}


def user(text):
    return [{"role": "user", "content": text}]


def check_chat(base):
    """Whole and streamed chats, with stream options even without a stream."""
    request = dict(model="openai/volley-demo", api_base=base, api_key="none", temperature=0)
    request["stream_options"] = {"include_usage": True}
    whole = litellm.completion(**request, messages=user("What is 17 + 25?"))
    message = whole.choices[0].message
    assert "42" in message.content and message.reasoning_content, message
    chunks = litellm.completion(**request, messages=user("What is 17 + 25?"), stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == message.content, text


def check_tools(base):
    """A streamed call, put together by litellm."""
    request = dict(model="openai/volley-demo", api_base=base, api_key="none", temperature=0)
    messages = user("What's the weather in Bergen?")
    chunks = list(litellm.completion(**request, messages=messages, tools=[TOOL], stream=True))
    answer = litellm.stream_chunk_builder(chunks, messages=messages)
    (call,) = answer.choices[0].message.tool_calls
    assert call.function.name == "get_weather", answer
    assert "Bergen" in call.function.arguments, answer


def check_other_surfaces(base):
    """Responses, and messages as Anthropic has them."""
    answer = litellm.responses(
        model="openai/volley-demo", api_base=base, api_key="none", input="What is 17 + 25?", temperature=0
    )
    assert "42" in answer.output[-1].content[0].text, answer
    answer = litellm.completion(
        model="anthropic/volley-demo",
        api_base=base.removesuffix("/v1"),
        api_key="none",
        temperature=0,
        max_tokens=300,
        messages=user("What is 17 + 25?"),
    )
    assert "42" in answer.choices[0].message.content, answer


def main():
    for check in (check_chat, check_tools, check_other_surfaces):
        check(sys.argv[1])
        print(f"litellm {check.__name__}: ok")


if __name__ == "__main__":
    main()
