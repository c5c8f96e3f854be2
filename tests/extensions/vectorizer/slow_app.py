"""A worker process whose provider is slow: `python -m tests.extensions.vectorizer.slow_app URL LEASE`, killed by tests."""

from __future__ import annotations

import asyncio
import sys

from shiftboss.db import Database
from shiftboss.extensions.vectorizer.settings import VectorizerSettings
from shiftboss.extensions.vectorizer.worker import VectorizerWorker
from tests.extensions.vectorizer.conftest import Steered


async def main(url: str, lease: float) -> None:
    embedder = Steered()
    embedder.before = lambda _: asyncio.sleep(0.05)
    async with await Database.open(url) as db:
        await VectorizerWorker(db, embedder, settings=VectorizerSettings(lease=lease, poll=0.2)).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
