"""Where a Python file can be changed, one small change each, found in its syntax tree.

Left out: annotations, docstrings, assertions and calls of the logger.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from bench.mutants.sites import Site

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
SUMS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
}
CALLS = {"min": "max", "max": "min"}
Change = tuple[str, int, int, str]


class Finder(ast.NodeVisitor):
    """Collects changes as (kind, begin, end, new text), with the function that they are in."""

    def __init__(self, text: str) -> None:
        self.text = text
        starts = [0]
        for line in text.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        self._starts = starts
        self._function = "module"
        self.found: list[tuple[str, Change]] = []

    def at(self, line: int, column: int) -> int:
        row = self.text[self._starts[line - 1] : self._starts[line]]
        return self._starts[line - 1] + len(row.encode()[:column].decode())

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def note(self, kind: str, begin: int, end: int, new: str) -> None:
        self.found.append((self._function, (kind, begin, end, new)))

    def between(self, kind: str, left: ast.expr, right: ast.expr, words: tuple[str, str]) -> None:
        begin, end = self.span(left)[1], self.span(right)[0]
        place = self.text.find(words[0], begin, end)
        if place >= 0:
            self.note(kind, place, place + len(words[0]), words[1])

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        before, self._function = self._function, node.name
        for default in [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]:
            self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self._function = before

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assert(self, node: ast.Assert) -> None:
        return

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if not isinstance(call, ast.Call) or logs(call):
            return
        self.note("statement", *self.span(node), "pass")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if self._function not in ("module", "__init__") and isinstance(node.targets[0], ast.Attribute):
            self.note("statement", *self.span(node), "pass")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            self.note("return", *self.span(node.value), "None")
        self.generic_visit(node)

    def visit_If(self, node: ast.If | ast.While) -> None:
        if not isinstance(node.test, ast.Name) or node.test.id != "TYPE_CHECKING":
            begin, end = self.span(node.test)
            self.note("condition", begin, end, f"not ({self.text[begin:end]})")
            self.generic_visit(node)

    visit_While = visit_If

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self.between("condition", left, right, words)
            self.note("condition", self.span(left)[1], self.span(right)[1], "")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for op, left, right in zip(node.ops, [node.left, *node.comparators], node.comparators, strict=False):
            if type(op) in COMPARISONS:
                self.between("comparison", left, right, COMPARISONS[type(op)])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in SUMS:
            self.between("arithmetic", node.left, node.right, SUMS[type(node.op)])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self.note("condition", self.span(node)[0], self.span(node.operand)[0], "")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in CALLS:
            self.note("arithmetic", *self.span(node.func), CALLS[node.func.id])
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.note("constant", *self.span(node), str(not node.value))
        elif isinstance(node.value, int | float):
            self.note("constant", *self.span(node), str(node.value + 1))


def logs(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", None) == "log"


def sites(target: str, file: str, text: str) -> Iterator[Site]:
    finder = Finder(text)
    finder.visit(ast.parse(text))
    for function, (kind, begin, end, new) in finder.found:
        line = text.count("\n", 0, begin) + 1
        yield Site(target, file, function, kind, line, begin, end, text[begin:end], new)
