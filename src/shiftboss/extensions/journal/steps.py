"""Steps and stages of the pipeline.

A step has two functions: `select` picks its inputs from the entry and earlier results, and `run` computes the
finding from them alone. The hash of the inputs identifies the finding, so a step runs again only when its
inputs have changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from shiftboss.extensions.ai import AI, Answer, Need
from shiftboss.extensions.ai.answers import Analysis
from shiftboss.extensions.journal.entry import Entry, Result, digest
from shiftboss.worker.context import Context

Inputs = dict[str, Any]
Results = Mapping[str, Result]


@dataclass(frozen=True, slots=True)
class Found:
    """The finding of a step, without its name and hash."""

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
    version: int = 1  # raise it when `run` returns other findings for the same inputs
    paid: bool = False  # calls the AI engine, so the finding is a durable step of the task

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
    """A sequence of waves; the steps of a wave are independent and run concurrently."""

    name: str
    waves: tuple[tuple[Step, ...], ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(step for wave in self.waves for step in wave)

    def until(self, name: str) -> Stage:
        """Return the stage up to this step, without the other steps of its wave."""
        waves: list[tuple[Step, ...]] = []
        for wave in self.waves:
            last = tuple(step for step in wave if step.name == name)
            waves.append(last or wave)
            if last:
                break
        return Stage(self.name, tuple(waves))


@dataclass(slots=True)
class Progress:
    """The outcome of a stage: all results of the entry, the new ones, and an error."""

    results: dict[str, Result]
    fresh: list[Result]
    error: BaseException | None = None


Make = Callable[[Step, Inputs, str], Awaitable[Found]]
"""Computes the finding of a step from its inputs; the third argument is their hash."""


def making(ai: AI, ctx: Context | None = None) -> Make:
    """Return a function that runs steps; in a task, paid findings are durable steps."""

    async def make(step: Step, inputs: Inputs, input_hash: str) -> Found:
        return await durably(ctx if step.paid else None, step.name, input_hash, partial(step.run, inputs, ai))

    return make


async def durably(
    ctx: Context | None, name: str, input_hash: str, call: Callable[[], Awaitable[Found]]
) -> Found:
    """Return the finding of the call, as a durable step if there is a task; other inputs are another step."""
    return await (call() if ctx is None else ctx.step(f"{name} {input_hash[:16]}", call, type=Found))


async def advance(entry: Entry, stage: Stage, make: Make) -> Progress:
    """Run the steps that are not done. An error ends the stage, but findings made before are kept."""
    progress = Progress(dict(entry.results), [])
    for wave in stage.waves:
        todo = [(step, *inputs_of(step, entry, progress.results)) for step in wave]
        todo = [item for item in todo if not is_done(item[0], item[2], progress.results)]
        answers = await asyncio.gather(*(make(*item) for item in todo), return_exceptions=True)
        for (step, _, input_hash), answer in zip(todo, answers, strict=True):
            if isinstance(answer, BaseException):
                progress.error = progress.error or answer
                continue
            progress.results[step.name] = step.result(answer, input_hash)
            progress.fresh.append(progress.results[step.name])
        if progress.error is not None:
            break
    return progress


def inputs_of(step: Step, entry: Entry, results: Results) -> tuple[Inputs, str]:
    """Return the inputs of a step and their hash."""
    inputs = step.select(entry, results)
    return inputs, digest([step.name, step.version, inputs])


def is_done(step: Step, input_hash: str, results: Results) -> bool:
    known = results.get(step.name)
    return known is not None and known.input_hash == input_hash


async def ask(ai: AI, name: str, schema: type[Analysis], need: Need, variables: Mapping[str, Any]) -> Found:
    """Return a finding of the AI engine, with its confidence, provider and model."""
    answer: Answer[Analysis] = await ai.complete(
        template=name, schema=schema, need=need, variables=variables, task_type=name
    )
    data = answer.value.model_dump(mode="json")["processed_data"]
    return Found(data, answer.value.confidence_score, answer.provider, answer.model)
