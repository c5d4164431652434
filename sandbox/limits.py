"""What it means when this program, or this machine, has no more of something; words for people."""

from __future__ import annotations

import errno
import resource


def limit_words(error: BaseException) -> str:
    """Which limit an error tells of and what to do, or "" if it tells of none.

    The error itself is looked at and what caused it: HTTP and SSH libraries wrap the system's errors."""
    seen: BaseException | None = error
    for _ in range(10):
        if seen is None:
            return ""
        if words := _words(seen):
            return words
        wrapped = next((each for each in seen.args if isinstance(each, BaseException)), None)
        seen = wrapped or getattr(seen, "reason", None) or seen.__cause__ or seen.__context__
        seen = seen if isinstance(seen, BaseException) else None
    return ""


def with_limit(message: str, error: BaseException) -> str:
    """The message, and the limit that the error tells of, if it tells of one."""
    words = limit_words(error)
    return f"{message}; {words}" if words else message


def _words(error: BaseException) -> str:
    if isinstance(error, RuntimeError) and "new thread" in str(error):
        return _processes()
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EMFILE:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return (
            f"this program may have {soft} files open (ulimit -n) and has them: "
            "close shells or sandboxes, or raise the limit"
        )
    if number == errno.ENFILE:
        return (
            "this machine has as many files open as it may (fs.file-max): close programs, or raise the limit"
        )
    if number == errno.EAGAIN:
        return _processes()
    if number == errno.ENOMEM:
        return "there is not enough memory for another program: end some, or allow more"
    if number == errno.ENOSPC:
        return "this machine has no terminal left (kernel.pty.max): close shells, or raise the limit"
    return ""


def _processes() -> str:
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    limit = "no limit" if soft == resource.RLIM_INFINITY else str(soft)
    return (
        f"no more processes or threads may be started (ulimit -u says {limit}; a container or service may "
        "have a limit of its own, pids.max): end some, or raise the limit"
    )
