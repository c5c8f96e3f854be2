"""Generate `shiftboss/extensions/grpc/proto` from `proto/`; `--check` compares instead of writing."""

from __future__ import annotations

import re
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "src" / "shiftboss" / "extensions" / "grpc" / "proto"
SOURCE = ROOT / "proto"
PROTOS = ("shiftboss/v1/fleet.proto", "keda/externalscaler.proto")
# Generated imports follow the folder of their .proto file; ours are in one package.
HERE = "from shiftboss.extensions.grpc.proto import"
MOVE = re.compile(r"^from (shiftboss\.v1|keda) import", re.MULTILINE)


def generate() -> dict[str, str]:
    """File name → text."""
    with tempfile.TemporaryDirectory() as folder:
        outs = [f"--{kind}_out={folder}" for kind in ("python", "pyi", "grpc_python")]
        known = files("grpc_tools") / "_proto"
        if protoc.main(["protoc", f"-I{SOURCE}", f"-I{known}", *outs, *PROTOS]):
            raise SystemExit("protoc failed")
        made = sorted(Path(folder).rglob("*_pb2*"))
        return {path.name: MOVE.sub(HERE, path.read_text()) for path in made}


def main(check: bool) -> int:
    made = generate()
    made["__init__.py"] = '"""Generated from proto/ by script/proto; not edited by hand."""\n'
    stale = [
        name
        for name, text in made.items()
        if not (TARGET / name).exists() or (TARGET / name).read_text() != text
    ]
    if check:
        print("\n".join(f"not current: {name} (run script/proto)" for name in stale), end="")
        return bool(stale)
    for name in stale:
        (TARGET / name).write_text(made[name])
    return 0


if __name__ == "__main__":
    raise SystemExit(main("--check" in sys.argv[1:]))
