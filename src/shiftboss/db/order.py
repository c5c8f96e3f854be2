"""Orders the tasks of a batch so that parents are enqueued before their children."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from uuid import UUID

from shiftboss.model.errors import UsageError
from shiftboss.model.task import NewTask


def parents_first(tasks: Sequence[NewTask]) -> Sequence[NewTask]:
    """Sort tasks so that parents come first. Returns `tasks` itself if they are in order."""
    here = {task.id: task for task in tasks if task.id is not None}
    if _in_order(tasks, set(here)):
        return tasks
    try:
        order = TopologicalSorter(
            {id: [p for p in t.depends_on or () if p in here] for id, t in here.items()}
        )
        ranked = [here[id] for id in order.static_order()]
    except CycleError as error:
        raise UsageError(
            "tasks depend on each other in a cycle: " + " → ".join(map(str, error.args[1]))
        ) from None
    return [*ranked, *(task for task in tasks if task.id is None)]


def _in_order(tasks: Sequence[NewTask], coming: set[UUID]) -> bool:
    for task in tasks:
        if task.depends_on and not coming.isdisjoint(task.depends_on):
            return False
        if task.id is not None:
            coming.discard(task.id)
    return True
