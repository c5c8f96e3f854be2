"""The protocols hold in every state that they reach, and each of their safeguards is needed: without it they fail.

`pytest -s` prints the shortest way to each failure.
"""

from __future__ import annotations

import pytest

from tests.model_check import leadership, leases, rescue, steps
from tests.model_check.checker import Model, Violation, check

SOUND = {
    "leases": (leases.model(), 1_000),
    "rescue": (rescue.model(), 1_000),
    "leadership": (leadership.model(), 1_000),
    "steps": (steps.model(), 300),
}
BROKEN = {
    "no token": (leases.model(leases.Protocol(token=False)), "by a report of its own claim"),
    "leases from a sequence, after a failover": (
        leases.model(leases.Protocol(random=False)),
        "by a report of its own claim",
    ),
    "rescue by age": (rescue.model(rescue.Protocol(by_age=True)), "one worker at a time"),
    "a worker that waits for an answer for ever": (
        rescue.model(rescue.Protocol(alarm=False)),
        "one worker at a time",
    ),
    "a lease that counts from its answer": (
        rescue.model(rescue.Protocol(from_begin=False)),
        "one worker at a time",
    ),
    "an unfenced leader": (leadership.model(leadership.Protocol(fenced=False)), "whose term is over"),
    "a fence that lets go of the row": (
        leadership.model(leadership.Protocol(locked=False)),
        "whose term is over",
    ),
    "a leader's token used again after a failover": (
        leadership.model(leadership.Protocol(random=False)),
        "whose term is over",
    ),
    "steps without a token": (steps.model(steps.Protocol(token=False)), "never runs again"),
    "steps that are overwritten": (
        steps.model(steps.Protocol(token=False, first_stands=False)),
        "relied on is what is stored|never runs again",
    ),
    "an attempt that does not wait for its step": (
        steps.model(steps.Protocol(acknowledged=False)),
        "relied on is what is stored",
    ),
    "a wait and an event that do not see each other": (
        steps.model(steps.Protocol(sweep=False)),
        "within reach",
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_protocol_holds_in_every_state(name: str) -> None:
    model, least = SOUND[name]
    found = check(model)
    print(f"{name}: {len(found.first)} states, {found.transitions} transitions")
    assert len(found.first) >= least, "a model that goes nowhere proves nothing"


@pytest.mark.parametrize("name", BROKEN)
def test_without_a_safeguard_it_fails(name: str) -> None:
    model, what = BROKEN[name]
    with pytest.raises(Violation, match=what) as caught:
        check(model)
    print(f"\n{name}: {caught.value}")


def test_the_way_to_a_failure_is_a_shortest_one() -> None:
    def count(n: int) -> list[tuple[str, int]]:
        return [("add one", n + 1), ("double", n * 2)] if n < 20 else []

    with pytest.raises(Violation, match="not ten") as caught:
        check(Model(1, count, {"not ten": lambda n: n != 10}))
    assert caught.value.story == ["add one", "double", "add one", "double"]
    with pytest.raises(Violation, match="within reach"):
        check(Model(1, count, {}, goal=lambda n: n == 7))
