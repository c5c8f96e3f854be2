"""One process of a fleet: asks as often as told and prints what became of each request, as JSON."""

import asyncio
import json
import sys

from shiftboss.ai import AI, Need, Request, answers
from shiftboss.ai.errors import ProviderError
from shiftboss.db import Database
from shiftboss.model.errors import Defer
from shiftboss.model.settings_ai import AISettings


async def ask(ai: AI, text: str) -> str:
    request = Request("sentiment_analysis", text, answers.SentimentAnalysis, need=Need.ADVANCED)
    try:
        answer = await ai.complete(request)
    except Defer as held:
        return held.reason
    except ProviderError:
        return "failed"
    return "cached" if answer.cached else answer.provider


async def main(url: str, settings: str, texts: list[str]) -> None:
    async with (
        await Database.open(url) as db,
        await AI.open(AISettings.model_validate_json(settings), db) as ai,
    ):
        print(json.dumps(await asyncio.gather(*(ask(ai, text) for text in texts))))


asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
