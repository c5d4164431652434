"""What went wrong at a service, as one of our errors: which kind it is, and whether trying again may help."""

from __future__ import annotations

import contextlib
import json
import math
import re
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

_WORDS_LIMIT = 500
"""Characters of what a service said that an error repeats: a proxy may answer with a whole page."""
_ILLEGAL_HEADER = re.compile(r"(Illegal header (?:value|name)) .*", re.DOTALL)
_MARKUP = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.DOTALL | re.IGNORECASE)
_SECONDS = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)\s*", re.ASCII)


def from_client(service: str, error: Exception) -> ModelError:
    """A vendor client's error, with the status and what the service asks to wait, if it told."""
    status = getattr(error, "status_code", None)
    if status is None:
        return ModelError(f"{service}: {_words_of_no_answer(error)}", transient=_may_pass(error))
    body = getattr(error, "body", None)
    told = wire.member(body, "error") or body
    said = _said(told) or str(error)
    headers = getattr(getattr(error, "response", None), "headers", None)
    # Who is told that nothing is there wants to know where that is: the base URL may be wrong.
    place = f" at {_where(error)}" if status in (404, 405) else ""
    return _made(
        f"{service}: HTTP {status}{place}: {_shortened(said)}",
        marks=f"{wire.text(told, 'type')} {wire.text(told, 'code')} {said} {error}",
        status=status,
        retry_after_s=None if headers is None else retry_after(headers),
    )


def from_event(service: str, value: JSON) -> ModelError:
    """An error that a service tells inside an answer or a stream, as {"type", "code", "message"}."""
    kind, code = wire.text(value, "type"), wire.text(value, "code")
    said = _said(value) or "no reason given"
    status = _STATUS_OF.get(code, _STATUS_OF.get(kind)) or _status(wire.member(value, "code"))
    name = code or kind or "error"
    return _made(f"{service}: {name}: {_shortened(said)}", marks=f"{kind} {code} {said}", status=status)


def _status(code: JSON) -> int | None:
    """A status where a server tells it as the code of a failure."""
    return int(str(code)) if re.fullmatch("[45][0-9][0-9]", str(code)) else None


def truncated(service: str, why: str) -> ModelError:
    """A stream that ended before its answer was complete."""
    return ModelError(f"{service}: the stream ended before the answer was complete: {why}", transient=True)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """What a service asks to wait, in seconds: a number, or a date, of which only the future counts.

    None for what is neither.
    """
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    told = headers.get("retry-after", "")
    seconds = _number(told)
    if seconds is not None:
        return seconds
    with contextlib.suppress(ValueError, OverflowError):  # a date that no calendar has
        date = parsedate_tz(told)
        return None if date is None else max(0.0, mktime_tz(date) - time.time())
    return None


def _number(text: str) -> float | None:
    found = float(text) if _SECONDS.fullmatch(text) else math.inf
    return max(0.0, found) if math.isfinite(found) else None


def _said(told: JSON) -> str:
    """The words of a failure, in any of the forms in which servers of these wires put them."""
    if isinstance(told, str):
        return told
    for key in ("message", "detail"):
        if wire.text(told, key):
            return wire.text(told, key)
    return json.dumps(told) if told else ""


def _shortened(said: str) -> str:
    if said.lstrip().startswith("<"):
        said = _MARKUP.sub(" ", said)
    words = " ".join(said.split())
    return words if len(words) <= _WORDS_LIMIT else words[:_WORDS_LIMIT] + " ..."


def _where(error: Exception) -> str:
    """The URL that was asked, without what may be secret in it: a name, a password, a query."""
    url = getattr(getattr(error, "request", None), "url", None)
    if url is None:
        return "the service"
    port = "" if url.port is None else f":{url.port}"
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{url.scheme}://{host}{port}{url.path}"


def _made(message: str, *, marks: str, status: int | None, retry_after_s: float | None = None) -> ModelError:
    lowered = marks.lower()
    if status in (None, 400, 413) and any(mark in lowered for mark in _OVERFLOW):
        return ContextOverflowError(message, status=status, transient=False)
    transient = False if any(mark in lowered for mark in _EXHAUSTED) else None
    return ModelError(message, status=status, retry_after_s=retry_after_s, transient=transient)


def _words_of_no_answer(error: Exception) -> str:
    told = _ILLEGAL_HEADER.sub(r"\1", str(error)) or type(error).__name__
    # What is wrong with a header is told without the header: it may be the key.
    cause = _ILLEGAL_HEADER.sub(r"\1", str(error.__cause__ or ""))
    return f"{_where(error)}: {told}" + (f" ({cause})" if cause else "")


def _may_pass(error: Exception) -> bool:
    """A connection that broke may hold the next time; a wrong address or certificate stays wrong."""
    return not any(
        type(link).__name__ in _LASTING_KINDS or any(words in str(link).lower() for words in _LASTING_WORDS)
        for link in chain(error)
    )
