"""Compute the geometry of a graph of tasks, in columns so that every arrow points to the right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

WIDTH, HEIGHT = 212, 46
ACROSS, DOWN = 60, 14
LONGEST = 25
Edge = tuple[UUID, UUID, str]


def graph(rows: Sequence[Mapping[str, Any]], here: UUID) -> dict[str, Any] | None:
    """Return boxes and arrows for `ui.graph`, or None for a task without relatives."""
    edges = _edges(rows)
    if not edges:
        return None
    columns = _columns(rows, edges)
    tallest = max(map(len, columns))
    places = {
        row["id"]: (
            n * (WIDTH + ACROSS),
            (tallest - len(column)) * (HEIGHT + DOWN) // 2 + m * (HEIGHT + DOWN),
        )
        for n, column in enumerate(columns)
        for m, row in enumerate(column)
    }
    return {
        "width": len(columns) * (WIDTH + ACROSS) - ACROSS,
        "height": tallest * (HEIGHT + DOWN) - DOWN,
        "box": {"width": WIDTH, "height": HEIGHT},
        "nodes": [_node(row, places[row["id"]], here) for row in rows],
        "arrows": [_arrow(places[one], places[two], kind) for one, two, kind in edges],
        "kinds": sorted({kind for _, _, kind in edges}),
    }


def _edges(rows: Sequence[Mapping[str, Any]]) -> list[Edge]:
    known = {row["id"] for row in rows}
    found: dict[tuple[UUID, UUID], str] = {}
    for row in rows:
        found |= {(parent, row["id"]): "waits" for parent in row["depends_on"] or () if parent in known}
        found |= {(row["id"], child): "runs" for child in row["children"] if child in known}
    return [(one, two, kind) for (one, two), kind in found.items() if one != two]


def _columns(rows: Sequence[Mapping[str, Any]], edges: Sequence[Edge]) -> list[list[Mapping[str, Any]]]:
    """Place each task to the right of all its predecessors."""
    level = {row["id"]: 0 for row in rows}
    for _ in rows:  # bounds the loop even if the graph had a cycle
        before = dict(level)
        for one, two, _kind in edges:
            level[two] = min(max(level[two], level[one] + 1), len(rows))
        if before == level:
            break
    used = sorted(set(level.values()))
    return [[row for row in rows if level[row["id"]] == value] for value in used]


def _node(row: Mapping[str, Any], place: tuple[int, int], here: UUID) -> dict[str, Any]:
    name = str(row["task_type"])
    return {
        "id": row["id"],
        "x": place[0],
        "y": place[1],
        "name": name if len(name) <= LONGEST else name[: LONGEST - 1] + "…",
        "whole": name,
        "status": row["status"],
        "here": row["id"] == here,
    }


def _arrow(one: tuple[int, int], two: tuple[int, int], kind: str) -> dict[str, str]:
    x1, y1 = one[0] + WIDTH, one[1] + HEIGHT // 2
    x2, y2 = two[0] - 4, two[1] + HEIGHT // 2
    bend = ACROSS // 2
    path = f"M{x1},{y1} C{x1 + bend},{y1} {x2 - bend},{y2} {x2},{y2}"
    return {"kind": kind, "path": path, "head": f"{x2 - 5},{y2 - 4} {x2 + 3},{y2} {x2 - 5},{y2 + 4}"}
