"""What the adapters for HTTP services share: clients, one exchange, whole or streamed, and its failures."""

from __future__ import annotations

import asyncio
import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from runtime.errors import ModelError, UserError
from runtime.models import failures, sse, wire
from runtime.models.model import DEFAULT_MODEL_TIMEOUT_S, Emit, ModelRequest, ModelResponse

DRAIN_S = 1.0
"""How long the end of a stream is waited for when its answer is complete: its connection can be kept then."""


class StreamReader(Protocol):
    """Makes an answer out of the events of one stream."""

    def take(self, data: str, emit: Emit) -> ModelResponse | None:
        """Take the data of one event. The answer, with the event that ends it.

        Raises ModelError for an event that tells of a failure or cannot be read.
        """
        ...

    @property
    def heard(self) -> int:
        """How many events of the answer there were; signs of life do not count."""
        ...


@dataclass(slots=True)
class _Held:
    users: int
    client: Any | None


class Clients:
    """One client for each event loop that uses a model: a client's connections belong to one loop.

    The first client is made at once, so that a missing key is told before anything runs. With `keep` clients
    are left open: their connections are somebody else's.
    """

    def __init__(self, make: Callable[[], Any], *, keep: bool = False) -> None:
        self._make = make
        self._keep = keep
        self._first: Any | None = make()
        self._held: dict[asyncio.AbstractEventLoop, _Held] = {}

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
            if held.client is not None and not self._keep:
                await held.client.close()

    @contextlib.asynccontextmanager
    async def borrowed(self) -> AsyncGenerator[Any, None]:
        """A client for one request."""
        self.connect()
        try:
            held = self._held[asyncio.get_running_loop()]
            if held.client is None:
                held.client, self._first = self._first or self._make(), None
            yield held.client
        finally:
            await self.release()


