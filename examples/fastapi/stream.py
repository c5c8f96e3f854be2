"""Tokens to a browser while a task writes them: uvicorn stream:api, then open http://127.0.0.1:8000."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated
from uuid import UUID

from fastapi import Depends, FastAPI, Header
from fastapi.responses import HTMLResponse, StreamingResponse

from shiftboss import App, Context, Handle
from shiftboss.frameworks.fastapi import handle_of, lifespan

app = App("chat")


@app.task()
async def answer(ctx: Context, question: str) -> None:
    for word in f"You asked: {question}".split():  # or: await ctx.ai.complete(question, emit=True)
        await ctx.emit(f"{word} ")


api = FastAPI(lifespan=lifespan(app, worker=True))


@api.post("/answers", status_code=202)
async def start(question: str) -> dict[str, UUID]:
    return {"task_id": (await answer.enqueue(question)).id}


@api.get("/answers/{task_id}/stream")
async def stream(
    handle: Annotated[Handle[None], Depends(handle_of(answer))],
    last_event_id: Annotated[int, Header()] = 0,
) -> StreamingResponse:
    return StreamingResponse(events(handle, last_event_id), media_type="text/event-stream")


async def events(handle: Handle[None], after: int) -> AsyncIterator[str]:
    async for part in handle.stream(after):
        if part.discard is not None:  # the task runs again: the page removes these parts
            kind, data = "discard", json.dumps(sorted(part.discard))  # a frozenset of numbers
        else:
            kind, data = "part", json.dumps(part.part)
        yield f"id: {part.number}\nevent: {kind}\ndata: {data}\n\n"
    yield "event: end\ndata:\n\n"


@api.get("/")
async def page() -> HTMLResponse:
    return HTMLResponse("""<p id="text"></p>
<script>
  const show = (id) => {
    const source = new EventSource(`/answers/${id}/stream`);
    source.addEventListener("part", (event) => {
      const piece = document.createElement("span");
      piece.id = `part-${event.lastEventId}`;
      piece.textContent = JSON.parse(event.data);
      document.getElementById("text").append(piece);
    });
    source.addEventListener("discard", (event) => {
      for (const number of JSON.parse(event.data)) document.getElementById(`part-${number}`)?.remove();
    });
    source.addEventListener("end", () => source.close());
  };
  fetch("/answers?question=Why", {method: "POST"}).then((r) => r.json()).then((r) => show(r.task_id));
</script>""")
