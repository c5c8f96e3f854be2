"""The classes and functions of the Python API, with signatures and docstrings, read from their files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src"
Function = ast.FunctionDef | ast.AsyncFunctionDef


def text(paths: tuple[str, ...]) -> str:
    """Return the entries of these dotted paths."""
    return "\n".join(line for path in paths for line in _entry(path))


def _entry(path: str) -> Iterator[str]:
    module, _, name = path.rpartition(".")
    file = SOURCE / Path(*module.split("."))
    file = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
    body = ast.parse(file.read_text(encoding="utf-8")).body
    for n, node in enumerate(body):
        if isinstance(node, ast.ClassDef) and node.name == name:
            yield from [f"## {name}", "", f"`{path}`", "", *_doc(node), *_members(node)]
            return
        if isinstance(node, Function) and node.name == name and not _overload(node):
            yield from [f"## {name}", "", f"`{path}`", "", *_signature(node), *_doc(node)]
            return
        if name in _assigned(node):
            yield from [f"## {name}", "", f"`{path}`", "", *_after(body, n)]
            return
    raise SystemExit(f"{path} does not exist")


def _members(owner: ast.ClassDef) -> Iterator[str]:
    for n, node in enumerate(owner.body):
        if isinstance(node, Function) and not _overload(node):
            if ast.get_docstring(node) and (not node.name.startswith("_") or node.name == "__call__"):
                yield from [f"### {owner.name}.{node.name}", "", *_signature(node), *_doc(node)]
        elif isinstance(node, ast.AnnAssign) and not _assigned(node)[0].startswith("_"):
            about = " ".join(_after(owner.body, n)).strip()
            yield f"- `{ast.unparse(node)}`" + (f": {about}" if about else "")
            if n + 1 >= len(owner.body) or not isinstance(owner.body[n + 1], ast.AnnAssign | ast.Expr):
                yield ""
    yield ""


def _overload(node: Function) -> bool:
    return any(ast.unparse(one) == "overload" for one in node.decorator_list)


def _assigned(node: ast.stmt) -> list[str]:
    targets = (
        [node.target]
        if isinstance(node, ast.AnnAssign)
        else node.targets
        if isinstance(node, ast.Assign)
        else []
    )
    return [ast.unparse(one) for one in targets]


def _after(body: list[ast.stmt], n: int) -> list[str]:
    """Return the text that stands below an assignment."""
    following = body[n + 1] if n + 1 < len(body) else None
    if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
        return [" ".join(str(following.value.value).split()), ""]
    return []


def _signature(node: Function) -> list[str]:
    start = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    marks = [f"@{ast.unparse(one)}" for one in node.decorator_list]
    kept = [one for one in marks if one in ("@property", "@cached_property", "@classmethod", "@staticmethod")]
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    line = f"{start} {node.name}({ast.unparse(node.args)}){result}"
    return ["```text", *kept, line, "```", ""]  # not formatted as a program


def _doc(node: Function | ast.ClassDef) -> list[str]:
    """Return the docstring, with its examples as code."""
    about = ast.get_docstring(node) or ""
    return [re.sub(r"(?ms)^>>> .*?(?=\n\n|\Z)", r"```pycon\n\g<0>\n```", about), ""] if about else []


def api() -> str:
    """Return the reference of what programs import."""
    return text(
        (
            "shiftboss.app.app.App",
            "shiftboss.worker.options.Terms",
            "shiftboss.worker.batches.Batch",
            "shiftboss.app.task.Task",
            "shiftboss.app.handle.Handle",
            "shiftboss.model.task.State",
            "shiftboss.app.handle.Group",
            *(f"shiftboss.app.calls.{name}" for name in ("Call", "Calls", "chain", "group", "parents")),
            "shiftboss.app.sync.Sync",
            "shiftboss.db.sync.Background",
            "shiftboss.worker.context.Context",
            "shiftboss.extensions.ai.client.Client",
            "shiftboss.extensions.ai.ask.Ask",
            "shiftboss.extensions.ai.protocol.Answer",
            "shiftboss.db.sync.SyncDatabase",
        )
    )


def kit() -> str:
    """Return the reference of the test kit."""
    return text(("shiftboss.kit.run", "shiftboss.kit.Kit", "shiftboss.kit.fresh_database"))
