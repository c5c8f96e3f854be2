"""Leadership: what a former leader still does has no effect, whenever it was stopped and however late it goes on.

Abstracts shiftboss.acquire_lease (takes a lease that is free or expired, unless a transaction under it is open),
renew_lease, release_lease and fence (the first statement of every transaction under the lease: the token must be in force,
and its row stays locked until the transaction ends), and a failover to a standby that lacks the last transactions. The
lease expires at any moment: processes may be stopped between any two steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model_check.checker import Model

MAX_TERMS = 4


class Row(NamedTuple):
    """shiftboss.leases: the token, who holds it, and which election that was, for us who watch."""

    token: int
    term: int
    expired: bool = False


class Process(NamedTuple):
    token: int | None = None
    term: int = 0
    #: looked: found that it leads, about to write. open: a transaction that has passed the fence.
    duty: str = "idle"


class State(NamedTuple):
    row: Row | None = None
    standby: Row | None = None
    promoted: bool = False
    processes: tuple[Process, ...] = (Process(), Process())
    terms: int = 0
    late: bool = False  # a write of a term that was over


class Protocol(NamedTuple):
    fenced: bool = True  # the token is checked in the transaction that writes
    locked: bool = True  # and its row stays locked until that transaction ends
    random: bool = True  # tokens are random, not the number after the last one in the table

    def steps(self, s: State) -> Iterator[tuple[str, State]]:
        if s.row is not None and not s.row.expired:
            yield "the lease expires", s._replace(row=s.row._replace(expired=True))
        if not s.promoted:
            yield "replicate", s._replace(standby=s.row)
            # Open transactions end with their server.
            processes = tuple(p._replace(duty="idle") if p.duty == "open" else p for p in s.processes)
            yield "failover", s._replace(row=s.standby, promoted=True, processes=processes)
        for n, process in enumerate(s.processes):
            yield from self.elect(s, n, process)
            yield from self.lead(s, n, process)

    def elect(self, s: State, n: int, p: Process) -> Iterator[tuple[str, State]]:
        held = self.locked and any(q.duty == "open" for q in s.processes)
        if p.token is None and (s.row is None or s.row.expired) and not held and s.terms < MAX_TERMS:
            term = s.terms + 1
            token = 1000 + term if self.random else (s.row.token if s.row else 0) + 1
            after = s._replace(row=Row(token, term), terms=term)
            yield f"{n} is elected", put(after, n, Process(token, term))
            yield f"{n} is elected and never hears of it", after
        if p.token is not None and p.duty == "idle":
            if s.row is not None and s.row.token == p.token:
                yield f"{n} renews", s._replace(row=s.row._replace(expired=False))
                yield f"{n} releases", put(s._replace(row=None), n, Process())
            else:
                yield f"{n} learns that it leads no more", put(s, n, Process())

    def lead(self, s: State, n: int, p: Process) -> Iterator[tuple[str, State]]:
        in_force = s.row is not None and s.row.token == p.token and not s.row.expired
        if p.token is not None and p.duty == "idle":
            yield f"{n} begins a duty", put(s, n, p._replace(duty="looked"))
        elif p.duty == "looked":
            if not self.fenced or in_force:
                yield f"{n} opens a transaction", put(s, n, p._replace(duty="open"))
            else:
                yield f"{n} is refused", put(s, n, p._replace(duty="idle"))
        elif p.duty == "open":
            over = s.row is None or s.row.term != p.term
            yield f"{n} commits", put(s._replace(late=s.late or over), n, p._replace(duty="idle"))
            yield f"{n} is cut off", put(s, n, p._replace(duty="idle"))  # idle_in_transaction_session_timeout


def put(s: State, n: int, process: Process) -> State:
    return s._replace(processes=(*s.processes[:n], process, *s.processes[n + 1 :]))


SOUND = Protocol()


def model(protocol: Protocol = SOUND) -> Model[State]:
    return Model(
        State(),
        protocol.steps,
        {"nothing is written by a leader whose term is over": lambda s: not s.late},
        goal=lambda s: s.terms == MAX_TERMS or any(p.duty == "open" for p in s.processes),
    )
