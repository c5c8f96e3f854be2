"""The workers of a snapshot, indexed by capability. A set of workers is an integer with a bit per worker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify
from itertools import compress
from typing import Any

# rank, load, special, turn, index; the smallest entry is the best worker
Entry = tuple[int, float, int, int, int]
SPEEDS = {"fast": 0, "standard": 1, "thorough": 2}


@dataclass(slots=True)
class Candidate:
    """A worker in a snapshot, with `free` of `slots`. None for queues or task types means any."""

    id: str
    slots: int = 1
    free: int = 1
    ahead: int = 0
    """How many of the free slots are for prefetched tasks. They are used after the slots of all others."""
    queues: frozenset[str] | None = None
    task_types: frozenset[str] | None = None
    versions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    ai_providers: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()
    gpu: bool = False
    memory_gb: float = 0.0
    cpu_cores: float = 0.0
    speed: str = "standard"
    region: str | None = None
    health: str = "healthy"
    open: bool = True
    lapsed: bool = False
    """Whether it let an assignment lapse and has accepted none since."""
    turn: int = 0

    @property
    def usable(self) -> bool:
        return self.open and self.health != "unhealthy"

    @property
    def silent(self) -> bool:
        """Whether it let an assignment lapse and has not sent a message since."""
        return self.lapsed and self.free == 0

    @property
    def special(self) -> int:
        """The number of its special features."""
        return len(self.features) + self.gpu

    def rank(self, urgent: bool, region: str | None) -> int:
        """Return the rank by health, region and, for urgent tasks, speed. Lower is better."""
        elsewhere = region is not None and region != self.region
        doubtful = self.lapsed or self.health != "healthy"
        return doubtful * 100 + elsewhere * 10 + (SPEEDS.get(self.speed, 1) if urgent else 0)

    def meets(self, requires: Mapping[str, Any] | None) -> bool:
        """Whether it meets valid requirements. A test compares this with SQL's `shiftboss.meets`."""
        if not requires:
            return True
        return (
            (requires.get("ai_provider") is None or requires["ai_provider"] in self.ai_providers)
            and all(isinstance(one, str) and one in self.features for one in requires.get("features") or ())
            and (not requires.get("gpu") or self.gpu)
            and float(requires.get("memory_gb") or 0) <= self.memory_gb
            and float(requires.get("cpu_cores") or 0) <= self.cpu_cores
            and self._continues(requires.get("version"))
        )

    def _continues(self, versions: Mapping[str, Sequence[str]] | None) -> bool:
        """Whether it can continue a task that started with these versions of its type."""
        begun = (versions or {}).items()
        return all(set(wanted) <= self.versions.get(task_type, frozenset()) for task_type, wanted in begun)


class CandidatePool:
    """The candidates and their state during one pass."""

    def __init__(self, workers: Sequence[Candidate]) -> None:
        self.workers = workers
        self.free = [worker.free for worker in workers]
        self._slots = [max(worker.slots, 1) for worker in workers]
        self._ahead = [worker.ahead for worker in workers]
        # 1 means that all slots are used; more than 1 means that tasks are prefetched
        self.load = [1 - (w.free - w.ahead) / max(w.slots, 1) for w in workers]
        self.turns = [worker.turn for worker in workers]
        self.ready = _mask(i for i, w in enumerate(workers) if w.free > 0 and w.usable)
        self._queues = _index(workers, lambda worker: worker.queues)
        self._types = _index(workers, lambda worker: worker.task_types)
        self._needs: dict[str, int] = {}
        self._members: dict[int, list[int]] = {}
        self._special = [worker.special for worker in workers]
        self._ranks: dict[tuple[bool, str | None], list[int]] = {}

    def take(self, index: int, turn: int) -> float:
        """Take one slot of a worker and return its new load."""
        self.free[index] = free = self.free[index] - 1
        self.load[index] = load = 1 - (free - self._ahead[index]) / self._slots[index]
        self.turns[index] = turn
        return load

    def queue(self, mask: int, urgent: bool, region: str | None) -> list[Entry]:
        """Return a heap of the workers in a set that have a free slot, best first."""
        key = (urgent, region)
        if key not in self._ranks:
            self._ranks[key] = [worker.rank(urgent, region) for worker in self.workers]
        ranks, load, special, turns = self._ranks[key], self.load, self._special, self.turns
        heap = [(ranks[i], load[i], special[i], turns[i], i) for i in self.indexes(mask & self.ready)]
        heapify(heap)
        return heap

    def capable(self, queue: str, task_type: str, requires: Mapping[str, Any] | None) -> int:
        """Return the set of workers that can run such a task, busy or not."""
        return _of(self._queues, queue) & _of(self._types, task_type) & self._meeting(requires)

    def _meeting(self, requires: Mapping[str, Any] | None) -> int:
        key = repr(requires or None)
        if key not in self._needs:
            self._needs[key] = _mask(i for i, worker in enumerate(self.workers) if worker.meets(requires))
        return self._needs[key]

    def indexes(self, mask: int) -> list[int]:
        """Return the indexes of the workers in a set."""
        if mask not in self._members:
            bits = bin(mask)[:1:-1]
            self._members[mask] = list(compress(range(len(bits)), map("1".__eq__, bits)))
        return self._members[mask]

    def lacking(self, queue: str, task_type: str, requires: Mapping[str, Any] | None) -> str:
        """Return how many workers meet each condition of a task that no worker can run."""
        parts = [
            f'{_of(self._queues, queue).bit_count()} serve queue "{queue}"',
            f'{_of(self._types, task_type).bit_count()} have type "{task_type}"',
        ]
        if requires:
            parts.append(f"{self._meeting(requires).bit_count()} meet its requirements")
        return f"{len(self.workers)} connected workers, of which {', '.join(parts)}"


def _index(
    workers: Sequence[Candidate], values: Callable[[Candidate], Iterable[str] | None]
) -> dict[str | None, int]:
    """Return the set of workers for each value. Workers that accept any value are under None."""
    members: dict[str | None, list[int]] = defaultdict(list)
    for index, worker in enumerate(workers):
        declared = values(worker)
        for value in (None,) if declared is None else declared:
            members[value].append(index)
    return {value: _mask(indexes) for value, indexes in members.items()}


def _of(index: Mapping[str | None, int], value: str) -> int:
    return index.get(value, 0) | index.get(None, 0)


def _mask(indexes: Iterable[int]) -> int:
    """Return the set of these indexes. It is built from bytes, because setting a bit copies an integer."""
    bits = bytearray(128)
    for index in indexes:
        while index >> 3 >= len(bits):
            bits.extend(bytes(len(bits)))
        bits[index >> 3] |= 1 << (index & 7)
    return int.from_bytes(bits, "little")
