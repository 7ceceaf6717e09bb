"""Chats, tool calls and errors through openai-python. Usage: check.py BASE_URL"""

import json
import sys

from openai import BadRequestError, NotFoundError, OpenAI

MODEL = "volley-demo"
WEATHER = {
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


def check_chat(client):
    """Streamed and whole answers agree, are right, and report the drafts."""
    request = dict(model=MODEL, messages=user("What is 17 + 25?"), temperature=0)
    whole = client.chat.completions.create(**request)
    message = whole.choices[0].message
    assert "42" in message.content, message
    assert message.reasoning_content, message
    assert whole.choices[0].finish_reason == "stop"
    assert whole.usage.completion_tokens_details.accepted_prediction_tokens > 0

    chunks = list(
        client.chat.completions.create(
            **request, stream=True, stream_options={"include_usage": True}
        )
    )
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    assert "".join(d.content or "" for d in deltas) == message.content
    reasoning = (getattr(d, "reasoning_content", None) or "" for d in deltas)
    assert "".join(reasoning) == message.reasoning_content
    assert chunks[-1].usage == whole.usage


def check_tool_call(client):
    """The library's own accumulator makes one whole call of the streamed parts."""
    request = dict(
        model=MODEL,
        messages=user("What's the weather in Bergen?"),
        tools=[WEATHER],
        temperature=0,
    )
    with client.chat.completions.stream(**request) as stream:
        for _ in stream:
            pass
        choice = stream.get_final_completion().choices[0]
    assert choice.finish_reason == "tool_calls", choice
    (call,) = choice.message.tool_calls
    assert call.function.name == "get_weather", call
    assert json.loads(call.function.arguments) == {"place": "Bergen"}, call

    result = {"city": "Bergen", "temperature": 27, "condition": "snowy", "wind": 1}
    history = request["messages"] + [
        {
            "role": "assistant",
            "content": choice.message.content,
            "tool_calls": [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {
                        "name": call.function.name,
                        "arguments": call.function.arguments,
                    },
                }
            ],
        },
        {"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)},
    ]
    end = client.chat.completions.create(**{**request, "messages": history})
    assert "27" in end.choices[0].message.content, end


def check_errors(client):
    """Errors arrive as the library's classes, with their texts."""
    for kind, request, word in [
        (NotFoundError, {"model": "gpt-4"}, "gpt-4"),
        (BadRequestError, {"temperature": 9}, "temperature"),
        (BadRequestError, {"messages": user("word " * 20000)}, "maximum context length"),
    ]:
        try:
            client.chat.completions.create(**{"model": MODEL, "messages": user("Hi"), **request})
        except kind as error:
            assert word in str(error), error
        else:
            raise AssertionError(f"{request} was not refused")
    names = [model.id for model in client.models.list()]
    assert names == [MODEL], names


def main():
    client = OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
    for check in (check_chat, check_tool_call, check_errors):
        check(client)
        print(f"{check.__name__}: ok")


if __name__ == "__main__":
    main()
