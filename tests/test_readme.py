"""The README's examples work as they stand."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_of_the_readme_runs(example: str) -> None:
    try:
        exec(compile(example, "README.md", "exec"), {})
    finally:
        shutil.rmtree("/tmp/coderig-example", ignore_errors=True)


def test_the_readme_has_examples() -> None:
    assert len(EXAMPLES) >= 2
