"""The gRPC protocol, from the comments in its .proto file."""

from __future__ import annotations

import re
from pathlib import Path

from manual.markdown import cell, code, table

PROTO = Path(__file__).resolve().parents[2] / "proto" / "shiftboss" / "v1" / "fleet.proto"
RPC = re.compile(r"rpc (\w+)\((stream )?(\w+)\) returns \((stream )?(\w+)\)")
BLOCK = re.compile(r"(message|enum) (\w+) \{")
FIELD = re.compile(r"((?:repeated |optional )?(?:map<[^>]+>|[\w.]+)) (\w+) = (\d+)")
VALUE = re.compile(r"(\w+) = (\d+);")


def text() -> str:
    calls, blocks = _read(PROTO.read_text(encoding="utf-8").split('syntax = "proto3"', 1)[1])
    lines = ["## Calls", ""]
    for name, asked, answered, about in calls:
        lines += [f"### {name}", "", about, "", f"{asked} → {answered}", ""]
    lines += ["## Messages", ""]
    for name, about, fields in blocks:
        lines += [f"### {name}", "", *([about, ""] if about else [])]
        lines += table(("field", "type", "meaning"), fields) if fields else ["No fields.", ""]
    return "\n".join(lines)


def _link(name: str, stream: str | None) -> str:
    return ("a stream of " if stream else "") + f"[{name}](#{name.lower()})"


def _read(
    proto: str,
) -> tuple[list[tuple[str, str, str, str]], list[tuple[str, str, list[tuple[str, str, str]]]]]:
    calls, blocks = [], []
    comment: list[str] = []
    fields: list[tuple[str, str, str]] = []
    for line in map(str.strip, proto.splitlines()):
        if line.startswith("//"):
            comment.append(line[2:].strip())
            continue
        about, comment = " ".join(comment), []
        if found := RPC.match(line):
            calls.append((found[1], _link(found[3], found[2]), _link(found[5], found[4]), about))
        elif found := BLOCK.match(line):
            fields = []
            blocks.append((found[2], about, fields))
        elif (found := FIELD.match(line)) and found[1] != "option":
            fields.append((code(found[2]), code(found[1]), cell(about)))
        elif found := VALUE.match(line):
            fields.append((code(found[1]), found[2], cell(about)))
        elif line.startswith("oneof"):
            comment = [f"({line.split()[1]}: one of the following.)", about]
    return calls, blocks
