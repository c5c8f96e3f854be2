"""The tasks and faults of a run, as a pure function of the seed.

The seed determines tasks and faults, their order and parameters, and the times of the faults. The effect of a
fault also depends on the speed of the machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any
from uuid import UUID

from shiftboss.extensions.chaos.tasks import QUEUE
from shiftboss.model.task import NewTask

#: The relative frequency of each kind of task, except quick ones.
KINDS = {
    "slow": 4, "threaded": 6, "forked": 3, "failing": 8, "hopeless": 2, "limited": 10, "unique": 8,
    "delayed": 6, "dependant": 12, "stepped": 8, "sleeping": 5, "waiting": 6, "streaming": 4, "nesting": 3,
}  # fmt: skip

#: The relative frequency of each fault. `--without` takes the part before the colon.
FAULTS = {
    "kill:slot": 10, "kill:worker": 6, "kill:fed": 8, "kill:child": 3, "kill:supervisor": 3,
    "kill:coordinator": 5,
    "stop:slot": 5, "stop:worker": 4, "stop:fed": 4, "stop:supervisor": 3, "stop:coordinator": 4,
    "postgres:immediate": 2, "postgres:kill": 2, "terminate": 6,
    "line:stall": 5, "line:cut": 6, "line:half": 5, "grpc:stall": 3, "grpc:cut": 4, "grpc:half": 3,
    "refuse": 4, "connections": 2, "disk": 3, "pause": 5, "cancel": 8, "retry": 8, "deploy": 1, "block": 2,
}  # fmt: skip
NAMES = sorted({kind.partition(":")[0] for kind in FAULTS})


@dataclass(frozen=True)
class Fault:
    """A fault at a time. `chance` selects the victim, and `seconds` is the duration."""

    at: float
    kind: str
    chance: float
    seconds: float


@dataclass(frozen=True)
class PlannedEvent:
    """An event for the waiting tasks of a batch, which get two of them."""

    id: UUID
    key: str
    payload: int


class ChaosPlan:
    """The batches of tasks by number, and the faults in order."""

    def __init__(self, seed: str, size: int = 500, quick: float = 0.9, every: float = 3.0) -> None:
        """Plan batches of `size` tasks with a share of `quick` ones, and a fault `every` few seconds."""
        self.seed, self.size = seed, size
        self._quick, self._every = quick, every
        self._prefix = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big")

    def faults(self, without: Sequence[str] = ()) -> Iterator[Fault]:
        """Yield faults without end. Leaving out a kind does not change the others."""
        chance, at = Random(f"{self.seed}/faults"), 0.0
        while set(NAMES) - set(without):
            at += chance.expovariate(1 / self._every)
            [kind] = chance.choices(list(FAULTS), list(FAULTS.values()))
            seconds = min(chance.expovariate(1 / 3) + 0.2, 15)
            fault = Fault(round(at, 3), kind, chance.random(), round(seconds, 3))
            if kind.partition(":")[0] not in without:
                yield fault

    def key(self, number: int) -> str:
        return f"chaos:{self.seed}:{number}"

    def events(self, number: int) -> list[PlannedEvent]:
        """What the waiting tasks of a batch wait for."""
        return [PlannedEvent(self._id(number, self.size + n), self.key(number), n) for n in (1, 2)]

    def batch(self, number: int) -> list[NewTask]:
        """The tasks of one batch."""
        chance = Random(f"{self.seed}/tasks/{number}")
        fancy = chance.choices(list(KINDS), list(KINDS.values()), k=self.size)
        tasks: list[NewTask] = []
        for place, kind in enumerate(fancy):
            chosen = "quick" if chance.random() < self._quick else kind
            task = self._task(chosen, number, chance, tasks)
            task.id, task.queue = self._id(number, place), QUEUE
            task.priority = chance.choice([None, None, None, 1, 10])
            tasks.append(task)
        return tasks

    def _id(self, number: int, place: int) -> UUID:
        """Growing, which keeps the index compact."""
        rest = hashlib.sha256(f"{self.seed}/{number}/{place}".encode()).digest()[:6]
        return UUID(int=self._prefix << 96 | number << 64 | place << 48 | int.from_bytes(rest, "big"))

    def _task(self, kind: str, number: int, chance: Random, before: list[NewTask]) -> NewTask:
        terms: dict[str, Any] = {"max_attempts": 200}
        params: dict[str, Any] = {}
        match kind:
            case "slow":
                params["seconds"] = round(chance.uniform(0.1, 1.5), 2)
            case "threaded" | "forked" | "stepped":
                params["steps"] = chance.randint(1, 5)
            case "failing":
                params["times"] = chance.choice([1, 1, 2, 300])
                terms |= {
                    "max_attempts": 3 if params["times"] == 300 else 200,
                    "backoff": timedelta(seconds=0.1),
                }
                terms["backoff_max"] = timedelta(seconds=1)
            case "limited":
                params["seconds"] = round(chance.uniform(0, 0.1), 3)
                terms["concurrency_key"] = f"k{chance.randint(1, 8)}"
            case "unique":
                params["seconds"] = round(chance.uniform(0, 0.1), 3)
                terms["dedup_key"] = f"chaos:{chance.randint(1, 20)}"
            case "delayed":
                terms["delay"] = timedelta(seconds=round(chance.uniform(0.5, 5), 2))
                terms["metadata"] = {"delay": terms["delay"].total_seconds()}
            case "dependant":
                # A task with a key may turn out to be a duplicate of another one.
                parents = [task.id for task in before[-50:] if task.id and not task.dedup_key]
                terms["depends_on"] = chance.sample(parents, min(len(parents), chance.randint(1, 3))) or None
                terms["on_dependency_failure"] = chance.choice(["cancel", "fail", "run"])
            case "sleeping":
                params["seconds"] = round(chance.uniform(0.1, 3), 2)
            case "waiting":
                params["key"] = self.key(number)
            case "streaming":
                params["parts"] = chance.randint(2, 20)
            case "nesting":
                params["children"] = chance.randint(1, 3)
        name = "quick" if kind in ("delayed", "dependant") else kind
        return NewTask(task_type=f"chaos.{name}", params=params, **terms)
