"""The examples are short, run as they stand, and print what they promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from coderig_kit import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PROMISED = {
    "agent.py": ["It printed hello.", "2 model calls"],
    "approvals.py": ["may it run? touch made", "Done. ['made']"],
    "async_commands.py": ["['job 0', 'job 1', 'job 2']", "stderr warning", "ended; files: []"],
    "events.py": ["ToolStarted", "ToolProgress", "RunCompleted"],
    "files.py": ["one\ntwo\n", "['today.txt']", "tomorrow.txt"],
    "named_shell.py": ["test in src - exit code 0", "a new shell was opened"],
    "one_command.py": ["hello from", "exit code 3", "timed out: True - it printed before"],
    "own_tool.py": ["It is 5."],
}


@pytest.mark.spec("CLI-112")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs_and_prints_what_it_promises(path: Path, tmp_path: Path) -> None:
    argv = [sys.executable, "-W", "error", str(path)]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    for words in PROMISED[path.name]:
        assert words in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spec("CLI-112")
def test_examples_are_under_40_lines_and_use_the_public_names_only() -> None:
    for path in EXAMPLES:
        text = path.read_text("utf-8")
        assert len(text.splitlines()) < 40, path.name
        for package in ("sandbox", "codetools", "runtime"):
            assert f"from {package}" not in text, path.name
