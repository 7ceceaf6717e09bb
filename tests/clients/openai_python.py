"""Chats, calls, formats, responses and errors through openai-python. Usage: openai_python.py BASE_URL"""

import json
import sys

from openai import BadRequestError, LengthFinishReasonError, NotFoundError, OpenAI

from asked import BERGEN, MODEL, SUM, WEATHER, Sum, report, run, user

WEATHER_TOOL = {"type": "function", "function": WEATHER}


def check_chat(client):
    """Streamed and whole answers agree, are right, and report the drafts."""
    request = dict(model=MODEL, messages=user(SUM), temperature=0)
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
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens


def check_tool_call(client):
    """The library's own accumulator makes one whole call of the streamed parts."""
    request = dict(
        model=MODEL,
        messages=user(BERGEN),
        tools=[WEATHER_TOOL],
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
        {"role": "tool", "tool_call_id": call.id, "content": report("Bergen")},
    ]
    end = client.chat.completions.create(**{**request, "messages": history})
    assert "27" in end.choices[0].message.content, end


def check_formats(client):
    """Parsed answers behind thoughts, streamed and not; a cut-off one has the library's error."""
    request = dict(model=MODEL, messages=user(SUM), temperature=0, response_format=Sum)
    message = client.chat.completions.parse(**request).choices[0].message
    assert isinstance(message.parsed, Sum) and message.reasoning_content, message
    with client.chat.completions.stream(**request) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.parsed == message.parsed, final
    try:
        client.chat.completions.parse(**request, max_tokens=5)
    except LengthFinishReasonError:
        pass
    else:
        raise AssertionError("an answer of five tokens was parsed")
    response = client.responses.parse(model=MODEL, input=SUM, temperature=0, text_format=Sum)
    assert response.output_parsed == message.parsed, response


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


def check_completion(client):
    """Completions, their list form, and their stream."""
    request = dict(model=MODEL, prompt="def square(x):\n    return", temperature=0, max_tokens=12)
    whole = client.completions.create(**request)
    chunks = client.completions.create(**request, stream=True)
    assert "".join(c.choices[0].text for c in chunks) == whole.choices[0].text
    both = client.completions.create(**{**request, "prompt": [request["prompt"]] * 2}, n=2)
    assert [choice.text for choice in both.choices] == [whole.choices[0].text] * 4


def check_response(client):
    """Responses: whole, through the library's accumulator, kept, and gone on from."""
    request = dict(model=MODEL, input="Tell me about the Karra basket.", temperature=0)
    whole = client.responses.create(**request)
    assert [item.type for item in whole.output] == ["reasoning", "message"], whole
    with client.responses.stream(**request) as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    assert final.output_text == whole.output_text
    assert client.responses.retrieve(final.id).output_text == final.output_text
    request["input"] = "And its weight?"
    after = client.responses.create(**request, previous_response_id=final.id)
    assert after.output_text == "The Karra basket weighs 400 grams.", after
    client.responses.delete(final.id)
    try:
        client.responses.create(**request, previous_response_id=final.id)
    except NotFoundError as error:
        assert error.code == "previous_response_not_found", error
    else:
        raise AssertionError("a deleted response was found")


def check_response_call(client):
    """A function call in a responses stream, and its result as input."""
    function = {"type": "function", **WEATHER, "strict": False}
    request = dict(model=MODEL, tools=[function], temperature=0, store=False)
    items = user(BERGEN)
    with client.responses.stream(**request, input=items) as stream:
        events = [event.type for event in stream]
        answer = stream.get_final_response()
    assert events[-1] == "response.completed", events
    call = answer.output[-1]
    assert (call.type, call.name) == ("function_call", "get_weather"), call
    assert json.loads(call.arguments) == {"place": "Bergen"}, call
    items += [item.model_dump(exclude_none=True) for item in answer.output]
    output = report("Bergen")
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": output})
    assert "27" in client.responses.create(**request, input=items).output_text


def check_choices(client):
    """Several choices, each with its own finish, through the accumulator."""
    request = dict(model=MODEL, messages=user("Roll a die."), n=3, seed=1, temperature=1)
    whole = client.chat.completions.create(**request)
    with client.chat.completions.stream(**request) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    texts = [choice.message.content for choice in final.choices]
    assert texts == [choice.message.content for choice in whole.choices]
    assert [choice.finish_reason for choice in final.choices] == ["stop"] * 3


def main():
    client = OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
    checks = (
        check_chat,
        check_tool_call,
        check_formats,
        check_choices,
        check_completion,
        check_response,
        check_response_call,
        check_errors,
    )
    run("openai-python", checks, client)


if __name__ == "__main__":
    main()
