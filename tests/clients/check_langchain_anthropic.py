"""Messages, tools and documents through langchain-anthropic. Usage: check_langchain_anthropic.py URL"""

import sys

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool

from asked import BERGEN, MODEL, SUM, report, run


@tool
def get_weather(place: str) -> str:
    """Get the current weather"""
    return report(place)


def check_chat(llm):
    """Invoke and stream agree, and usage is filled."""
    whole = llm.invoke(SUM)
    assert "42" in whole.content, whole
    assert whole.usage_metadata["output_tokens"] > 0, whole
    chunks = list(llm.stream(SUM))
    assert "".join(chunk.content for chunk in chunks if chunk.content) == whole.content


def check_thoughts(llm):
    """Thoughts are blocks of their own, and go back with the results of tools."""
    llm = llm.model_copy(update={"thinking": {"type": "enabled", "budget_tokens": 1024}})
    llm = llm.model_copy(update={"max_tokens": 2000})
    first, *rest = llm.stream(SUM)
    for message in (llm.invoke(SUM), sum(rest, first)):
        kinds = [block["type"] for block in message.content]
        assert kinds == ["thinking", "text"], message
    check_tools(llm)


def check_tools(llm):
    """A bound tool is called, streamed and not, and its result used."""
    bound = llm.bind_tools([get_weather])
    messages = [("user", BERGEN)]
    answer = bound.invoke(messages)
    (call,) = answer.tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"place": "Bergen"}), answer
    first, *rest = bound.stream(messages)
    assert sum(rest, first).tool_calls[0]["args"] == call["args"]
    end = bound.invoke([*messages, answer, get_weather.invoke(call)])
    assert "27" in end.text, end


def check_documents(llm):
    """A text goes out as a document, and is read."""
    ask = {"type": "text", "text": SUM}
    document = {"type": "text-plain", "mime_type": "text/plain", "text": "It rains."}
    with_document = llm.invoke([HumanMessage([document, ask])])
    plain = llm.invoke([HumanMessage(f"It rains.\n\n{SUM}")])
    assert with_document.content == plain.content
    tokens = [answer.usage_metadata["input_tokens"] for answer in (with_document, plain)]
    assert tokens[0] == tokens[1], tokens


def main():
    llm = ChatAnthropic(
        base_url=sys.argv[1],
        api_key="none",
        model=MODEL,
        max_tokens=500,
        max_retries=0,
        model_kwargs={"extra_body": {"temperature": 0}},
    )
    run("langchain-anthropic", (check_chat, check_thoughts, check_tools, check_documents), llm)


if __name__ == "__main__":
    main()
