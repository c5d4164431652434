"""Keeps what a model was asked and what it answered, in a file that can be played again without the model."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from runtime.errors import ModelError, UserError
from runtime.models.decorator import Decorator
from runtime.models.model import Emit, Model, ModelRequest, ModelResponse
from runtime.schema import JSON

_SECRET = re.compile(
    r"(?<![A-Za-z0-9_-])"
    r"(?:(?:[sr]k-|gh[pousr]_|github_pat_|xox[abpr]-|hf_)[A-Za-z0-9_-]{16,}|AKIA[0-9A-Z]{16}|AIza[\w-]{35})"
    r"|(?<=Bearer )[^\s\"\\]+",
    re.ASCII,
)
MASK = "[removed]"


def without_secrets(text: str) -> str:
    """A text without what looks like a key: the known shapes of keys, and bearer tokens."""
    return _SECRET.sub(MASK, text)


class Recorded(Decorator):
    """A model whose requests and answers are written to a file, one line of JSON each.

    The file is a script: `ScriptedModel.from_file`, `script:FILE` and `coderig serve-script` play it again.
    Failures are kept too. Extra headers and query parameters are never written, and `mask` goes over
    everything else (default: what looks like a key). The file is made new, readable by its owner alone, and
    complete up to the last answer at any time. Raises UserError if it cannot be written.

    Put it inside a retry to keep each attempt, outside to keep what came of them.
    """

    def __init__(
        self, model: Model, path: str | Path, *, mask: Callable[[str], str] = without_secrets
    ) -> None:
        super().__init__(model)
        self._model = model
        self._path = Path(path)
        self._mask = mask
        try:
            os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise UserError(f"cannot record to {self._path}: {error}") from error

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Answer, and write it down."""
        try:
            response = await self._model.respond(request, emit)
        except ModelError as error:
            failure: dict[str, JSON] = {"message": str(error), "status": error.status}
            self._write(request, {"error": {**failure, "retry_after_s": error.retry_after_s}})
            raise
        self._write(request, _answer(response))
        return response

    def _write(self, request: ModelRequest, answer: Mapping[str, JSON]) -> None:
        masked = _masked({**answer, "model": self._model.name, "request": _request(request)}, self._mask)
        try:
            with self._path.open("a", encoding="ascii", newline="\n") as file:
                file.write(json.dumps(masked, separators=(",", ":")) + "\n")
        except OSError as error:
            raise UserError(f"cannot record to {self._path}: {error}") from error


def _masked(value: JSON, mask: Callable[[str], str]) -> JSON:
    """The mask over each text by itself, so that what it takes away never reaches into the next."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, Mapping):
        return {key: _masked(part, mask) for key, part in value.items()}
    if isinstance(value, Sequence):
        return [_masked(part, mask) for part in value]
    return value


def _answer(response: ModelResponse) -> dict[str, JSON]:
    usage = response.usage
    return {
        "items": [item.raw for item in response.items],
        "status": response.status,
        "incomplete_reason": response.incomplete_reason,
        "response_id": response.response_id,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_input_tokens": usage.cached_input_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
    }


def _request(request: ModelRequest) -> dict[str, JSON]:
    settings = request.settings
    chosen: dict[str, JSON] = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "max_output_tokens": settings.max_output_tokens,
        "effort": settings.effort,
        "tool_choice": settings.tool_choice,
        "extra_body": dict(settings.extra_body),
    }
    return {
        "instructions": request.instructions,
        "earlier_items": request.previous_length,
        "items": [item.raw for item in request.items[request.previous_length :]],
        "tools": [tool.name for tool in request.tools],
        "settings": {key: value for key, value in chosen.items() if value not in (None, {})},
    }
