"""The conversation as an append-only list: views that cost nothing, and the pairing of calls and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import overload

from runtime.items import Item, Source, ToolCall, function_output

INTERRUPTED_TEXT = (
    "The run was interrupted while this call was running. Its outcome is unknown: do not assume that it "
    "succeeded or that it had no effect; check before you repeat it."
)


class View(Sequence[Item]):
    """The first `length` items of a list that only ever grows: a snapshot without a copy."""

    __slots__ = ("_items", "_length")

    def __init__(self, items: list[Item], length: int | None = None) -> None:
        self._items = items
        self._length = len(items) if length is None else length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        if isinstance(index, slice):
            return [self._items[place] for place in range(*index.indices(self._length))]
        return self._items[range(self._length)[index]]


@dataclass(slots=True)
class Repaired:
    """A conversation in which every call has exactly one output, but for the calls of its last answer.

    items    without the outputs of the open calls
    open     calls of the last answer, if one of them has no output; in the order they were made
    outputs  by call id, what the open calls have so far
    """

    items: list[Item] = field(default_factory=list)
    open: list[ToolCall] = field(default_factory=list)
    outputs: dict[str, Item] = field(default_factory=dict)

    def add(self, item: Item) -> None:
        """Take the next item."""
        if item.is_output:
            if any(call.call_id == item.call_id for call in self.open):
                self.outputs.setdefault(item.call_id, item)
            return
        if self.open and (self.outputs or item.source == Source.USER):
            self.close()
        if item.is_call:
            if any(call.call_id == item.call_id for call in self.open):
                return
            self.open.append(item.call)
        self.items.append(item)

    def close(self) -> None:
        """Put the outputs of the open calls behind them, and a made one where none is known."""
        self.items.extend(self.outputs.get(call.call_id) or interrupted(call.call_id) for call in self.open)
        self.open.clear()
        self.outputs.clear()


def repair(items: Iterable[Item]) -> Repaired:
    """The conversation as strict services take it. Repairing what is repaired changes nothing.

    A call in the middle that has no output gets one that says so, outputs stand in the order of their calls,
    orphans go, and of two outputs for a call the first stays.
    """
    result = Repaired()
    for item in items:
        result.add(item)
    if all(call.call_id in result.outputs for call in result.open):
        result.close()
    return result


def interrupted(call_id: str) -> Item:
    """The output of a call that had begun when the run was stopped from outside."""
    return function_output(call_id, INTERRUPTED_TEXT, is_error=True)
