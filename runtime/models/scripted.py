"""A model that answers from a script: for demos, tests and offline trials.

A script file holds JSON lines, one answer each:

    {"text": "Let me look.", "calls": [{"name": "read_file", "arguments": {"path": "a.py"}}]}
    {"text": "Done."}

`arguments` is an object, or text that is sent as it is; `id` names a call, else the script's place does.
"status" and "incomplete_reason" make an answer that was cut off, "items" gives raw items of the wire format
(as text: kept byte for byte), "input_tokens", "output_tokens" and others what it cost, "error" a failure of
the provider: {"message": "...", "status": 429}. Blank lines and lines that begin with # are skipped. What
`Recorded` writes is a script too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from runtime.errors import ModelError, UserError
from runtime.items import Item, ItemKind, Source, assistant_message, from_wire, function_call
from runtime.models.model import Emit, ModelRequest, ModelResponse
from runtime.models.narration import narrate
from runtime.schema import dump
from runtime.usage import Usage


class ScriptedCall(BaseModel):
    """One call of an answer. `arguments` as text is sent as it is, valid or not."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    arguments: dict[str, JsonValue] | str = Field(default_factory=dict)
    id: str = ""


class ScriptedFailure(BaseModel):
    """A failure of the provider. `status` is the HTTP status, `retry_after_s` what it asks to wait."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    message: str
    status: int | None = None
    retry_after_s: float | None = None


class Scripted(BaseModel):
    """One answer of a script: text, then calls, then raw items (as text: kept byte for byte); or a failure.

    `request` and `model` are notes that a recording makes; they are not looked at.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str | None = None
    calls: tuple[ScriptedCall, ...] = ()
    items: tuple[dict[str, JsonValue] | str, ...] = ()
    status: str = "completed"
    incomplete_reason: str = ""
    error: ScriptedFailure | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    response_id: str = ""
    model: str = ""
    request: dict[str, JsonValue] | None = None

    def to_items(self, place: int) -> tuple[Item, ...]:
        """The answer's items. `place` makes the ids of calls that have none."""
        items = [] if self.text is None else [assistant_message(self.text)]
        for number, call in enumerate(self.calls):
            arguments = call.arguments if isinstance(call.arguments, str) else dump(call.arguments)
            items.append(function_call(call.id or f"call_{place}_{number}", call.name, arguments))
        items.extend(from_wire(item if isinstance(item, str) else dump(item)) for item in self.items)
        return tuple(items)

    def to_response(self, place: int) -> ModelResponse:
        """The answer. Raises ModelError if it is a failure."""
        if self.error is not None:
            failure = self.error
            raise ModelError(failure.message, status=failure.status, retry_after_s=failure.retry_after_s)
        return ModelResponse(
            items=self.to_items(place),
            usage=Usage(
                requests=1,
                input_tokens=self.input_tokens,
                output_tokens=self.output_tokens,
                cached_input_tokens=self.cached_input_tokens,
                cache_write_tokens=self.cache_write_tokens,
                reasoning_tokens=self.reasoning_tokens,
            ),
            response_id=self.response_id or f"resp_{place}",
            status=self.status,
            incomplete_reason=self.incomplete_reason,
        )


@dataclass(slots=True)
class _Reading:
    """How far a conversation has been read, so that a longer one is not read again from the start."""

    last: Item | None = None
    length: int = 0
    answers: int = 0
    open: tuple[str, ...] = ()
    by_model: bool = False


class ScriptedModel:
    """Answers from a list of answers, in order.

    It is as strict as the real services: it refuses a conversation in which a call has no output, or an
    output no call. With `follow` the place in the script is the number of answers that the conversation
    already holds, so that a run resumed in another process goes on where it stopped; without, each request
    takes the next answer. With `stream` it tells its answers event by event. `requests` keeps what was asked.
    """

    def __init__(
        self,
        answers: Iterable[Scripted | str],
        *,
        name: str = "script",
        follow: bool = False,
        stream: bool = False,
    ) -> None:
        self._answers = [Scripted(text=answer) if isinstance(answer, str) else answer for answer in answers]
        self._name = name
        self._follow = follow
        self._stream = stream
        self._reading = _Reading()
        self.requests: list[ModelRequest] = []

    @classmethod
    def from_file(cls, path: str | Path) -> ScriptedModel:
        """Read a script; it follows the conversation. Raises UserError that names a line that is wrong."""
        return cls(read_script(path), name=f"script:{path}", follow=True)

    @property
    def name(self) -> str:
        """What people call it."""
        return self._name

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """The next answer of the script. Raises ModelError where the script says so, and at its end."""
        place = len(self.requests)
        self.requests.append(request)
        answers = self._read(request.items)
        if self._follow:
            place = answers
        if place >= len(self._answers):
            raise ModelError(f"the script {self._name} has only {len(self._answers)} answers")
        response = self._answers[place].to_response(place)
        if self._stream and request.settings.stream:
            for event in narrate(response, self._name):
                emit(event)
        return response

    def _read(self, items: Sequence[Item]) -> int:
        reading = self._reading
        if not (0 < reading.length <= len(items) and items[reading.length - 1] is reading.last):
            reading = _Reading()
        for place in range(reading.length, len(items)):
            _read_item(items[place], place, reading)
        if reading.open:
            raise ModelError(f"no output for the call {reading.open[0]!r}", status=400)
        reading.length = len(items)
        reading.last = items[-1] if items else None
        self._reading = reading
        return reading.answers


def _read_item(item: Item, place: int, reading: _Reading) -> None:
    if item.kind == ItemKind.TOOL_OUTPUT:
        if item.call_id not in reading.open:
            raise ModelError(f"item {place} is an output for no open call: {item.call_id!r}", status=400)
        reading.open = tuple(call for call in reading.open if call != item.call_id)
    elif reading.open and (item.source != Source.MODEL or not reading.by_model):
        raise ModelError(f"no output for the call {reading.open[0]!r} before item {place}", status=400)
    elif item.kind == ItemKind.TOOL_CALL:
        reading.open = (*reading.open, item.call_id)
    by_model = item.source == Source.MODEL
    if by_model and not reading.by_model:
        reading.answers += 1
    reading.by_model = by_model


def read_script(path: str | Path) -> list[Scripted]:
    """The answers of a script's file. Raises UserError that names a line that is wrong."""
    try:
        # Only a line feed ends a line: JSON may hold the others that `splitlines` knows.
        lines = Path(path).read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the script {path}: {error}") from error
    return [
        _answer(line, f"{path}:{number}")
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]


def _answer(line: str, where: str) -> Scripted:
    try:
        return Scripted.model_validate(json.loads(line))
    except json.JSONDecodeError as error:
        raise UserError(f"{where}: not valid JSON: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UserError(f"{where}: {place}: {first['msg']}") from None
