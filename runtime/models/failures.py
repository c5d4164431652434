"""What went wrong at a service, as one of our errors: which kind it is, and whether trying again may help."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from email.utils import mktime_tz, parsedate_tz

from runtime.errors import ContextOverflowError, ModelError, chain
from runtime.models import wire
from runtime.schema import JSON

_OVERFLOW = (
    "context_length_exceeded",
    "model_context_window_exceeded",
    "prompt is too long",
    "request_too_large",
    "context window",
    "exceed context limit",
    "maximum context length",
    "exceeds the available context size",
)
"""How services say that a conversation is too long: OpenAI, Anthropic, vLLM, llama.cpp."""

_EXHAUSTED = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "credit balance")
"""Answers that look like a rate limit, but that waiting does not cure."""

_STATUS_OF: Mapping[str, int] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The status that an error inside a stream would have had, had it come before the stream."""

_LASTING_KINDS = ("InvalidURL", "UnsupportedProtocol", "LocalProtocolError", "SSLCertVerificationError")
_LASTING_WORDS = (
    "name or service not known",
    "nodename nor servname",
    "no address associated with hostname",
    "certificate verify failed",
)


def from_client(service: str, error: Exception) -> ModelError:
    """A vendor client's error, with the status and what the service asks to wait, if it told."""
    status = getattr(error, "status_code", None)
    if status is None:
        return ModelError(f"{service}: {_words_of_no_answer(error)}", transient=_may_pass(error))
    body = getattr(error, "body", None)
    told = wire.member(body, "error") or body
    said = wire.text(told, "message") or str(error)
    headers = getattr(getattr(error, "response", None), "headers", None)
    return _made(
        f"{service}: HTTP {status}: {said}",
        marks=f"{wire.text(told, 'type')} {wire.text(told, 'code')} {said} {error}",
        status=status,
        retry_after_s=None if headers is None else retry_after(headers),
    )


def from_event(service: str, value: JSON) -> ModelError:
    """An error that a service tells inside an answer or a stream, as {"type", "code", "message"}."""
    kind, code = wire.text(value, "type"), wire.text(value, "code")
    said = wire.text(value, "message") or "no reason given"
    status = _STATUS_OF.get(code, _STATUS_OF.get(kind))
    name = code or kind or "error"
    return _made(f"{service}: {name}: {said}", marks=f"{kind} {code} {said}", status=status)


def truncated(service: str, why: str) -> ModelError:
    """A stream that ended before its answer was complete."""
    return ModelError(f"{service}: the stream ended before the answer was complete: {why}", transient=True)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """What a service asks to wait, in seconds: a number, or a date, of which only the future counts."""
    with contextlib.suppress(KeyError, ValueError):
        return max(0.0, float(headers["retry-after-ms"]) / 1000)
    told = headers.get("retry-after")
    if told is None:
        return None
    with contextlib.suppress(ValueError):
        seconds = float(told)
        return max(0.0, seconds) if seconds == seconds else None
    date = parsedate_tz(told)
    return None if date is None else max(0.0, mktime_tz(date) - time.time())


def _made(message: str, *, marks: str, status: int | None, retry_after_s: float | None = None) -> ModelError:
    lowered = marks.lower()
    if status in (None, 400, 413) and any(mark in lowered for mark in _OVERFLOW):
        return ContextOverflowError(message, status=status, transient=False)
    transient = False if any(mark in lowered for mark in _EXHAUSTED) else None
    return ModelError(message, status=status, retry_after_s=retry_after_s, transient=transient)


def _words_of_no_answer(error: Exception) -> str:
    where = getattr(getattr(error, "request", None), "url", "the service")
    cause = f" ({error.__cause__})" if error.__cause__ is not None else ""
    return f"{where}: {error or type(error).__name__}{cause}"


def _may_pass(error: Exception) -> bool:
    """A connection that broke may hold the next time; a wrong address or certificate stays wrong."""
    return not any(
        type(link).__name__ in _LASTING_KINDS or any(words in str(link).lower() for words in _LASTING_WORDS)
        for link in chain(error)
    )
