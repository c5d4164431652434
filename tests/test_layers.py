"""Holds the arrows of the design: which package, and which level of runtime, may import which."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ALLOWED = {
    "sandbox": set(),
    "runtime": set(),
    "codetools": {"sandbox", "runtime"},
    "coderig": {"sandbox", "runtime", "codetools"},
}
# What codetools may know of runtime: the seam, not the loop.
CODETOOLS_OF_RUNTIME = {"runtime.tools", "runtime.schema"}
HEAVY: dict[str, str | tuple[str, ...]] = {
    "docker": "sandbox/backends/docker",
    "paramiko": "sandbox/backends/ssh",
    "openai": "runtime/models/openai",
    "anthropic": "runtime/models/anthropic",
    "tree_sitter": "codetools/",
    "re2": ("codetools/", "sandbox/spill_search.py"),
    "typer": "coderig/",
    "rich": "coderig/",
}


def sources(package: str) -> list[Path]:
    demo = ROOT / "coderig" / "demo" / "project"  # the demo's patient is data
    return sorted(path for path in (ROOT / package).rglob("*.py") if demo not in path.parents)


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Module names that a file imports, in functions too, and whether only for type checking."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in typing_only) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or "", id(node) in typing_only


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_packages_import_only_what_the_arrows_allow(package: str) -> None:
    others = set(ALLOWED) - {package}
    for path in sources(package):
        for module, _ in imports(path):
            top = module.split(".")[0]
            if top in others:
                assert top in ALLOWED[package], f"{path.relative_to(ROOT)} imports {module}"


def test_codetools_knows_the_tool_seam_and_no_more_of_runtime() -> None:
    for path in sources("codetools"):
        for module, _ in imports(path):
            if module.split(".")[0] == "runtime":
                assert module in CODETOOLS_OF_RUNTIME, f"{path.relative_to(ROOT)} imports {module}"


@pytest.mark.parametrize("library", sorted(HEAVY))
def test_a_heavy_library_is_imported_only_where_it_is_used(library: str) -> None:
    for package in ALLOWED:
        for path in sources(package):
            name = path.relative_to(ROOT).as_posix()
            for module, typing_only in imports(path):
                if module.split(".")[0] == library and not typing_only:
                    assert name.startswith(HEAVY[library]), f"{name} imports {module}"


def test_the_seam_is_met_by_backends_only() -> None:
    for path in sources("sandbox"):
        if path.parent.name == "backends":
            for module, _ in imports(path):
                assert (
                    module in ("sandbox.errors", "sandbox.limits", "sandbox.values")
                    or not module.startswith("sandbox.")
                    or (module.startswith("sandbox.backends."))
                ), f"{path.name} imports {module}"


def test_broad_excepts_stand_only_where_a_thread_or_task_would_die_silently() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for package in ALLOWED
        for path in sources(package)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in ("Exception", "BaseException"))
        and not any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
    ]
    assert len(found) <= 6, found
