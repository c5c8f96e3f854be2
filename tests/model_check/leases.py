"""Leases of tasks: whatever is delayed, repeated or rolled back, an attempt ends only by its own claim.

Abstracts shiftboss.take (a claim writes a lease), complete, fail and defer (match it), rescue (ends the attempt of a
worker that is silent, whether it died or not), return_forgotten, lease_of, and a failover to a standby that lacks the
last transactions. Workers may be stopped at any moment and go on later; reports may arrive late and more than once.
There is no clock: a worker may be taken for dead at any time. tests/model_check/rescue.py has the clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from tests.model_check.checker import Model

WORKERS = ("ann", "bob")
MAX_ATTEMPTS = 2
MAX_CLAIMS = 4


class Claim(NamedTuple):
    """`number` is what reports carry; `serial` tells claims apart for us, who watch from outside."""

    number: int
    serial: int


class Task(NamedTuple):
    """The task's row, and the sequence that leases would come from if they came from one."""

    status: Literal["Queued", "In Progress", "Complete", "Failed"] = "Queued"
    claim: Claim | None = None
    worker: int | None = None
    attempts: int = 0
    sequence: int = 0
    foreign: bool = False  # ended by a report of another claim


class Report(NamedTuple):
    kind: Literal["complete", "fail"]
    claim: Claim


class State(NamedTuple):
    db: Task = Task()
    standby: Task | None = Task()  # None: it has been promoted
    hands: tuple[Claim | None, ...] = (None,) * len(WORKERS)
    reports: frozenset[Report] = frozenset()
    serial: int = 0


class Protocol(NamedTuple):
    token: bool = True  # reports are matched by the lease
    random: bool = True  # leases are random numbers, not a sequence of the database

    def steps(self, s: State) -> Iterator[tuple[str, State]]:
        yield from self.claims(s)
        yield from self.work(s)
        for report in s.reports:
            after = self.accept(s.db, report)
            if after != s.db:
                yield f"{report.kind} by claim {report.claim.serial} arrives", s._replace(db=after)
        if s.db.status == "In Progress" and s.db.claim is not None:
            yield "rescue", s._replace(db=ended(s.db, "lost"))
        if s.standby is not None:
            yield "replicate", s._replace(standby=s.db)
            yield "failover", s._replace(db=s.standby, standby=None)

    def claims(self, s: State) -> Iterator[tuple[str, State]]:
        if s.db.status != "Queued" or s.serial == MAX_CLAIMS:
            return
        sequence = s.db.sequence + 1
        claim = Claim(1000 + s.serial if self.random else sequence, s.serial)
        for n, name in enumerate(WORKERS):
            db = s.db._replace(status="In Progress", claim=claim, worker=n, sequence=sequence)
            after = s._replace(db=db, serial=s.serial + 1)
            if s.hands[n] is None:
                yield f"{name} claims", after._replace(hands=put(s.hands, n, claim))
                yield f"{name} claims, the answer is lost", after

    def work(self, s: State) -> Iterator[tuple[str, State]]:
        for n, name in enumerate(WORKERS):
            claim = s.hands[n]
            if claim is not None:
                for kind in ("complete", "fail"):
                    report = Report(kind, claim)  # type: ignore[arg-type]
                    yield (
                        f"{name} reports {kind}",
                        s._replace(hands=put(s.hands, n, None), reports=s.reports | {report}),
                    )
                yield f"{name} is killed", s._replace(hands=put(s.hands, n, None))
            told = {claim, *(report.claim for report in s.reports)}
            if s.db.status == "In Progress" and s.db.worker == n and s.db.claim not in told:
                yield f"{name} beats, and never heard of it", s._replace(db=ended(s.db, "give back"))

    def accept(self, db: Task, report: Report) -> Task:
        """The database takes a report, or finds it stale."""
        if db.status != "In Progress" or db.claim is None:
            return db
        if self.token and db.claim.number != report.claim.number:
            return db
        return ended(db, report.kind)._replace(foreign=db.claim.serial != report.claim.serial)


def ended(db: Task, how: str) -> Task:
    if how == "complete":
        return db._replace(status="Complete")
    if how == "give back":
        return db._replace(status="Queued", claim=None)
    attempts = db.attempts + 1
    return db._replace(
        status="Failed" if attempts >= MAX_ATTEMPTS else "Queued", claim=None, attempts=attempts
    )


def put(hands: tuple[Claim | None, ...], n: int, claim: Claim | None) -> tuple[Claim | None, ...]:
    return (*hands[:n], claim, *hands[n + 1 :])


SOUND = Protocol()


def model(protocol: Protocol = SOUND) -> Model[State]:
    return Model(
        State(),
        protocol.steps,
        {
            "an attempt ends by a report of its own claim": lambda s: not s.db.foreign,
            "a running task has a lease": lambda s: s.db.status != "In Progress" or s.db.claim is not None,
            "no attempt beyond the last": lambda s: s.db.attempts <= MAX_ATTEMPTS,
        },
        # A task that ran out of claims in this small world is no loss.
        goal=lambda s: s.db.status in ("Complete", "Failed") or s.serial == MAX_CLAIMS,
    )
