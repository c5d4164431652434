"""What has changed in a dev container's configuration since the container was made. Pure."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any

from coderig.devcontainer_config import DevConfig, options_record
from coderig.devcontainer_record import Record

# These say how a container is used, not what it is.
_NOT_COMPARED = ("image", "name", "keep", "replace", "host", "workdir")


def changes(config: DevConfig, record: Record, dockerfile: str) -> list[str]:
    """What the container would need to be made anew for, one line each: `option: was …, now …`.

    dockerfile  the text of the Dockerfile as it is now; "" without a build
    """
    now = json.loads(json.dumps(options_record(config.options)))
    rows = [
        *_image(config, record, dockerfile),
        *(
            row
            for option in sorted(now)
            if option not in _NOT_COMPARED
            for row in _option(option, record.options.get(option), now[option])
        ),
    ]
    if config.folder != record.folder:
        rows.append(f"workspace folder: was {record.folder}, now {config.folder}")
    for stage in ("onCreate", "updateContent", "postCreate"):
        before, after = record.creation.get(stage, []), config.creation.get(stage, [])
        if before != after:
            rows.append(
                f"{stage}Command: was {'; '.join(before) or 'none'}, now {'; '.join(after) or 'none'}"
            )
    return rows


def text_changes(record: Record, text: str) -> str:
    """The file then and now, as a unified diff; "" if it is the same."""
    lines = difflib.unified_diff(
        record.text.splitlines(), text.splitlines(), f"{record.source} (as made)", record.source, lineterm=""
    )
    return "\n".join(lines)


def _image(config: DevConfig, record: Record, dockerfile: str) -> list[str]:
    if config.image is not None:
        return [] if config.image == record.image else [f"image: was {record.image}, now {config.image}"]
    if not record.dockerfile:
        return [f"image: was {record.image}, now built from {config.build and config.build.dockerfile}"]
    if record.dockerfile != dockerfile:
        return ["Dockerfile: its text or the build's settings have changed"]
    return []


def _option(option: str, before: Any, after: Any) -> list[str]:
    if before == after:
        return []
    if option == "env":
        return _env(before or {}, after)
    if isinstance(after, list):
        gone, come = (
            [each for each in before or [] if each not in after],
            [each for each in after if each not in (before or [])],
        )
        return [
            *(f"{option}: no longer {_words(each)}" for each in gone),
            *(f"{option}: new {_words(each)}" for each in come),
        ] or [f"{option}: in another order"]
    return [f"{option}: was {_words(before)}, now {_words(after)}"]


def _env(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Values may be secrets: only names are shown."""
    rows = [f"env: no longer {name}" for name in sorted(before.keys() - after.keys())]
    rows += [f"env: new {name}" for name in sorted(after.keys() - before.keys())]
    rows += [
        f"env: another value of {name}"
        for name in sorted(before.keys() & after.keys())
        if before[name] != after[name]
    ]
    return rows


def _words(value: Any) -> str:
    if value is None:
        return "unset"
    if isinstance(value, dict) and "target" in value:
        how = " (read-only)" if value.get("read_only") else ""
        return f"{value.get('type', 'bind')} {value['source']} at {value['target']}{how}"
    return str(value)
