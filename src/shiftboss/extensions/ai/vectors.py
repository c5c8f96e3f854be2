"""Caches vectors by text, so that no text is embedded twice."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Sequence

import numpy as np

from shiftboss.extensions.ai.cache import Cache
from shiftboss.extensions.ai.protocol import Embeddings, Usage, Vectors
from shiftboss.model.codec import current

KIND = "embedding_generation"
Embed = Callable[[Sequence[str]], Awaitable[Embeddings]]


class VectorCache:
    """Embeds texts with the providers of one route, except for those whose vectors are cached."""

    def __init__(self, cache: Cache, embed: Embed, route: str) -> None:
        self._cache = cache
        self._embed = embed
        self._route = route

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        keys = [self._key(text) for text in texts]
        found = await self._cache.get_many(list(dict.fromkeys(keys)), KIND)
        new = dict.fromkeys(key for key in keys if key not in found)
        by_key = dict(zip(keys, texts, strict=True))
        made = await self._embed([by_key[key] for key in new]) if new else None
        if made is not None:
            await self._keep(list(new), made)
        return _whole(keys, found, list(new), made)

    async def _keep(self, keys: Sequence[str], made: Embeddings) -> None:
        sound = [bool(np.isfinite(row).all()) for row in made.vectors]
        rows = zip(keys, made.vectors, sound, strict=True)
        packed = {key: _pack(row, made) for key, row, good in rows if good}
        await self._cache.put_many(packed, KIND)

    def _key(self, text: str) -> str:
        digest = current().fingerprint(f"{self._route}\0{text}".encode())
        return f"processed:{KIND}:{digest}"


def _pack(row: Vectors, made: Embeddings) -> dict[str, str]:
    raw = base64.b64encode(np.ascontiguousarray(row, dtype="<f4").tobytes()).decode()
    return {"vector": raw, "provider": made.provider, "model": made.model}


def _unpack(kept: dict[str, str]) -> Vectors:
    return np.frombuffer(base64.b64decode(kept["vector"]), dtype="<f4").astype(np.float32)


def _whole(
    keys: Sequence[str], found: dict[str, dict[str, str]], new: Sequence[str], made: Embeddings | None
) -> Embeddings:
    vectors = {key: _unpack(kept) for key, kept in found.items()}
    if made is not None:
        vectors |= dict(zip(new, made.vectors, strict=True))
        source, usage = (made.provider, made.model), made.usage
    else:
        first = found[keys[0]]
        source, usage = (first["provider"], first["model"]), Usage()
    return Embeddings(np.stack([vectors[key] for key in keys]), *source, usage)
