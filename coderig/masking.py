"""Keeps the keys that this process was given out of what it shows and records."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from runtime import Journal
from runtime.schema import JSON

MASK = "[masked]"
_TELLING_NAME = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)\Z")
_SHORTEST = 8


class Mask:
    """Replaces the values of environment variables whose names say that they are secret.

    Values shorter than 8 characters are left alone: they would be found in ordinary text.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        values = {
            value
            for name, value in environment.items()
            if _TELLING_NAME.search(name.upper()) and len(value) >= _SHORTEST and not value.startswith("/")
        }
        # Within JSON that is kept as text a secret stands as JSON writes it.
        values |= {json.dumps(value, ensure_ascii=ascii)[1:-1] for value in values for ascii in (True, False)}
        # The longest first: one secret may be the beginning of another.
        self._ordered = sorted(values, key=len, reverse=True)
        self._pattern = (
            re.compile("|".join(re.escape(value) for value in self._ordered)) if self._ordered else None
        )

    def text(self, text: str) -> str:
        """The text without the secrets."""
        return text if self._pattern is None else self._pattern.sub(MASK, text)

    def rewriter(self) -> MaskedBytes:
        """Takes the secrets out of one stream of bytes."""
        return MaskedBytes([value.encode("utf-8", "surrogateescape") for value in self._ordered])

    def value(self, value: JSON) -> JSON:
        """A JSON value, with every text in it masked."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(key): self.value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value


class MaskedBytes:
    """One stream of bytes without the secrets, however it comes cut. `secrets`: the longest first."""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        self._pattern = re.compile(b"|".join(re.escape(secret) for secret in secrets)) if secrets else None
        self._held = len(secrets[0]) - 1 if secrets else 0
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """The next bytes, but for those that may be the beginning of a secret."""
        return self._masked(self._rest + data, self._held)

    def end(self) -> bytes:
        """The last bytes."""
        return self._masked(self._rest, 0)

    def _masked(self, data: bytes, held: int) -> bytes:
        at, sure, out = 0, max(0, len(data) - held), []
        for match in self._pattern.finditer(data) if self._pattern is not None else ():
            if match.start() >= sure:
                break
            out += [data[at : match.start()], MASK.encode()]
            at = match.end()
        sure = max(at, sure)
        self._rest = data[sure:]
        return b"".join([*out, data[at:sure]])


class MaskingJournal:
    """A journal that keeps its records without the secrets."""

    def __init__(self, journal: Journal, mask: Mask) -> None:
        self._journal = journal
        self._mask = mask

    def append(self, record: Mapping[str, JSON]) -> None:
        """Keep a record. Raises JournalError."""
        self._journal.append({key: self._mask.value(value) for key, value in record.items()})
