"""The guard against a model that makes the same call again and again, though it gives the same output."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from runtime.errors import RepeatedCallError
from runtime.items import Item
from runtime.live import LiveRun
from runtime.schema import canonical, load_object


def check_repeats(run: LiveRun, turn_items: Sequence[Item]) -> None:
    """Count the turn's calls, and raise RepeatedCallError for one that was made too often.

    Equal are calls of one tool, whose arguments mean the same, with the same output.
    """
    limit = run.options.exec.max_repeats
    if limit <= 0:
        return
    outputs = {item.call_id: item.output for item in turn_items if item.is_output}
    seen = run.state.repeats
    for item in turn_items:
        if item.is_call and not item.is_handoff:
            call = item.call
            try:
                arguments = canonical(load_object(call.arguments))
            except ValueError:
                arguments = call.arguments
            text = canonical([call.name, arguments, outputs.get(call.call_id, "")])
            mark = hashlib.sha256(text.encode()).hexdigest()
            seen[mark] = seen.get(mark, 0) + 1
            if seen[mark] > limit:
                raise RepeatedCallError(
                    f"{call.name} gave the same output for the same call {seen[mark]} times"
                )
