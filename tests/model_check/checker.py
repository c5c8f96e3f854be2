"""An explicit-state model checker: every state that a protocol can reach, and the shortest way to one that is wrong.

A state is any hashable value. `steps` gives what can happen next, each with a name. An invariant holds in every state.
With `goal`, a state where it holds stays reachable from everywhere: nothing gets stuck or is lost for good.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True)
class Model(Generic[S]):
    initial: S
    steps: Callable[[S], Iterable[tuple[str, S]]]
    invariants: Mapping[str, Callable[[S], bool]]
    goal: Callable[[S], bool] | None = None


class Violation(AssertionError):
    """What does not hold, and the steps that lead there."""

    def __init__(self, what: str, trace: list[tuple[str, Hashable]]) -> None:
        self.what, self.trace = what, trace
        lines = [f"{n:3}  {step:40} {state}" for n, (step, state) in enumerate(trace)]
        super().__init__("\n".join([f"violated: {what}", *lines]))

    @property
    def story(self) -> list[str]:
        """The names of the steps."""
        return [step for step, _ in self.trace[1:]]


@dataclass
class Searched(Generic[S]):
    """The reachable states: each with the state and step that led to it first, and what comes before it."""

    first: dict[S, tuple[S | None, str]] = field(default_factory=dict)
    before: dict[S, list[S]] = field(default_factory=dict)
    transitions: int = 0

    def trace(self, state: S) -> list[tuple[str, Hashable]]:
        path: list[tuple[str, Hashable]] = []
        here: S | None = state
        while here is not None:
            former, step = self.first[here]
            path.append((step, here))
            here = former
        return path[::-1]


def check(model: Model[S], most: int = 400_000) -> Searched[S]:
    """Search everything; raises Violation with the shortest way to what is wrong."""
    found: Searched[S] = Searched({model.initial: (None, "start")})
    queue = deque([model.initial])
    while queue:
        state = queue.popleft()
        for name, holds in model.invariants.items():
            if not holds(state):
                raise Violation(name, found.trace(state))
        for step, after in model.steps(state):
            found.transitions += 1
            found.before.setdefault(after, []).append(state)
            if after not in found.first:
                found.first[after] = (state, step)
                queue.append(after)
        assert len(found.first) <= most, "the model is too large to be searched"
    if model.goal is not None:
        _reachable_from_everywhere(model.goal, found)
    return found


def _reachable_from_everywhere(goal: Callable[[S], bool], found: Searched[S]) -> None:
    good = {state for state in found.first if goal(state)}
    queue = deque(good)
    while queue:
        for former in found.before.get(queue.popleft(), ()):
            if former not in good:
                good.add(former)
                queue.append(former)
    for state in found.first:  # in the order of the search: the first is a nearest one
        if state not in good:
            raise Violation("the goal stays within reach", found.trace(state))
