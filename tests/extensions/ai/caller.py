"""One process of a fleet: sends a number of requests and prints the outcome of each as JSON."""

import asyncio
import json
import sys

from shiftboss.db import Database
from shiftboss.extensions.ai import AI, Need, answers
from shiftboss.extensions.ai.errors import ProviderError
from shiftboss.extensions.ai.settings import AISettings
from shiftboss.model.errors import Defer


async def ask(ai: AI, text: str) -> str:
    try:
        answer = await ai.complete(
            template="sentiment_analysis",
            variables={"content": text},
            schema=answers.SentimentAnalysis,
            need=Need.ADVANCED,
        )
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
