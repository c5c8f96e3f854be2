"""Listeners on the worker's hooks, and tracing as one of them."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shiftboss.db import Database
from shiftboss.worker.handlers import Handlers
from shiftboss.worker.hooks import Ended, Event, Joined, Left, Started
from shiftboss.worker.tracing import Tracing, carrier
from tests.worker.conftest import StartWorker
from tests.worker.test_runtime import enqueue, finished


async def test_listeners_hear_the_life_of_a_worker_and_can_not_hurt_it(
    db: Database, start_worker: StartWorker
) -> None:
    handlers = Handlers()

    @handlers.task("t")
    async def t() -> int:
        return 1

    heard: list[type[Event]] = []
    async with start_worker(handlers) as worker:
        worker.hooks.listen(lambda event: heard.append(type(event)))
        worker.hooks.listen(lambda event: 1 / 0)
        assert (await finished(db, await enqueue(db, "t")))["result_data"] == 1
    assert heard == [Started, Ended, Left]
    assert Joined not in heard, "it had joined before we listened"


async def test_each_attempt_is_a_span_below_its_callers(db: Database, start_worker: StartWorker) -> None:
    handlers = Handlers()

    @handlers.task("t")
    async def t() -> None:
        raise ValueError("boom")

    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    async with start_worker(handlers) as worker:
        Tracing(provider).hear(worker.hooks)
        with trace.get_tracer("test", tracer_provider=provider).start_as_current_span("caller") as caller:
            id = await enqueue(db, "t", max_attempts=2, metadata=carrier())
        await finished(db, id)
    attempts = [span for span in spans.get_finished_spans() if span.name == "t"]
    assert [span.attributes["shiftboss.attempt"] for span in attempts if span.attributes] == [1, 2]
    assert all(span.status.description == "ValueError: boom" for span in attempts)
    assert {span.parent.span_id for span in attempts if span.parent} == {caller.get_span_context().span_id}
