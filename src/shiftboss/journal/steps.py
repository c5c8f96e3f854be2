"""Steps and stages: how an entry is carried one stage further, and how work already done is recognised.

A step is two functions: `select` picks what it looks at out of the entry and earlier results, `run` makes the
finding from exactly that. The hash of what was selected names the finding, so a step can not depend on
anything that its hash does not cover, and is run again only when its input changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shiftboss.ai import AI, Answer, Request
from shiftboss.ai.answers import Analysis
from shiftboss.journal.entry import Entry, Result, digest

Inputs = dict[str, Any]
Results = Mapping[str, Result]


@dataclass(frozen=True, slots=True)
class Found:
    """A step's answer, before it gets its name and hash."""

    processed_data: dict[str, Any]
    confidence: float
    provider: str | None = None
    model: str | None = None
    vector: list[float] | None = None


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    select: Callable[[Entry, Results], Inputs]
    run: Callable[[Inputs, AI], Awaitable[Found]]
    version: int = 1  # raise it when `run` changes its mind about the same inputs

    def result(self, found: Found, input_hash: str) -> Result:
        return Result(
            task_type=self.name,
            processed_data=found.processed_data,
            confidence_score=round(min(1.0, max(0.0, found.confidence)), 3),
            input_hash=input_hash,
            provider=found.provider,
            model=found.model,
            vector=found.vector,
        )


@dataclass(frozen=True, slots=True)
class Stage:
    """Waves of steps; those of one wave do not need each other and run at the same time."""

    name: str
    waves: tuple[tuple[Step, ...], ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(step for wave in self.waves for step in wave)

    def until(self, name: str) -> Stage:
        """The same stage, ending with this step; nothing beside it is run."""
        waves: list[tuple[Step, ...]] = []
        for wave in self.waves:
            last = tuple(step for step in wave if step.name == name)
            waves.append(last or wave)
            if last:
                break
        return Stage(self.name, tuple(waves))


@dataclass(slots=True)
class Progress:
    """What a stage did: every result of the entry so far, which of them are new, and what went wrong."""

    results: dict[str, Result]
    fresh: list[Result]
    error: BaseException | None = None


async def advance(entry: Entry, stage: Stage, ai: AI) -> Progress:
    """Run what is not done yet. An error ends the stage, but never costs a finding that was already made."""
    progress = Progress(dict(entry.results), [])
    for wave in stage.waves:
        todo = [(step, *_inputs(step, entry, progress.results)) for step in wave]
        todo = [item for item in todo if not _is_done(item[0], item[2], progress.results)]
        answers = await asyncio.gather(
            *(step.run(inputs, ai) for step, inputs, _ in todo), return_exceptions=True
        )
        for (step, _, input_hash), answer in zip(todo, answers, strict=True):
            if isinstance(answer, BaseException):
                progress.error = progress.error or answer
                continue
            progress.results[step.name] = step.result(answer, input_hash)
            progress.fresh.append(progress.results[step.name])
        if progress.error is not None:
            break
    return progress


def _inputs(step: Step, entry: Entry, results: Results) -> tuple[Inputs, str]:
    inputs = step.select(entry, results)
    return inputs, digest([step.name, step.version, inputs])


def _is_done(step: Step, input_hash: str, results: Results) -> bool:
    known = results.get(step.name)
    return known is not None and known.input_hash == input_hash


async def ask(ai: AI, request: Request[Any]) -> Found:
    """A finding straight from the AI router: its data, its confidence, and who said so."""
    answer: Answer[Any] = await ai.complete(request)
    value: Analysis = answer.value
    data = value.model_dump(mode="json")["processed_data"]
    return Found(data, value.confidence_score, answer.provider, answer.model)
