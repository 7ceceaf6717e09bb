"""Agents with tools and formats through pydantic-ai. Usage: check_pydantic_ai.py BASE_URL"""

import asyncio
import sys

from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from asked import BERGEN, MODEL, SUM, Sum, report, run


def model_at(base):
    provider = OpenAIProvider(base_url=base, api_key="none")
    return OpenAIChatModel(MODEL, provider=provider, settings={"temperature": 0})


def agent_at(base):
    agent = Agent(model_at(base), retries=0)

    @agent.tool_plain
    def get_weather(place: str) -> str:
        """Get the current weather"""
        return report(place)

    return agent


def kinds(result):
    return [part.part_kind for message in result.all_messages() for part in message.parts]


def streamed(agent, text):
    """The text of a streamed run."""

    async def run():
        async with agent.run_stream(text) as stream:
            return [part async for part in stream.stream_text(delta=True)]

    return "".join(asyncio.run(run()))


def check_chat(base):
    """An answer with its thoughts, streamed and not."""
    agent = Agent(model_at(base), retries=0)
    whole = agent.run_sync(SUM)
    assert "42" in whole.output and "thinking" in kinds(whole), whole
    assert streamed(agent, SUM) == whole.output


def check_tools(base):
    """The tool is called and its result used; the history goes back with its thoughts."""
    agent = agent_at(base)
    first = agent.run_sync(BERGEN)
    assert "27" in first.output, first
    assert {"thinking", "tool-call", "tool-return"} <= set(kinds(first)), first
    again = agent.run_sync(SUM, message_history=first.all_messages())
    assert again.output, again
    assert "27" in streamed(agent_at(base), BERGEN)


def check_formats(base):
    """Structured output by a forced call and by a schema."""
    for output in (Sum, NativeOutput(Sum, strict=True)):
        answer = Agent(model_at(base), output_type=output, retries=0).run_sync(SUM)
        assert isinstance(answer.output, Sum), answer


def main():
    run("pydantic-ai", (check_chat, check_tools, check_formats), sys.argv[1])


if __name__ == "__main__":
    main()
