"""Chats, responses and messages through litellm. Usage: check_litellm.py BASE_URL"""

import json
import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm  # noqa: E402

from asked import BERGEN, MODEL, SUM, WEATHER, Sum, report, run, user  # noqa: E402

TOOL = {"type": "function", "function": WEATHER}


def check_chat(request):
    """Whole and streamed chats with thoughts, and stream options even without a stream."""
    request = {**request, "messages": user(SUM), "stream_options": {"include_usage": True}}
    message = litellm.completion(**request).choices[0].message
    assert "42" in message.content and message.reasoning_content, message
    chunks = list(litellm.completion(**request, stream=True))
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    assert "".join(d.content or "" for d in deltas) == message.content, chunks
    thoughts = (getattr(d, "reasoning_content", None) or "" for d in deltas)
    assert "".join(thoughts) == message.reasoning_content, chunks


def check_tools(request):
    """A streamed call, put together by litellm, and its result."""
    messages = user(BERGEN)
    request = {**request, "tools": [TOOL]}
    chunks = list(litellm.completion(**request, messages=messages, stream=True))
    message = litellm.stream_chunk_builder(chunks, messages=messages).choices[0].message
    (call,) = message.tool_calls
    assert call.function.name == "get_weather", message
    place = json.loads(call.function.arguments)["place"]
    result = {"role": "tool", "tool_call_id": call.id, "content": report(place)}
    end = litellm.completion(**request, messages=[*messages, message, result])
    assert "27" in end.choices[0].message.content, end


def check_format(request):
    """Structured output by a schema."""
    answer = litellm.completion(**request, messages=user(SUM), response_format=Sum)
    Sum.model_validate_json(answer.choices[0].message.content)


def check_other_surfaces(request):
    """Responses, and messages as Anthropic has them."""
    answer = litellm.responses(**request, input=SUM)
    assert "42" in answer.output[-1].content[0].text, answer
    request = {**request, "model": f"anthropic/{MODEL}", "max_tokens": 300}
    request["api_base"] = request["api_base"].removesuffix("/v1")
    answer = litellm.completion(**request, messages=user(SUM))
    assert "42" in answer.choices[0].message.content, answer


def main():
    litellm.suppress_debug_info = True
    request = dict(model=f"openai/{MODEL}", api_base=sys.argv[1], api_key="none", temperature=0)
    run("litellm", (check_chat, check_tools, check_format, check_other_surfaces), request)


if __name__ == "__main__":
    main()
