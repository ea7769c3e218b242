"""The model does no I/O and keeps no global state."""

import ast
from pathlib import Path

import pytest

import model

ROOT = Path(model.__path__[0])
MODULES = sorted(ROOT.rglob("*.py"))
# What reaches beyond memory: files, the environment, clocks, other machines and processes.
FORBIDDEN = {
    "os",
    "pathlib",
    "shutil",
    "socket",
    "subprocess",
    "sys",
    "tempfile",
    "time",
    "datetime",
}


def imported(tree: ast.Module) -> set[str]:
    names = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_reaches_nothing_beyond_memory(path: Path):
    tree = ast.parse(path.read_text())
    assert not imported(tree) & FORBIDDEN
    calls = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert "open" not in calls


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_keeps_no_cache(path: Path):
    tree = ast.parse(path.read_text())
    assert "functools" not in imported(tree)
    changed = [node for node in ast.walk(tree) if isinstance(node, ast.Global)]
    kept = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and isinstance(node.value, ast.List | ast.Dict)
        and not (node.value.elts if isinstance(node.value, ast.List) else node.value.keys)
    ]
    assert not changed
    assert not kept
