"""Messages, tool use, formats and errors through anthropic-python. Usage: anthropic_python.py URL"""

import sys

from anthropic import Anthropic, BadRequestError, NotFoundError

from asked import BERGEN, MODEL, SUM, WEATHER, Sum, report, run, user

# The library has no field for it any more.
GREEDY = {"temperature": 0}
WEATHER_TOOL = {
    "name": WEATHER["name"],
    "description": WEATHER["description"],
    "input_schema": WEATHER["parameters"],
}


def check_message(client):
    """Streamed and whole messages agree, without thoughts unless they are asked for."""
    request = dict(model=MODEL, max_tokens=400, extra_body=GREEDY, messages=user(SUM))
    whole = client.messages.create(**request)
    assert [block.type for block in whole.content] == ["text"], whole
    assert "42" in whole.content[0].text, whole
    assert whole.stop_reason == "end_turn", whole
    with client.messages.stream(**request) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text
    assert final.usage.output_tokens == whole.usage.output_tokens

    counted = client.messages.count_tokens(model=MODEL, messages=request["messages"])
    cached = whole.usage.cache_read_input_tokens
    assert counted.input_tokens == whole.usage.input_tokens + cached, counted


def check_thinking_and_tools(client):
    """Thoughts and tool use come in their blocks, and go back as they came."""
    request = dict(model=MODEL, max_tokens=600, extra_body=GREEDY, tools=[WEATHER_TOOL])
    request["thinking"] = {"type": "adaptive"}
    messages = user(BERGEN)
    with client.messages.stream(**request, messages=messages) as stream:
        events = [event.type for event in stream]
        answer = stream.get_final_message()
    assert answer.stop_reason == "tool_use", answer
    call = answer.content[-1]
    assert (call.name, call.input) == ("get_weather", {"place": "Bergen"}), call
    assert events.count("content_block_start") == len(answer.content), events
    result = report("Bergen")
    messages += [
        {"role": "assistant", "content": answer.content},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": call.id, "content": result}],
        },
    ]
    end = client.messages.create(**request, messages=messages)
    assert end.stop_reason == "end_turn", end
    assert "27" in end.content[-1].text, end


def check_format(client):
    """Parsed answers, with thoughts before them and without, streamed and not."""
    request = dict(model=MODEL, max_tokens=400, extra_body=GREEDY, messages=user(SUM))
    for thinking in ("disabled", "adaptive"):
        request["thinking"] = {"type": thinking}
        whole = client.messages.parse(**request, output_format=Sum)
        assert isinstance(whole.parsed_output, Sum), whole
        with client.messages.stream(**request, output_format=Sum) as stream:
            final = stream.get_final_message()
        assert final.parsed_output == whole.parsed_output, final


def check_stop(client):
    """Stop sequences and the limit have their reasons."""
    request = dict(model=MODEL, extra_body=GREEDY, messages=user(SUM))
    whole = client.messages.create(**request, max_tokens=400).content[0].text
    word = whole.split()[1]
    stopped = client.messages.create(**request, max_tokens=400, stop_sequences=[word])
    assert stopped.stop_reason == "stop_sequence", stopped
    assert stopped.stop_sequence == word, stopped
    assert stopped.content[0].text == whole[: whole.index(word)], stopped
    cut = client.messages.create(**request, max_tokens=2)
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 2), cut


def check_documents(client):
    """A document of text counts and reads as its text, others are refused."""
    text = {"type": "text", "text": SUM}
    count = client.messages.count_tokens

    def document(**source):
        block = {"type": "document", "source": source, "citations": {"enabled": True}}
        return [{"role": "user", "content": [block, text]}]

    plain = document(type="text", media_type="text/plain", data="It rains.")
    joined = user(f"It rains.\n\n{SUM}")
    counts = [count(model=MODEL, messages=messages).input_tokens for messages in (plain, joined)]
    assert counts[0] == counts[1], counts
    request = dict(model=MODEL, max_tokens=200, extra_body=GREEDY)
    answers = [client.messages.create(**request, messages=it).content for it in (plain, joined)]
    assert answers[0] == answers[1], answers
    try:
        count(model=MODEL, messages=document(type="url", url="https://example.org/a.pdf"))
    except BadRequestError as error:
        assert "text" in str(error), error
    else:
        raise AssertionError("a document of another kind was taken")


def check_errors(client):
    """Errors arrive as the library's classes, with their texts."""
    long = user("word " * 20000)
    for kind, request, word in [
        (NotFoundError, {"model": "claude"}, "claude"),
        (BadRequestError, {"extra_body": {"temperature": 9}}, "temperature"),
        (BadRequestError, {"messages": long}, "prompt is too long"),
    ]:
        request = {"model": MODEL, "max_tokens": 5, "messages": user("Hi"), **request}
        try:
            client.messages.create(**request)
        except kind as error:
            assert word in str(error), error
            assert error.request_id, error
        else:
            raise AssertionError(f"{request} was not refused")
    (model,) = client.models.list()
    assert (model.id, model.lifecycle) == (MODEL, "active"), model
    assert model.max_input_tokens == client.models.retrieve(MODEL).max_tokens > 1000, model


def main():
    client = Anthropic(base_url=sys.argv[1], api_key="none", max_retries=0)
    checks = (
        check_message,
        check_thinking_and_tools,
        check_format,
        check_stop,
        check_documents,
        check_errors,
    )
    run("anthropic-python", checks, client)


if __name__ == "__main__":
    main()
