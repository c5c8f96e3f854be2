"""Sentence vectors of all-MiniLM-L6-v2 in numpy: what a sentence means, where a static model knows its words.

The weights are those of sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0), rounded to integers; see
bench/journal_model.py, which makes the file.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from shiftboss.extensions.ai.protocol import Vectors

LAYERS, HEADS, WIDTH = 6, 12, 384
LONGEST = 128  # tokens; what follows is left out
BATCH = 16


class _Model:
    def __init__(self) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # workers fork; the tokenizer warns about it
        with files(__package__).joinpath("model", "minilm.npz").open("rb") as source:
            stored = dict(np.load(source))
        self.tokenizer = _tokenizer(bytes(stored.pop("vocabulary")).decode().split("\n"))
        scales = {name: stored.pop(name) for name in list(stored) if name.endswith(".scale")}
        words = "embeddings.word_embeddings"
        self.rows = stored.pop(f"{words}.weight"), scales.pop(f"{words}.scale")
        self.weights = {name: values.astype(np.float32) for name, values in stored.items()}
        for name, scale in scales.items():
            weight = name.replace(".scale", ".weight")
            self.weights[weight] = np.ascontiguousarray((self.weights[weight] * scale).T.astype(np.float32))

    def embed(self, texts: Sequence[str]) -> Vectors:
        encoded = self.tokenizer.encode_batch(list(texts))
        ids = np.asarray([each.ids for each in encoded])
        mask = np.asarray([each.attention_mask for each in encoded], dtype=np.float32)
        hidden = self._hidden(ids, mask)
        mean = (hidden * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        return np.asarray(mean / np.linalg.norm(mean, axis=1, keepdims=True), dtype=np.float32)

    def _hidden(self, ids: Any, mask: Vectors) -> Vectors:
        words, scales = self.rows
        x = words[ids] * scales[ids].astype(np.float32)
        x = x + self.weights["embeddings.position_embeddings.weight"].T[: ids.shape[1]]
        x = self._norm(x + self.weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        unseen = ((1 - mask) * -1e4)[:, None, None, :]
        for layer in range(LAYERS):
            x = self._layer(x, unseen, f"encoder.layer.{layer}")
        return x

    def _layer(self, x: Vectors, unseen: Vectors, at: str) -> Vectors:
        seen = self._linear(
            self._attention(x, unseen, f"{at}.attention.self"), f"{at}.attention.output.dense"
        )
        x = self._norm(x + seen, f"{at}.attention.output.LayerNorm")
        inner = _gelu(self._linear(x, f"{at}.intermediate.dense"))
        return self._norm(x + self._linear(inner, f"{at}.output.dense"), f"{at}.output.LayerNorm")

    def _attention(self, x: Vectors, unseen: Vectors, at: str) -> Vectors:
        count, length, _ = x.shape

        def heads(part: str) -> Vectors:
            made = self._linear(x, f"{at}.{part}")
            return made.reshape(count, length, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)

        query, key, value = heads("query"), heads("key"), heads("value")
        scores = query @ key.transpose(0, 1, 3, 2) / np.float32((WIDTH / HEADS) ** 0.5) + unseen
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = powers / powers.sum(axis=-1, keepdims=True) @ value
        return np.asarray(mixed.transpose(0, 2, 1, 3).reshape(count, length, WIDTH), dtype=np.float32)

    def _linear(self, x: Vectors, at: str) -> Vectors:
        return np.asarray(x @ self.weights[f"{at}.weight"] + self.weights[f"{at}.bias"], dtype=np.float32)

    def _norm(self, x: Vectors, at: str) -> Vectors:
        centred = x - x.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-12)
        return np.asarray(
            centred / spread * self.weights[f"{at}.weight"] + self.weights[f"{at}.bias"], dtype=np.float32
        )


def _gelu(x: Vectors) -> Vectors:
    """The tanh form, which stays within a thousandth of the exact one."""
    return np.asarray(0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x))), dtype=np.float32)


def _tokenizer(vocabulary: Sequence[str]) -> Any:
    from tokenizers import BertWordPieceTokenizer

    made = BertWordPieceTokenizer(
        vocab={word: number for number, word in enumerate(vocabulary)}, lowercase=True
    )
    made.enable_truncation(LONGEST)
    made.enable_padding()
    return made


@cache
def _model() -> _Model:
    return _Model()


@cache
def _threads() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


_one_at_a_time = threading.Lock()


def embed(texts: Sequence[str]) -> Vectors:
    """Unit vectors of 384 dimensions, one row per text.

    In one thread: the matrices are small, and BLAS threads that wait for each other on a busy machine take
    many times as long.
    """
    with _one_at_a_time, _threads().limit(limits=1, user_api="blas"):
        parts = [_model().embed(texts[start : start + BATCH]) for start in range(0, len(texts), BATCH)]
    return np.concatenate(parts) if parts else np.zeros((0, WIDTH), dtype=np.float32)
