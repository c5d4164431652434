"""What is seen of one run, and what two runs do not share."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fuzz.normal import Contender, crashed, is_parsers_status
from fuzz.shells import State


@dataclass(frozen=True, slots=True)
class Difference:
    """One observation that is not the same. `what` names it: stdout, exit code, files, ..."""

    contender: Contender
    what: str
    expected: object
    actual: object

    def __str__(self) -> str:
        if isinstance(self.expected, State) and isinstance(self.actual, State):
            return f"{self.contender}: {self.expected.difference(self.actual)}"
        return f"{self.contender}: {self.what}: expected {self.expected!r}, got {self.actual!r}"


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that is compared of one run; None: not observed."""

    code: int | None
    stdout: bytes
    stderr: bytes
    timed_out: bool
    files: tuple[tuple[str, str], ...] = ()
    state: State | None = None

    def unordered(self) -> Seen:
        """The same with its bytes in order: what runs side by side may speak in any, even within a line."""
        return replace(
            self,
            stdout=bytes(sorted(self.stdout)),
            stderr=bytes(sorted(self.stderr)),
            files=tuple((name, "".join(sorted(what))) for name, what in self.files),
        )

    def differs(self, contender: Contender, other: Seen, dialect: str) -> list[Difference]:
        """What `other` does not share with this one, the reference."""
        if self.timed_out or other.timed_out:
            if self.timed_out == other.timed_out:
                return []
            return [Difference(contender, "timed out", self.timed_out, other.timed_out)]
        if crashed(self.code):
            return []
        messages = (self.stderr or self.stdout, *(text.encode() for _, text in self.files))
        code = other.code if is_parsers_status(dialect, messages, self.code, other.code) else self.code
        pairs: tuple[tuple[str, object, object], ...] = (
            ("exit code", code, other.code),
            ("stdout", self.stdout, other.stdout),
            ("stderr", self.stderr, other.stderr),
            ("files", self.files, other.files),
            ("state", self.state, other.state),
        )
        return [
            Difference(contender, what, mine, theirs)
            for what, mine, theirs in pairs
            if mine is not None and theirs is not None and mine != theirs
        ]
