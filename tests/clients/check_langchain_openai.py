"""Chats, tools and formats through langchain-openai. Usage: check_langchain_openai.py BASE_URL"""

import sys

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from asked import BERGEN, MODEL, SUM, Sum, report, run


@tool
def get_weather(place: str) -> str:
    """Get the current weather"""
    return report(place)


def check_chat(llm):
    """Invoke and stream agree, and usage is filled."""
    whole = llm.invoke(SUM)
    assert "42" in whole.content, whole
    assert whole.usage_metadata["output_tokens"] > 0, whole
    assert whole.usage_metadata["output_token_details"]["reasoning"] > 0, whole
    chunks = list(llm.stream(SUM, stream_usage=True))
    assert "".join(chunk.content for chunk in chunks) == whole.content
    assert sum(chunk.usage_metadata["output_tokens"] for chunk in chunks if chunk.usage_metadata) > 0


def check_thoughts(llm):
    """Chats of this client have no thoughts; responses do, whole and streamed."""
    llm = llm.model_copy(update={"use_responses_api": True})
    first, *rest = llm.stream(SUM)
    for message in (llm.invoke(SUM), sum(rest, first)):
        kinds = {block["type"] for block in message.content_blocks}
        assert kinds == {"reasoning", "text"}, message
        assert "42" in message.text, message


def check_tools(llm):
    """A bound tool is called, streamed and not, and its result used; a choice forces a call."""
    bound = llm.bind_tools([get_weather])
    messages = [("user", BERGEN)]
    answer = bound.invoke(messages)
    (call,) = answer.tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"place": "Bergen"}), answer
    first, *rest = bound.stream(messages)
    assert sum(rest, first).tool_calls[0]["args"] == call["args"]
    end = bound.invoke([*messages, answer, get_weather.invoke(call)])
    assert "27" in end.content, end
    for choice in ("any", "get_weather"):
        forced = llm.bind_tools([get_weather], tool_choice=choice).invoke("Hello!")
        assert forced.tool_calls[0]["name"] == "get_weather", forced


def check_formats(llm):
    """Structured output by a schema and by a call."""
    for method in ("json_schema", "function_calling"):
        answer = llm.with_structured_output(Sum, method=method).invoke(SUM)
        assert isinstance(answer, Sum), answer


def main():
    llm = ChatOpenAI(
        base_url=sys.argv[1], api_key="none", model=MODEL, temperature=0, max_retries=0
    )
    run("langchain-openai", (check_chat, check_thoughts, check_tools, check_formats), llm)


if __name__ == "__main__":
    main()
