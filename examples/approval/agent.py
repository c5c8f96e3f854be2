"""An agent that drafts an answer, streams it while it is written, and asks a person before it is sent.

pip install "shiftboss[embedded,ai,admin]"
export OPENAI_API_KEY=...                      # or another provider: see README.md
shiftboss up agent:app                         # in one terminal
python agent.py "How do I reset my password?"  # in another: shows the draft as it is written
shiftboss approvals                            # in a third, or on the dashboard
shiftboss approvals answer TASK ok=true
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from pydantic import BaseModel

from shiftboss import App, Context
from shiftboss.extensions.ai import ai_of

app = App("support")


class Verdict(BaseModel):
    ok: bool
    comment: str = ""


async def draft(ctx: Context, question: str, wish: str) -> str:
    """One paid answer. It is a step, so a restarted worker does not pay for it again."""
    prompt = f"Answer this customer: {question}" + (f"\nThe reviewer says: {wish}" if wish else "")
    return (await ai_of(ctx).complete(prompt, max_tokens=300, emit=True)).text


@app.task(max_attempts=5)
async def answer(ctx: Context, question: str) -> str:
    wish = ""
    for number in (1, 2, 3):
        text = await ctx.step(f"draft {number}", draft, ctx, question, wish)
        verdict = await ctx.wait_for(
            f"approval {number}", Verdict, timeout=timedelta(days=2), question=f"Send this?\n\n{text}"
        )  # holds no worker while it waits
        if verdict.ok:
            return text
        wish = verdict.comment
    return "nobody approved an answer"


async def main(question: str) -> None:
    async with app:
        handle = await answer.enqueue(question)
        print(f"task {handle.id}")
        async for part in handle.stream():
            print(part.part if part.discard is None else "\n(starts again)\n", end="", flush=True)
        print("\nsent:", await handle.result())


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:]) or "How do I reset my password?"))
