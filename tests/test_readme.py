"""The example on the README's first screen works as it stands."""

from __future__ import annotations

import re
import shutil
from pathlib import Path


def test_the_readmes_example_runs(root: Path) -> None:
    example = re.search(r"```python\n(.*?)```", (root / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    try:
        exec(compile(example[1], "README.md", "exec"), {})
    finally:
        shutil.rmtree("/tmp/coderig-example", ignore_errors=True)
