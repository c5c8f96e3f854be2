"""SIGKILL at step boundaries; bench/kills.py does the same a thousand times."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

BENCH = Path(__file__).parents[2] / "bench" / "kills.py"


def load() -> Any:
    spec = importlib.util.spec_from_file_location("kills", BENCH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["kills"] = module
    spec.loader.exec_module(module)
    return module


async def test_no_recorded_call_is_made_again_after_kill_9(database_url: str, tmp_path: Path) -> None:
    counted = await load().storm(database_url, kills=4, steps=25, tasks=4, data=tmp_path)
    assert counted["recorded_calls_repeated"] == 0
    assert (counted["complete"], counted["steps"]) == (4, 100)
    assert counted["streams_as_emitted"] == 4  # no part lost or doubled
    assert counted["kills"] >= 1
    # a call whose answer was not recorded yet is made again, at most one per task and kill
    assert counted["calls"] <= 100 + 4 * counted["kills"]
