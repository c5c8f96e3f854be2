"""Run two vectorizers with SIGKILLs and a faulty provider, then check every row.

PYTHONPATH=src:. python bench/vectorizer_chaos.py [--rows 20000] [--kills 10] [--seed 1]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.extensions.vectorizer import chaos

from shiftboss.db import Database
from shiftboss.db.embedded import EmbeddedServer
from shiftboss.db.migrate import migrate


async def main(rows: int, kills: int, seed: int) -> int:
    with tempfile.TemporaryDirectory(prefix="shiftboss-bench-") as home:
        server = EmbeddedServer(Path(home) / "server", linger=0)
        url = await asyncio.to_thread(server.acquire)
        try:
            await migrate(url)
            async with await Database.open(url) as db:
                verdict = await chaos.run(db, rows=rows, kills=kills, seed=seed)
        finally:
            server.release()
            await asyncio.to_thread(server.stop)
    told = asdict(verdict) | {"bad": len(verdict.bad), "seconds": round(verdict.seconds, 1)}
    print(json.dumps(told | {"load": round(os.getloadavg()[0], 1)}))
    print(*verdict.bad[:20], sep="\n", file=sys.stderr)
    return 1 if verdict.bad else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sys.exit(asyncio.run(main(options.rows, options.kills, options.seed)))
