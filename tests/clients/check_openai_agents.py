"""Agents of the OpenAI Agents SDK over chats and responses. Usage: check_openai_agents.py BASE_URL"""

import asyncio
import sys

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

from asked import BERGEN, MODEL, SUM, Sum, report, run

SETTINGS = ModelSettings(temperature=0)


@function_tool
def get_weather(place: str) -> str:
    """Get the current weather"""
    return report(place)


def agent(model, settings=SETTINGS, **more):
    return Agent(name="volley", model=model, model_settings=settings, **more)


async def check_runs(model):
    """An answer whole and streamed, with instructions, and of a type."""
    for instructions in (None, "Be brief."):
        whole = await Runner.run(agent(model, instructions=instructions), SUM)
        assert "42" in whole.final_output, whole.final_output
        streamed = Runner.run_streamed(agent(model, instructions=instructions), SUM)
        kinds = {event.type async for event in streamed.stream_events()}
        assert "raw_response_event" in kinds, kinds
        assert streamed.final_output == whole.final_output
    typed = await Runner.run(agent(model, output_type=Sum), SUM)
    assert isinstance(typed.final_output, Sum), typed.final_output


async def check_tools(model):
    """The loop calls a tool and answers by its result; a call can be forced."""
    whole = await Runner.run(agent(model, tools=[get_weather]), BERGEN)
    assert "27" in whole.final_output, whole.final_output
    streamed = Runner.run_streamed(agent(model, tools=[get_weather]), BERGEN)
    events = [event async for event in streamed.stream_events()]
    names = {event.name for event in events if event.type == "run_item_stream_event"}
    assert {"tool_called", "tool_output"} <= names, names
    assert streamed.final_output == whole.final_output
    forced = ModelSettings(temperature=0, tool_choice="required", parallel_tool_calls=False)
    forced = await Runner.run(agent(model, forced, tools=[get_weather]), BERGEN)
    assert "27" in forced.final_output, forced.final_output


async def check_conversations(model):
    """What was said goes back as the beginning of the next turn."""
    first = await Runner.run(agent(model), SUM)
    turn = [*first.to_input_list(), {"role": "user", "content": "And minus 3?"}]
    second = await Runner.run(agent(model), turn)
    assert "39" in second.final_output, second.final_output


def main():
    set_tracing_disabled(True)
    for kind in (OpenAIChatCompletionsModel, OpenAIResponsesModel):

        def alone(check, kind=kind):
            # A client belongs to the loop that it was used in.
            async def checked():
                options = dict(base_url=sys.argv[1], api_key="none", max_retries=0)
                async with AsyncOpenAI(**options) as client:
                    await check(kind(model=MODEL, openai_client=client))

            def wrapped():
                asyncio.run(checked())

            wrapped.__name__ = check.__name__
            return wrapped

        checks = [alone(check) for check in (check_runs, check_tools, check_conversations)]
        run(kind.__name__, checks)


if __name__ == "__main__":
    main()
