"""Which keys a host may show, by a known_hosts file (see sshd(8)). Pure: text in, verdict out."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

DEFAULT_PORT = 22

Verdict = Literal["known", "unknown", "changed", "revoked"]


@dataclass(frozen=True, slots=True)
class HostKey:
    """A public key: its type ("ssh-ed25519") and its wire form."""

    type: str
    blob: bytes

    @property
    def fingerprint(self) -> str:
        """As OpenSSH prints it."""
        digest = base64.b64encode(hashlib.sha256(self.blob).digest()).decode("ascii").rstrip("=")
        return f"{self.type} SHA256:{digest}"


@dataclass(frozen=True, slots=True)
class KnownKeys:
    """What the files say about one host. `authority`: only a certificate authority is named for it."""

    trusted: tuple[HostKey, ...] = ()
    revoked: tuple[HostKey, ...] = ()
    authority: bool = False

    def judge(self, key: HostKey) -> Verdict:
        """Whether the host may show this key. A host known by another key only is "changed"."""
        if key in self.revoked:
            return "revoked"
        if key in self.trusted:
            return "known"
        return "changed" if self.trusted else "unknown"

    def key_types(self) -> tuple[str, ...]:
        """The types to ask for first, so that a known key is shown where the host has one."""
        return tuple(dict.fromkeys(key.type for key in self.trusted))


def host_name(host: str, port: int) -> str:
    """A host as known_hosts names it."""
    return host.lower() if port == DEFAULT_PORT else f"[{host.lower()}]:{port}"


def find_keys(texts: Iterable[str], host: str, port: int) -> KnownKeys:
    """Look a host up in the text of known_hosts files.

    Names may be hashed, patterns or negated; lines that cannot be read are passed over, as OpenSSH does.
    A host on another port than 22 is also known by its bare name if no line names the port."""
    lines = [line for text in texts for line in map(_parse, text.splitlines()) if line is not None]
    found = _collect(lines, host_name(host, port))
    if port != DEFAULT_PORT and not found.trusted:
        bare = _collect(lines, host.lower())
        found = KnownKeys(bare.trusted, found.revoked + bare.revoked, found.authority or bare.authority)
    return found


@dataclass(frozen=True, slots=True)
class _Line:
    marker: str
    names: str
    key: HostKey


def _parse(line: str) -> _Line | None:
    words = line.split()
    if not words or words[0].startswith("#"):
        return None
    marker = words.pop(0) if words[0].startswith("@") else ""
    if len(words) < 3:
        return None
    try:
        return _Line(marker, words[0], HostKey(words[1], base64.b64decode(words[2], validate=True)))
    except (binascii.Error, ValueError):
        return None


def _collect(lines: Iterable[_Line], name: str) -> KnownKeys:
    mine = [line for line in lines if _matches(line.names, name)]
    return KnownKeys(
        trusted=tuple(line.key for line in mine if line.marker == ""),
        revoked=tuple(line.key for line in mine if line.marker == "@revoked"),
        authority=any(line.marker == "@cert-authority" for line in mine),
    )


def _matches(names: str, name: str) -> bool:
    if names.startswith("|"):
        return _hashed(names, name)
    found = False
    for pattern in names.lower().split(","):
        negated = pattern.startswith("!")
        # Brackets are part of "[host]:port" here, not a set of characters.
        if fnmatch.fnmatchcase(name, pattern.removeprefix("!").replace("[", "[[]")):
            if negated:
                return False
            found = True
    return found


def _hashed(names: str, name: str) -> bool:
    try:
        _, kind, salt, digest = names.split("|")
        wanted = base64.b64decode(digest, validate=True)
        made = hmac.new(base64.b64decode(salt, validate=True), name.encode(), hashlib.sha1).digest()
    except (binascii.Error, ValueError):
        return False
    return kind == "1" and hmac.compare_digest(made, wanted)
