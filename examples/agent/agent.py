"""An agent that survives `kill -9`: what a model or a tool has answered is never asked again.

pip install 'shiftboss[agents,embedded]'
shiftboss worker agent:app --id planner      # in one terminal; kill it with `kill -9` and start it again
python agent.py                              # in another: asks, and shows what the agent says
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

from pydantic_ai import Agent, ModelMessage, ModelRequest, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from shiftboss import App, Context
from shiftboss.extensions.agents import ShiftbossDurability

CITIES = ["Lisbon", "Oslo", "Rome", "Vienna"]
BILL = Path(os.environ.get("BILL", "bill.txt"))


def pay(what: str) -> None:
    """Everything that costs money is written down, so that you can see what was paid twice: nothing."""
    with BILL.open("a") as bill:
        bill.write(what + "\n")


async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    """Stands in for a paid model, so that the example needs no key: one tool call after the other."""
    answers = [
        str(part.content)
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
    pay(f"model {len(answers)}")
    if len(answers) < len(CITIES):
        city = CITIES[len(answers)]
        yield {
            0: DeltaToolCall(name="weather", json_args=f'{{"city": "{city}"}}', tool_call_id=f"call-{city}")
        }
        return
    for answer in answers:
        yield f"{answer}. "


agent = Agent(FunctionModel(stream_function=model), name="planner", capabilities=[ShiftbossDurability()])


@agent.tool_plain
async def weather(city: str) -> str:
    """The weather in a city."""
    pay(f"weather {city}")
    await asyncio.sleep(float(os.environ.get("PAUSE", "1")))
    return f"{city}: {len(city) + 10} degrees"


app = App("travel")


@app.task(max_attempts=20)
async def plan(ctx: Context, question: str) -> str:
    return (await agent.run(question)).output


async def main() -> None:
    async with app:
        handle = await plan.enqueue("Where should we go?")
        async for part in handle.stream():
            print("(starts again)" if part.part is None else part.part, flush=True)
        print(await handle.result())


if __name__ == "__main__":
    asyncio.run(main())
