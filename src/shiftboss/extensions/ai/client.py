"""The public clients of the AI engine: `complete`, `stream` and `embed`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from pydantic import BaseModel

from shiftboss.extensions.ai.ask import Ask, EmbedAsk, require_known
from shiftboss.extensions.ai.protocol import Answer, Embeddings, Origin, Wanted
from shiftboss.model.errors import UsageError

if TYPE_CHECKING:
    from shiftboss.extensions.ai.engine import AI

SchemaT = TypeVar("SchemaT", bound=BaseModel)
T = TypeVar("T")
Emit = Callable[[str], Awaitable[None]]
Open = Callable[[], Awaitable["AI"]]
Run = Callable[[Coroutine[Any, Any, Any]], Any]


class Client:
    """Asks the engine that `open` returns, with the tenant and task of a handler as defaults.

    `emitter` appends to the stream of that task.
    """

    def __init__(self, open: Open, emitter: Emit | None = None, **whose: Unpack[Ask]) -> None:
        self._open = open
        self._emitter = emitter
        self._whose = whose

    @overload
    async def complete(
        self, prompt: str | None = None, *, schema: None = None, **ask: Unpack[Ask]
    ) -> Answer[str]: ...

    @overload
    async def complete(
        self, prompt: str | None = None, *, schema: type[SchemaT], **ask: Unpack[Ask]
    ) -> Answer[SchemaT]: ...

    async def complete(
        self, prompt: str | None = None, *, schema: type[BaseModel] | None = None, **ask: Unpack[Ask]
    ) -> Answer[Any]:
        """Return the answer to a prompt, `messages` or a `template`, validated if there is a `schema`.

        Raises `Defer` if a limit is reached, a budget is spent or a circuit is open. In a handler, let the
        exception propagate: the task waits and spends no attempt.
        """
        require_known("complete", ask, Ask)
        if ask.get("emit"):
            stream = self.stream(prompt, schema=schema, **ask)
            async for _ in stream:
                pass
            return stream.answer
        engine = await self._open()
        return await engine.answer(engine.inquiry(prompt, schema, self._whose | ask))

    def stream(
        self, prompt: str | None = None, *, schema: type[BaseModel] | None = None, **ask: Unpack[Ask]
    ) -> Stream:
        """Stream the answer: `async for text in stream`. Afterwards, `stream.answer` is complete."""
        require_known("stream", ask, Ask)
        return Stream(self._pieces(prompt, schema, self._whose | ask))

    async def _pieces(
        self, prompt: str | None, schema: type[BaseModel] | None, ask: Ask
    ) -> AsyncGenerator[str | Answer[Any], None]:
        if ask.get("emit") and self._emitter is None:
            raise UsageError("emit=True works only in a task", hint="call ctx.ai in a handler")
        engine = await self._open()
        async with aclosing(engine.pieces(engine.inquiry(prompt, schema, ask))) as pieces:
            async for piece in pieces:
                if isinstance(piece, str) and ask.get("emit") and self._emitter is not None:
                    await self._emitter(piece)
                yield piece

    async def embed(
        self,
        texts: Sequence[str],
        model: str | None = None,
        provider: str | None = None,
        **ask: Unpack[EmbedAsk],
    ) -> Embeddings:
        """Return one vector per text, in order; concurrent requests for the same model share provider calls.

        `base_url` selects another server with the provider's protocol, and `api_key_name` the environment
        variable with its key.
        """
        require_known("embed", ask, EmbedAsk)
        whose = self._whose
        origin = Origin(
            whose.get("task_type") or "embedding_generation",
            None,
            ask.get("tenant") or whose.get("tenant"),
            ask.get("key") or whose.get("key"),
        )
        wanted = Wanted(provider, model, ask.get("dimensions"), ask.get("base_url"), ask.get("api_key_name"))
        return await (await self._open()).vectors(texts, wanted, origin)


class Stream:
    """An answer in progress. Iterate over its text; `answer` is available when the iteration has ended."""

    def __init__(self, pieces: AsyncGenerator[str | Answer[Any], None]) -> None:
        self._pieces = pieces
        self._answer: Answer[Any] | None = None

    @property
    def answer(self) -> Answer[Any]:
        if self._answer is None:
            raise RuntimeError("the stream has not ended: iterate over it first")
        return self._answer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        piece = await anext(self._pieces)
        while not isinstance(piece, str):
            self._answer = piece
            piece = await anext(self._pieces)
        return piece

    async def aclose(self) -> None:
        """Stop the stream. The text received so far is charged."""
        await self._pieces.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class SyncClient:
    """`Client` without `await`, for code without an event loop and for handlers that run in a thread."""

    def __init__(self, client: Client, run: Run) -> None:
        self._client = client
        self._run = run

    @overload
    def complete(
        self, prompt: str | None = None, *, schema: None = None, **ask: Unpack[Ask]
    ) -> Answer[str]: ...

    @overload
    def complete(
        self, prompt: str | None = None, *, schema: type[SchemaT], **ask: Unpack[Ask]
    ) -> Answer[SchemaT]: ...

    def complete(
        self, prompt: str | None = None, *, schema: type[BaseModel] | None = None, **ask: Unpack[Ask]
    ) -> Answer[Any]:
        answer: Answer[Any] = self._run(self._client.complete(prompt, schema=schema, **ask))
        return answer

    def stream(
        self, prompt: str | None = None, *, schema: type[BaseModel] | None = None, **ask: Unpack[Ask]
    ) -> SyncStream:
        return SyncStream(self._client.stream(prompt, schema=schema, **ask), self._run)

    def embed(
        self,
        texts: Sequence[str],
        model: str | None = None,
        provider: str | None = None,
        **ask: Unpack[EmbedAsk],
    ) -> Embeddings:
        made: Embeddings = self._run(self._client.embed(texts, model, provider, **ask))
        return made


class SyncStream:
    """An answer in progress. Iterate over its text; `answer` is available when the iteration has ended."""

    def __init__(self, stream: Stream, run: Run) -> None:
        self._stream = stream
        self._run = run

    @property
    def answer(self) -> Answer[Any]:
        return self._stream.answer

    def __iter__(self) -> Iterator[str]:
        try:
            while (piece := self._run(self._next())) is not None:
                yield piece
        finally:
            self._run(self._stream.aclose())

    async def _next(self) -> str | None:
        return await anext(self._stream, None)
