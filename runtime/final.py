"""Whether an answer without calls ends the run, and with what."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.errors import ModelBehaviorError, ModelError, ModelRefusalError
from runtime.items import Item, ItemKind
from runtime.state import ResponseRecord


def check_status(response: ResponseRecord) -> None:
    """Raise unless the answer arrived whole, or was cut off by the token limit: a run can live with that."""
    if response.status == "completed" or response.truncated:
        return
    if response.status == "incomplete":
        raise ModelBehaviorError(
            f"the model's answer is incomplete: {response.incomplete_reason or 'no reason given'}"
        )
    raise ModelError(f"the model's answer has the status {response.status!r}")


def final_output(items: Sequence[Item]) -> str:
    """The answer that the items of a response without calls hold; blank text is one.

    Raises ModelRefusalError if the model declined, whatever else it said.
    """
    messages = [item for item in items if item.kind == ItemKind.MESSAGE]
    for message in messages:
        if message.refusal is not None:
            raise ModelRefusalError(message.refusal or "the model declined without a reason")
    return "".join(message.text for message in messages)


def early_output(turn_items: Sequence[Item]) -> str:
    """What a run stopped after a turn with calls has to say: its last message, else its last output."""
    for kind in (ItemKind.MESSAGE, ItemKind.TOOL_OUTPUT):
        for item in reversed(turn_items):
            if item.kind == kind:
                return item.text if kind == ItemKind.MESSAGE else item.output
    return ""
