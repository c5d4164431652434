"""The command line under test, with a home of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from coderig_kit import Cli


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """The command line in an empty directory, with an empty home."""
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    return Cli(home, work)
