"""Errors of the runtime, each with a stable code that follows from its type.

AgentError
├── UserError            wrong use: options, agents, states that do not fit
├── ModelError           the provider failed or could not be reached
│   └── ContextOverflowError   the conversation is longer than the model's window
├── ModelBehaviorError   the model answered with something that cannot be used
├── ModelRefusalError    the model declined
├── BudgetError          a limit of the run was reached
│   └── MaxTurnsError    the run used up its turns
├── GuardrailTripped     a guardrail stopped the run
├── RepeatedCallError    the same call gave the same output again and again
├── ToolLoopError        turn after turn, every call failed
├── RunCancelled         the run was cancelled through its control
├── JournalError         a run's journal cannot be written or read
│   └── JournalInUse     another process holds it
└── RunError             a run that had started failed; wraps one of the above, or what a tool or model raised

What a model can act on is never raised: it is an error result of the call.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import ClassVar, TypeVar

E = TypeVar("E", bound=BaseException)


class ErrorCode(StrEnum):
    """The known codes. The set is open: treat a code that is not here as `UNKNOWN`."""

    UNKNOWN = "unknown"
    USER_ERROR = "user_error"
    MODEL_ERROR = "model_error"
    CONTEXT_OVERFLOW = "context_overflow"
    MODEL_BEHAVIOR = "model_behavior"
    MODEL_REFUSAL = "model_refusal"
    MAX_TURNS = "max_turns_exceeded"
    BUDGET = "budget_exceeded"
    TOOL_LOOP = "tool_loop"
    REPEATED_CALL = "repeated_tool_call"
    TOOL_TIMEOUT = "tool_timeout"
    TOOL_CRASH = "tool_panic"
    GUARDRAIL = "guardrail_tripwire"
    SANDBOX = "sandbox_exec"
    MCP = "mcp"
    CANCELLED = "cancelled"
    JOURNAL = "journal"


class AgentError(Exception):
    """The root of all errors that the runtime raises."""

    code: ClassVar[str] = ErrorCode.UNKNOWN


class UserError(AgentError):
    """The runtime was used wrongly; the message says what to change."""

    code = ErrorCode.USER_ERROR


class ModelError(AgentError):
    """The provider answered with a failure, or not at all.

    status         the HTTP status, or None when there was no answer
    retry_after_s  seconds that the provider asks to wait, or None
    transient      the same request may succeed later; not given: as the status says (408, 409, 425, 429
                   and 5xx are, everything else is not)
    """

    code = ErrorCode.MODEL_ERROR

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        transient: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s
        passing = status is not None and (status in (408, 409, 425, 429) or status >= 500)
        self.transient = passing if transient is None else transient


class ContextOverflowError(ModelError):
    """The conversation does not fit into the model's window."""

    code = ErrorCode.CONTEXT_OVERFLOW


class ModelBehaviorError(AgentError):
    """The model's answer cannot be used, though the provider delivered it."""

    code = ErrorCode.MODEL_BEHAVIOR


class ModelRefusalError(AgentError):
    """The model declined; the message holds its words."""

    code = ErrorCode.MODEL_REFUSAL


class BudgetError(AgentError):
    """A limit of the run was reached; `dimension` says which: "turns", "tokens", "deadline" or "cost"."""

    code = ErrorCode.BUDGET

    def __init__(self, message: str, dimension: str) -> None:
        super().__init__(message)
        self.dimension = dimension


class MaxTurnsError(BudgetError):
    """The run used up its turns without an answer."""

    code = ErrorCode.MAX_TURNS

    def __init__(self, message: str) -> None:
        super().__init__(message, "turns")


class GuardrailTripped(AgentError):
    """A guardrail stopped the run; the message holds its reason."""

    code = ErrorCode.GUARDRAIL


class RepeatedCallError(AgentError):
    """The same call with the same arguments gave the same output too often."""

    code = ErrorCode.REPEATED_CALL


class ToolLoopError(AgentError):
    """Every call failed for too many turns in a row."""

    code = ErrorCode.TOOL_LOOP


class RunCancelled(AgentError):
    """The run was cancelled through its control."""

    code = ErrorCode.CANCELLED


class JournalError(AgentError):
    """A run's journal cannot be written, read or understood."""

    code = ErrorCode.JOURNAL


class JournalInUse(JournalError):
    """Another process (or this one) already writes to the journal.

    pid  the process that holds it, 0 if it cannot be told
    """

    def __init__(self, message: str, pid: int) -> None:
        super().__init__(message)
        self.pid = pid


def code_of(error: BaseException) -> str:
    """The stable code of an error: the innermost one along its causes, "unknown" if there is none."""
    found: str = ErrorCode.UNKNOWN
    for link in chain(error):
        own = link.code if isinstance(link, AgentError) else ErrorCode.UNKNOWN
        code = own if own != ErrorCode.UNKNOWN else link.__dict__.get(_TAG, own)
        if code != ErrorCode.UNKNOWN:
            found = code
    return found


_TAG = "_runtime_code"


def classify(code: str, error: E) -> E:
    """Give a foreign error a code, and return it: its type and its causes stay what they are.

    An error that has a code already, in itself or in a cause, keeps that one.
    """
    if code_of(error) == ErrorCode.UNKNOWN:
        error.__dict__[_TAG] = str(code)
    return error


def find_cause(error: BaseException, kind: type[E]) -> E | None:
    """The first error of a type along an error's causes, itself included; None: there is none."""
    return next((link for link in chain(error) if isinstance(link, kind)), None)


def chain(error: BaseException) -> Iterator[BaseException]:
    """An error, its causes, and the members of groups among them, outermost first."""
    seen: set[int] = set()
    todo: list[BaseException] = [error]
    while todo:
        link = todo.pop(0)
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        if isinstance(link, BaseExceptionGroup):
            todo.extend(link.exceptions)
        cause = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
        if cause is not None:
            todo.append(cause)
