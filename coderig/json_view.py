"""A run as JSON lines, for programs. Nothing else is written to the stream, and it is plain ASCII."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict

from coderig.store import RunMeta
from coderig.terminal_io import Stream
from coderig.view import Ending
from runtime import (
    ApprovalRequested,
    Item,
    ItemCreated,
    ModelStreamed,
    PendingApproval,
    RunCompleted,
    RunEvent,
    RunState,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnStarted,
)
from runtime.schema import JSON


class JsonView:
    """One object a line, each with a `type`; the last has the type "end" and the exit code."""

    def __init__(self, out: Stream, mask: Callable[[JSON], JSON]) -> None:
        self._out = out
        self._mask = mask

    def begin(self, meta: RunMeta, state: RunState | None) -> None:
        """See View."""
        self._line(
            "run",
            run=meta.id,
            resumed=state is not None,
            task=meta.task,
            place=meta.place,
            model=meta.model,
        )

    def event(self, event: RunEvent) -> None:
        """See View."""
        match event:
            case TurnStarted():
                self._line("turn", turn=event.turn)
            case ItemCreated():
                self._line("item", source=event.item.source, item=event.item.wire)
            case ModelStreamed():
                self._line("model", event=json.loads(event.raw))
            case ToolStarted():
                self._line("tool_started", **_call(event), arguments=event.arguments)
            case ToolProgress():
                self._line("tool_output", **_call(event), text=event.text)
            case ToolFinished():
                self._line("tool_finished", **_call(event), **_outcome(event.item))
            case ApprovalRequested():
                self._line("approval_requested", approvals=_approvals(event.approvals))
            case RunCompleted():
                pass  # `end` tells

    def end(self, ending: Ending) -> None:
        """See View."""
        result = ending.result
        error = {"code": ending.code, "message": ending.message} if ending.message else None
        self._line(
            "end",
            status=ending.status,
            exit_code=ending.exit_code,
            final_output=result.final_output if result else None,
            truncated=result.truncated if result else False,
            turns=result.turns if result else 0,
            usage=asdict(result.usage) if result else None,
            approvals=_approvals(result.interruptions or result.state.interruptions)
            if result and ending.status == "paused"
            else [],
            error=error,
            resume=ending.resume,
        )

    def _line(self, kind: str, **values: JSON) -> None:
        record = self._mask({"type": kind, **values})
        self._out.write_bytes(json.dumps(record, default=str).encode("ascii") + b"\n")


def _call(event: ToolStarted | ToolProgress | ToolFinished) -> dict[str, JSON]:
    return {"call_id": event.call_id, "name": event.name}


def _outcome(item: Item) -> dict[str, JSON]:
    display = item.display
    return {
        "is_error": item.is_error,
        "output": item.output,
        "title": display.title if display else "",
        "summary": display.summary if display else "",
        "details": display.details if display else None,
    }


def _approvals(calls: Sequence[PendingApproval]) -> list[JSON]:
    return [asdict(call) for call in calls]
