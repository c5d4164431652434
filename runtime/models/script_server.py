"""Serves a script over both wires, for trials of any client without a model."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.models.scripted import Scripted
from runtime.models.server import WireServer
from runtime.models.server_wire import Call, Reply
from runtime.schema import dump
from runtime.usage import Usage


class ScriptServer(WireServer):
    """The offline server with the answers of a script (see `read_script`).

    The place in the script is the number of answers that a request's conversation holds, so each
    conversation begins at the script's start. Raises OSError if it cannot listen at host and port; 0 is a
    free port.
    """

    def __init__(self, answers: Sequence[Scripted], *, host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__(map(reply_of, answers), follow=True, host=host, port=port)


def reply_of(answer: Scripted) -> Reply:
    """An answer of a script as the server gives it."""
    if answer.error is not None:
        wait = answer.error.retry_after_s
        headers = {} if wait is None else {"retry-after": f"{wait:g}"}
        return Reply(status=answer.error.status or 500, message=answer.error.message, headers=headers)
    counted = Usage(
        input_tokens=answer.input_tokens,
        output_tokens=answer.output_tokens,
        cached_input_tokens=answer.cached_input_tokens,
        cache_write_tokens=answer.cache_write_tokens,
        reasoning_tokens=answer.reasoning_tokens,
    )
    text, stop = answer.text, "end"
    if answer.status != "completed":
        stop = "max_tokens" if answer.incomplete_reason == "max_output_tokens" else "content_filter"
    raws = [item if isinstance(item, str) else dump(item) for item in answer.items]
    refusals = [item.refusal for item in answer.to_items(0) if item.refusal is not None]
    if refusals:
        text, stop, raws = refusals[0], "refusal", []
    return Reply(
        text=text,
        calls=[Call(call.name, call.arguments, id=call.id) for call in answer.calls],
        items=raws,
        stop=stop,
        usage=counted if counted.total_tokens else None,
    )
