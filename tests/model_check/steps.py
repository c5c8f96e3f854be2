"""Steps: a result that is stored stands, a stored step never runs again, and a wait never sleeps through its event.

Abstracts shiftboss.load_steps, store_steps (under the lease, the first result of a step stands), suspend with
match_events (begins a wait, and looks for an event that has come already), send_event with deliver_events (stores an
event, and looks for waits), and wake_due with sweep_events (the leader delivers what those two could not see of each
other: both may be open at once). Attempts end at any moment, by rescue or a kill, and go on unaware of it.

The task runs step `a`, whose value is the number of its run, waits for an event, and completes with the value of `a`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model_check.checker import Model

MAX_CLAIMS = 3


class Attempt(NamedTuple):
    lease: int
    known: int | None  # the value of `a`, as loaded or as stored and answered
    ran: int | None = None  # the value of `a`, on its way to the database


class State(NamedTuple):
    status: str = "Queued"  # Queued, In Progress, held, Complete
    lease: int = 0
    stored: int | None = None
    result: int | None = None
    attempts: tuple[Attempt, ...] = ()  # processes, of which one at most has the lease in force
    runs: int = 0
    relied: frozenset[int] = frozenset()  # values of `a` that an attempt went on with
    suspending: bool = False  # a transaction that began to wait, not yet committed; it saw no event
    event: str = "unsent"  # unsent, open (stored by an open transaction that saw no wait), sent
    again: bool = False  # `a` ran under the lease in force although its value was stored


class Protocol(NamedTuple):
    token: bool = True  # steps are stored under the lease in force only
    first_stands: bool = True  # ON CONFLICT DO NOTHING, and not DO UPDATE
    acknowledged: bool = True  # an attempt goes on when its step is stored, not before
    sweep: bool = True  # the leader looks for events that nobody delivered

    def steps(self, s: State) -> Iterator[tuple[str, State]]:
        if s.status == "Queued" and s.lease < MAX_CLAIMS:
            attempt = Attempt(s.lease + 1, s.stored)
            yield (
                "claim",
                s._replace(status="In Progress", lease=s.lease + 1, attempts=(*s.attempts, attempt)),
            )
        if s.status == "In Progress" and not s.suspending:
            yield "rescue", s._replace(status="Queued")
        for n, attempt in enumerate(s.attempts):
            yield from self.attempt(s, n, attempt)
        yield from self.events(s)

    def attempt(self, s: State, n: int, a: Attempt) -> Iterator[tuple[str, State]]:
        def now(attempt: Attempt | None, **changes: object) -> State:
            others = (*s.attempts[:n], *([attempt] if attempt else []), *s.attempts[n + 1 :])
            return s._replace(attempts=others, **changes)  # type: ignore[arg-type]

        in_force = s.status == "In Progress" and s.lease == a.lease and not s.suspending
        yield f"attempt {a.lease} dies", now(None)
        if a.known is None and a.ran is None:
            again = s.again or (in_force and s.stored is not None)
            yield f"attempt {a.lease} runs a", now(a._replace(ran=s.runs), runs=s.runs + 1, again=again)
        elif a.known is None and a.ran is not None:
            yield from self.store(s, n, a, in_force, now)
        elif in_force and s.event != "sent":
            yield f"attempt {a.lease} begins to wait", s._replace(suspending=True)
        elif in_force:
            yield f"attempt {a.lease} completes", now(None, status="Complete", result=a.known)

    def store(self, s: State, n: int, a: Attempt, in_force: bool, now: object) -> Iterator[tuple[str, State]]:
        assert callable(now)
        if not self.acknowledged:
            yield (
                f"attempt {a.lease} goes on before a is stored",
                now(a._replace(known=a.ran), relied=s.relied | {a.ran}),
            )
        if in_force or not self.token:
            value = s.stored if s.stored is not None and self.first_stands else a.ran
            gone_on = now(a._replace(known=value), stored=value, relied=s.relied | {value})
            yield f"attempt {a.lease} stores a", gone_on
        else:
            yield f"attempt {a.lease} finds its lease lost", now(None)

    def events(self, s: State) -> Iterator[tuple[str, State]]:
        if s.suspending:
            held = s._replace(suspending=False, status="held", attempts=self.without_lease(s))
            yield "the wait is committed", held
        if s.event == "unsent":
            # The sender sees waits that are committed, and locks their tasks.
            if s.status == "held":
                yield "an event wakes the task", s._replace(event="sent", status="Queued")
            else:
                yield "an event is stored, nobody waits", s._replace(event="open")
        elif s.event == "open":
            yield "the event is committed", s._replace(event="sent")
        if self.sweep and s.event == "sent" and s.status == "held":
            yield "the leader delivers it", s._replace(status="Queued")

    def without_lease(self, s: State) -> tuple[Attempt, ...]:
        return tuple(a for a in s.attempts if a.lease != s.lease)


SOUND = Protocol()


def model(protocol: Protocol = SOUND) -> Model[State]:
    return Model(
        State(),
        protocol.steps,
        {
            "what an attempt relied on is what is stored": lambda s: s.relied <= {s.stored},
            "the result is made of what is stored": lambda s: s.status != "Complete" or s.result == s.stored,
            "a stored step never runs again": lambda s: not s.again,
        },
        goal=lambda s: s.status == "Complete" or (s.lease == MAX_CLAIMS and s.status != "held"),
    )
