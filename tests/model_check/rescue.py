"""Beats and rescue, by the clock: no two workers run a task at the same time while their processes run.

Abstracts shiftboss.beat (extends the worker's lease, answers with what is lost), rescue and alive_until (a worker is
lost when its lease is over), and shiftboss.worker.heart (a worker that hears no answer stops its work at SAFE of the
lease, counted from when the last beat that landed *began*). A beat and its answer each take any time, or get lost.

Time is relative: the ticks since a worker's row was extended, and since its last landed beat began. Processes are not
stopped here, and their clocks run alike; what a stopped process does is fenced by leases: see leases.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from tests.model_check.checker import Model

LEASE = 3  # ticks
SAFE = 2
OLD = 2  # ticks after which a rescue by age takes a task
CAP = LEASE + 1


class Beat(NamedTuple):
    """On its way there, or its answer on the way back. `age`: ticks since it began."""

    age: int
    answer: Literal["none", "known", "lost"] = "none"


class Worker(NamedTuple):
    silent: int = 0  # in the database: ticks since its lease was extended
    landed: int = 0  # in the process: ticks since the last beat that landed began
    running: int | None = None  # the lease of the task that it runs
    beat: Beat | None = None


class State(NamedTuple):
    workers: tuple[Worker, ...] = (Worker(), Worker())
    holder: int | None = None  # which worker, while the task is In Progress
    lease: int = 0
    age: int = 0  # of the attempt, where a rescue looks at it
    done: bool = False


class Protocol(NamedTuple):
    by_age: bool = False  # the rescue looks at how old the attempt is
    alarm: bool = True  # a worker without an answer stops its work in time
    from_begin: bool = True  # the lease counts from when the beat began, not from when its answer came
    claims: int = 2

    def steps(self, s: State) -> Iterator[tuple[str, State]]:
        if s.done:
            return
        if self.may_tick(s):
            yield "a tick", tick(s, CAP if self.by_age else 0)
        for n, worker in enumerate(s.workers):
            yield from self.worker(s, n, worker)
        if s.holder is not None and self.is_lost(s):
            yield "rescue", s._replace(holder=None)

    def is_lost(self, s: State) -> bool:
        assert s.holder is not None
        return s.age >= OLD if self.by_age else s.workers[s.holder].silent > LEASE

    def may_tick(self, s: State) -> bool:
        """Time does not pass a worker's alarm: it stops first."""
        return not self.alarm or all(w.running is None or w.landed < SAFE for w in s.workers)

    def worker(self, s: State, n: int, w: Worker) -> Iterator[tuple[str, State]]:
        def now(**changes: object) -> State:
            changed = w._replace(**changes)  # type: ignore[arg-type]
            return s._replace(workers=(*s.workers[:n], changed, *s.workers[n + 1 :]))

        if (
            s.holder is None
            and not s.done
            and s.lease < self.claims
            and w.running is None
            and w.landed < SAFE
        ):
            # admit() extends a lease that is half over: a claim is a sign of life as well
            taken = now(running=s.lease + 1, silent=0 if w.silent > LEASE / 2 else w.silent)
            yield f"{n} claims", taken._replace(holder=n, lease=s.lease + 1, age=0)
        if w.running is not None:
            held = s.holder == n and s.lease == w.running
            yield f"{n} completes", now(running=None)._replace(done=held)
            if self.alarm and w.landed >= SAFE:
                yield f"{n} stops its work", now(running=None)
        if w.beat is None:
            yield f"{n} beats", now(beat=Beat(0))
        elif w.beat.answer == "none":
            known = w.running is None or (s.holder == n and s.lease == w.running)
            yield (
                f"the beat of {n} arrives",
                now(silent=0, beat=Beat(w.beat.age, "known" if known else "lost")),
            )
            yield f"the beat of {n} is lost", now(beat=None)
        else:
            landed = min(w.beat.age if self.from_begin else 0, w.landed)
            running = w.running if w.beat.answer == "known" else None
            yield f"the answer to {n} arrives", now(landed=landed, running=running, beat=None)
            yield f"the answer to {n} is lost", now(beat=None)


def tick(s: State, oldest: int) -> State:
    workers = tuple(
        w._replace(
            silent=min(w.silent + 1, CAP),
            landed=min(w.landed + 1, CAP),
            beat=w.beat and w.beat._replace(age=min(w.beat.age + 1, CAP)),
        )
        for w in s.workers
    )
    return s._replace(workers=workers, age=min(s.age + 1, oldest))


SOUND = Protocol()


def model(protocol: Protocol = SOUND) -> Model[State]:
    def alone(s: State) -> bool:
        return sum(w.running is not None for w in s.workers) <= 1

    return Model(
        State(),
        protocol.steps,
        {"one worker at a time runs the task": alone},
        goal=lambda s: s.done or s.lease == protocol.claims,
    )
