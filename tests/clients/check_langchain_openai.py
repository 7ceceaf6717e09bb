"""Chats and tools through langchain-openai. Usage: check_langchain_openai.py BASE_URL"""

import sys

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def get_weather(place: str) -> str:
    """Get the current weather"""
    return f'{{"city": "{place}", "temperature": 27, "condition": "snowy", "wind": 1}}'


def check_chat(llm):
    """Invoke and stream agree, and usage is filled."""
    whole = llm.invoke("What is 17 + 25?")
    assert "42" in whole.content, whole
    assert whole.usage_metadata["output_tokens"] > 0, whole
    chunks = list(llm.stream("What is 17 + 25?", stream_usage=True))
    assert "".join(chunk.content for chunk in chunks) == whole.content
    assert sum(chunk.usage_metadata["output_tokens"] for chunk in chunks if chunk.usage_metadata) > 0


def check_tools(llm):
    """A bound tool is called, and its result used."""
    bound = llm.bind_tools([get_weather])
    messages = [("user", "What's the weather in Bergen?")]
    answer = bound.invoke(messages)
    (call,) = answer.tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"place": "Bergen"}), answer
    end = bound.invoke([*messages, answer, get_weather.invoke(call)])
    assert "27" in end.content, end


def main():
    llm = ChatOpenAI(
        base_url=sys.argv[1], api_key="none", model="volley-demo", temperature=0, max_retries=0
    )
    for check in (check_chat, check_tools):
        check(llm)
        print(f"langchain-openai {check.__name__}: ok")


if __name__ == "__main__":
    main()
