"""The plan of a chaos run follows from its seed alone."""

from __future__ import annotations

from itertools import islice

from shiftboss.extensions.chaos.plan import FAULTS, KINDS, NAMES, ChaosPlan


def test_the_same_seed_gives_the_same_tasks_and_faults() -> None:
    one, other = ChaosPlan("7"), ChaosPlan("7")
    assert [one.batch(n) for n in range(3)] == [other.batch(n) for n in range(3)]
    assert list(islice(one.faults(), 200)) == list(islice(other.faults(), 200))
    assert one.events(1) == other.events(1)


def test_other_seeds_give_others() -> None:
    assert ChaosPlan("7").batch(0) != ChaosPlan("8").batch(0)
    assert list(islice(ChaosPlan("7").faults(), 20)) != list(islice(ChaosPlan("8").faults(), 20))


def test_leaving_out_a_fault_leaves_the_others_as_they_are() -> None:
    faults = list(islice(ChaosPlan("7").faults(), 200))
    left = [fault for fault in faults if not fault.kind.startswith(("kill", "line"))]
    assert list(islice(ChaosPlan("7").faults(["kill", "line"]), len(left))) == left
    assert list(ChaosPlan("7").faults(NAMES)) == []


def test_everything_comes_up() -> None:
    plan = ChaosPlan("7", size=500, quick=0.5)
    tasks = [task for n in range(3) for task in plan.batch(n)]
    assert len({task.id for task in tasks}) == len(tasks)
    assert {task.task_type.removeprefix("chaos.") for task in tasks} == {*KINDS, "quick"} - {
        "delayed",
        "dependant",
    }
    assert any(task.delay for task in tasks)
    assert {task.on_dependency_failure for task in tasks if task.depends_on} == {"cancel", "fail", "run"}
    assert {fault.kind for fault in islice(plan.faults(), 3000)} == set(FAULTS)
