"""How much of the runtime's planned contract is written and shown: per group, and what is missing.

    .venv/bin/python scripts/spec.py CHECKLIST [--all]

CHECKLIST is the list of planned rows: Markdown tables with an id and where a row comes from (S and S~ are
required) below headings `## NUMBER. TITLE`. A row counts when docs/behaviour has it and a test is marked with
it. --all also lists the missing rows that are not required.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import test_behaviour  # noqa: E402

GROUPS = [*range(1, 32), *range(35, 52), *range(55, 59)]
"""The groups that are the runtime's."""
_HEADING = re.compile(r"^## (\d+)\. (.*?)(?: \(`.*)?$")
_ROW = re.compile(r"^\| ([A-Z]{2}-\d+) \| (S~|S|U|A|T) \|")


def planned(text: str) -> dict[int, tuple[str, list[tuple[str, str]]]]:
    """Group number -> its title, and its rows as (id, where it comes from)."""
    groups: dict[int, tuple[str, list[tuple[str, str]]]] = {}
    rows: list[tuple[str, str]] = []
    for line in text.splitlines():
        if heading := _HEADING.match(line):
            rows = []
            groups[int(heading[1])] = (heading[2], rows)
        elif row := _ROW.match(line):
            rows.append((row[1], row[2]))
    return groups


def main() -> None:
    """Print the count of each group."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checklist", type=Path)
    parser.add_argument("--all", action="store_true")
    chosen = parser.parse_args()
    done = set(test_behaviour.rows()) & set(test_behaviour.marked())
    total = shown = 0
    for number, (title, rows) in planned(chosen.checklist.read_text("utf-8")).items():
        if number not in GROUPS:
            continue
        required = [row for row, source in rows if source in ("S", "S~")]
        missing = [row for row in required if row not in done]
        total += len(required)
        shown += len(required) - len(missing)
        left = [row for row, source in rows if source not in ("S", "S~") and row not in done]
        more = f"   others: {' '.join(left)}" if chosen.all and left else ""
        words = f"   missing: {' '.join(missing)}" if missing else ""
        count = f"{len(required) - len(missing):3} of {len(required):3}"
        sys.stdout.write(f"{number:3} {title[:48]:48} {count}{words}{more}\n")
    sys.stdout.write(f"    {'all':48} {shown:3} of {total:3}\n")


if __name__ == "__main__":
    main()
