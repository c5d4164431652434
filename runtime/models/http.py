"""What the adapters for HTTP services share: clients, bodies, answers and failures."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from runtime.errors import ContextOverflowError, ModelError
from runtime.models.model import DEFAULT_MODEL_TIMEOUT_S
from runtime.schema import JSON, JsonError, dump, members

_OVERFLOW = ("context_length_exceeded", "prompt is too long", "context window", "maximum context length")


class Client(Protocol):
    """A vendor's asynchronous client."""

    async def close(self) -> None:
        """Close its connections."""
        ...


C = TypeVar("C", bound=Client)


@dataclass(slots=True)
class _Held(Generic[C]):
    users: int
    client: C | None


class Clients(Generic[C]):
    """One client for each event loop that uses a model: a client's connections belong to one loop.

    The first client is made at once, so that a missing key is told before anything runs.
    """

    def __init__(self, make: Callable[[], C]) -> None:
        self._make = make
        self._first: C | None = make()
        self._held: dict[asyncio.AbstractEventLoop, _Held[C]] = {}

    def connect(self) -> None:
        """One more user on this loop."""
        self._held.setdefault(asyncio.get_running_loop(), _Held(0, None)).users += 1

    async def release(self) -> None:
        """One user fewer; the last one's client is closed."""
        loop = asyncio.get_running_loop()
        held = self._held[loop]
        held.users -= 1
        if held.users == 0:
            del self._held[loop]
            if held.client is not None:
                await held.client.close()

    @contextlib.asynccontextmanager
    async def borrowed(self) -> AsyncGenerator[C, None]:
        """A client for one request."""
        self.connect()
        try:
            held = self._held[asyncio.get_running_loop()]
            if held.client is None:
                held.client, self._first = self._first or self._make(), None
            yield held.client
        finally:
            await self.release()


_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


def sendable_name(name: str) -> str:
    """A tool's name as services accept it: a model may call what does not exist, by any name."""
    return name if _NAME.fullmatch(name) else re.sub(r"[^A-Za-z0-9_-]", "_", name, flags=re.ASCII)[:64] or "_"


def sendable_id(call_id: str) -> str:
    """A call's id as services accept it; ids that differ stay different."""
    if _NAME.fullmatch(call_id):
        return call_id
    return "call_" + hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def body(parts: Mapping[str, str], extra: Mapping[str, JSON]) -> bytes:
    """A JSON object from members whose values are JSON text already: what came verbatim leaves verbatim."""
    merged = {**parts, **{key: dump(value) for key, value in extra.items()}}
    return ("{" + ",".join(f"{dump(key)}:{value}" for key, value in merged.items()) + "}").encode()


def answer(text: str) -> dict[str, tuple[JSON, str]]:
    """The members of the JSON object that a service answered with: value, and its text as it came."""
    try:
        return {key: (value, raw) for key, value, raw in members(text)}
    except JsonError as error:
        raise ModelError(f"the service answered with something else than JSON: {error}") from None


def failure(service: str, error: Exception) -> ModelError:
    """A vendor client's error as ours, with the status and what the service asks to wait, if it told."""
    status = getattr(error, "status_code", None)
    overflow = status in (400, 413) and any(mark in str(error) for mark in _OVERFLOW)
    kind = ContextOverflowError if overflow else ModelError
    retry_after_s = _retry_after(getattr(error, "response", None))
    return kind(f"{service}: {_words(error, status)}", status=status, retry_after_s=retry_after_s)


def timeout(seconds: float) -> float:
    """The timeout of one model call: 0 or less is the default."""
    return seconds if seconds > 0 else DEFAULT_MODEL_TIMEOUT_S


def member(value: JSON, *path: str) -> JSON:
    """A value deep in JSON objects; None where the path leads nowhere."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def count(value: JSON, *path: str) -> int:
    """A whole number deep in JSON objects; 0 where there is none."""
    found = member(value, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0


def text(value: JSON, *path: str) -> str:
    """A string deep in JSON objects; "" where there is none."""
    found = member(value, *path)
    return found if isinstance(found, str) else ""


def _words(error: Exception, status: int | None) -> str:
    if status is None:
        where = getattr(getattr(error, "request", None), "url", "the service")
        cause = f" ({error.__cause__})" if error.__cause__ is not None else ""
        return f"{where}: {error}{cause}"
    body = getattr(error, "body", None)
    said = text(body, "message") or text(body, "error", "message") or str(error)
    return f"HTTP {status}: {said}"


def _retry_after(response: object) -> float | None:
    headers = getattr(response, "headers", None)
    if headers is None:
        return None
    with contextlib.suppress(TypeError, ValueError):
        return max(0.0, float(headers.get("retry-after")))
    return None