class HttpModel(ABC):
    """A model behind a vendor's own client. What differs is the wire, which a subclass knows.

    base_url        None: the client's own default
    api_key         None: the client looks where it always looks
    client_options  further arguments for the client, which win: `max_retries`, `http_client` (which the
                    caller closes), ...

    Nothing is retried, by the client neither, unless `client_options` say so.
    """

    provider: ClassVar[str]
    path: ClassVar[str]
    request_id_header: ClassVar[str]

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        client_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._model = model
        options = {"base_url": base_url, "api_key": api_key, "max_retries": 0, **(client_options or {})}
        self._clients = Clients(lambda: self._checked(options), keep="http_client" in options)

    def _checked(self, options: dict[str, Any]) -> Any:
        """A client whose address and key can be sent at all. Raises UserError, which never shows a key."""
        import httpx2

        try:
            client = self._client(options)
        except (httpx2.InvalidURL, UnicodeError) as error:
            raise UserError(f"{self.provider}: the base URL is not valid: {error}") from None
        url = client.base_url
        if url.scheme not in ("http", "https") or not url.host or not 0 < (url.port or 1) < 65536:
            raise UserError(
                f"{self.provider}: the base URL is not valid: it has to be http://... or https://..."
            )
        for key in (client.api_key, getattr(client, "auth_token", None)):
            if isinstance(key, str) and key and not _SENDABLE.fullmatch(key):
                raise UserError(
                    f"{self.provider}: the key holds a blank or another character that no key has"
                )
        return client

    @property
    def name(self) -> str:
        """The provider and the model."""
        return f"{self.provider}:{self._model}"

    def connect(self) -> None:
        """Keep connections from now on (see Connected)."""
        self._clients.connect()

    async def release(self) -> None:
        """Close connections that nobody keeps any more (see Connected)."""
        await self._clients.release()

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Ask once. Raises UserError for settings that this wire does not have, before anything is sent."""
        import httpx2

        content = wire.body(self._parts(request), request.settings.extra_body)
        _check_headers(request.settings.extra_headers)
        limit_s = request.settings.timeout_s if request.settings.timeout_s > 0 else DEFAULT_MODEL_TIMEOUT_S
        try:
            async with asyncio.timeout(limit_s) as clock, self._clients.borrowed() as client:
                reply = await self._post(client, request, content, limit_s)
                try:
                    return await self._read(reply, emit, clock, limit_s)
                finally:
                    await reply.aclose()
        except (TimeoutError, httpx2.TimeoutException) as error:
            message = f"{self.name}: nothing of an answer came for {limit_s:g} s"
            raise ModelError(message, transient=True) from error
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            raise failures.from_client(self.name, error) from error

    async def _post(self, client: Any, request: ModelRequest, content: bytes, limit_s: float) -> Any:
        import httpx2

        settings = request.settings
        options = {
            "headers": {"Content-Type": "application/json", **settings.extra_headers},
            "params": dict(settings.extra_query),
            "timeout": limit_s,
        }
        try:
            return await client.post(
                self.path, cast_to=httpx2.Response, content=content, options=options, stream=True
            )
        except self._client_errors() as error:
            if isinstance(error.__cause__, httpx2.TimeoutException):
                raise TimeoutError from error
            raise failures.from_client(self.name, error) from error

    async def _read(self, reply: Any, emit: Emit, clock: asyncio.Timeout, limit_s: float) -> ModelResponse:
        request_id = str(reply.headers.get(self.request_id_header, ""))
        chunks = reply.aiter_bytes()
        # A server that cannot stream answers in one piece, whatever it was asked for; and one that can may
        # give its stream a wrong type, or none.
        begun = b""
        kind = str(reply.headers.get("content-type", ""))
        if not kind.startswith("text/event-stream"):
            async for chunk in chunks:
                begun += chunk
                if len(begun) >= sse.MARK_BYTES:
                    break
            if kind.startswith("application/json") or not sse.is_stream(begun):
                pieces = [begun, *[chunk async for chunk in chunks]]
                return self._whole(b"".join(pieces).decode("utf-8-sig", "replace"), request_id)
        reader = self._reader(request_id)
        decoder = sse.Decoder()
        heard = 0
        async for chunk in _after(begun, chunks):
            for data in decoder.feed(chunk):
                response = reader.take(data, emit)
                if response is not None:
                    clock.reschedule(None)  # it is there: no timeout may take it back
                    await _drain(chunks)
                    return response
            if reader.heard != heard:
                heard = reader.heard
                clock.reschedule(asyncio.get_running_loop().time() + limit_s)
        raise failures.truncated(self.name, "no event said that it is")

    @abstractmethod
    def _client(self, options: dict[str, Any]) -> Any:
        """The vendor's client. Raises UserError where it is missing or has no key."""

    @abstractmethod
    def _client_errors(self) -> type[Exception]:
        """The root of the client's errors."""

    @abstractmethod
    def _parts(self, request: ModelRequest) -> dict[str, str]:
        """The members of the request body, as JSON text."""

    @abstractmethod
    def _whole(self, text: str, request_id: str) -> ModelResponse:
        """An answer that came in one piece."""

    @abstractmethod
    def _reader(self, request_id: str) -> StreamReader:
        """What reads an answer that comes as a stream."""


_SENDABLE = re.compile(r"[!-~]+", re.ASCII)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_HEADER_VALUE = re.compile(r"[!-~]([\t -~]*[!-~])?|", re.ASCII)


def _check_headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise UserError(f"`extra_headers` has a name that is none: {name!r}")
        if not _HEADER_VALUE.fullmatch(value):
            raise UserError(
                f"`extra_headers`: the value of {name!r} holds characters that a header cannot have"
            )


async def _after(begun: bytes, chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    if begun:
        yield begun
    async for chunk in chunks:
        yield chunk


async def _drain(chunks: AsyncGenerator[bytes, None]) -> None:
    """Read what follows the answer. It is complete: whatever happens to the stream now does not matter."""
    import httpx2

    with contextlib.suppress(TimeoutError, httpx2.HTTPError, httpx2.StreamError):
        async with asyncio.timeout(DRAIN_S):
            async for _ in chunks:
                pass
