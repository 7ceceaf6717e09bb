"""An agent with a tool through pydantic-ai. Usage: check_pydantic_ai.py BASE_URL"""

import asyncio
import sys

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


def agent_at(base):
    provider = OpenAIProvider(base_url=base, api_key="none")
    model = OpenAIChatModel("volley-demo", provider=provider, settings={"temperature": 0})
    agent = Agent(model, retries=0)

    @agent.tool_plain
    def get_weather(place: str) -> str:
        """Get the current weather"""
        return f'{{"city": "{place}", "temperature": 27, "condition": "snowy", "wind": 1}}'

    return agent


def check_agent(base):
    """The tool is called and its result used; the history goes back with its thoughts."""
    agent = agent_at(base)
    first = agent.run_sync("What's the weather in Bergen?")
    assert "27" in first.output, first
    kinds = [part.part_kind for message in first.all_messages() for part in message.parts]
    assert "tool-call" in kinds and "tool-return" in kinds, kinds
    again = agent.run_sync("What is 17 + 25?", message_history=first.all_messages())
    assert again.output, again


def check_stream(base):
    """A streamed run ends with the text of the whole one."""

    async def run():
        async with agent_at(base).run_stream("What's the weather in Oslo?") as stream:
            return [text async for text in stream.stream_text(delta=True)]

    assert "27" in "".join(asyncio.run(run()))


def main():
    for check in (check_agent, check_stream):
        check(sys.argv[1])
        print(f"pydantic-ai {check.__name__}: ok")


if __name__ == "__main__":
    main()
