"""Contract and tests agree: every row has a test, every mark a row, every marked test an assertion."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
_ROW = re.compile(r"^\| *([A-Z]{2,3}-\d+[a-z]?) *\|", re.MULTILINE)


def rows() -> dict[str, list[str]]:
    """Row id -> the files it stands in."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "docs/behaviour").glob("*.md")):
        if path.name in ("not-done.md", "README.md"):
            continue
        for name in _ROW.findall(path.read_text(encoding="utf-8")):
            found.setdefault(name, []).append(path.name)
    return found


def marked() -> dict[str, list[str]]:
    """Row id -> the tests that are marked with it."""
    found: dict[str, list[str]] = {}
    for path, test in marked_tests():
        for name in spec_ids(test):
            found.setdefault(name, []).append(f"{path.name}::{test.name}")
    return found


def marked_tests() -> list[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    return [
        (path, node)
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and spec_ids(node)
    ]


def spec_ids(test: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    return [
        argument.value
        for decorator in test.decorator_list
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.spec"
        for argument in decorator.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]


def asserts(test: ast.AST) -> bool:
    return any(
        isinstance(node, ast.Assert)
        or (isinstance(node, ast.Call) and re.search(r"raises|assert|check|expect", ast.unparse(node.func)))
        for node in ast.walk(test)
    )


def test_every_row_stands_once_and_has_a_test() -> None:
    tests = marked()
    twice = {name: files for name, files in rows().items() if len(files) > 1}
    untested = [f"{name} ({files[0]})" for name, files in rows().items() if name not in tests]
    assert not twice, f"rows that stand twice: {twice}"
    assert not untested, f"rows without a test: {untested}"


def test_every_mark_has_a_row() -> None:
    known = rows()
    unknown = {name: tests for name, tests in marked().items() if name not in known}
    assert not unknown, f"marks without a row: {unknown}"


def test_every_marked_test_asserts_something() -> None:
    empty = [f"{path.name}::{test.name}" for path, test in marked_tests() if not asserts(test)]
    assert not empty, f"marked tests that assert nothing: {empty}"
