"""pexpect: its wrapper around bash, run() for one-shots, and its SSH shell. The shells tell no status."""

# mypy: disable-error-code="import-not-found, import-untyped"
# Not installed where this is checked.

from __future__ import annotations

import contextlib
import shlex
import shutil
from collections.abc import AsyncIterator
from importlib import metadata

from way import EXEC, SHELL, Access, Answer, Command, Opened, Way, Ways, features

_LIMIT_S = 30.0


def _replwrap() -> Opened:
    import pexpect
    import pexpect.replwrap

    repl = pexpect.replwrap.bash()

    def call(command: Command) -> Answer:
        try:
            return Answer(
                repl.run_command(command.text, timeout=command.timeout_s or _LIMIT_S), timed_out=False
            )
        except pexpect.TIMEOUT:
            output = repl.child.before or ""
            repl.child.sendintr()
            repl.child.expect_exact(repl.prompt, timeout=5)
            return Answer(output, timed_out=True)

    return Opened(call, lambda: repl.child.close(force=True))


def _run(command: Command) -> Answer:
    import pexpect

    line = f"bash -c {shlex.quote(command.text)}"
    output, status = pexpect.run(line, withexitstatus=True, timeout=command.timeout_s or _LIMIT_S)
    # No status: it was still running when the time was up.
    return Answer(output.decode("utf-8", "surrogateescape"), status, timed_out=status is None)


@contextlib.asynccontextmanager
async def local(access: Access) -> AsyncIterator[Ways]:
    """This machine."""
    yield {
        SHELL: Way("replwrap.bash, no status", _replwrap, features("timeout bash")),
        EXEC: Way("run", lambda: Opened(_run), features("status timeout bash")),
    }


@contextlib.asynccontextmanager
async def ssh(access: Access) -> AsyncIterator[Ways]:
    """Another machine, through the ssh program."""
    from pexpect import pxssh

    if not shutil.which("ssh"):
        raise RuntimeError("there is no ssh program")

    def open_shell() -> Opened:
        shell = pxssh.pxssh(
            options={"UserKnownHostsFile": access["known_hosts"]}, echo=False, encoding="utf-8"
        )
        shell.login(access["host"], access["user"], port=int(access["port"]), ssh_key=access["key"])
        shell.sendline("stty -echo; bind 'set enable-bracketed-paste off'")
        shell.prompt(timeout=20)

        def call(command: Command) -> Answer:
            shell.sendline(command.text)
            if not shell.prompt(timeout=command.timeout_s or _LIMIT_S):
                raise TimeoutError("no prompt")
            return Answer(shell.before)

        return Opened(call, lambda: shell.close(force=True))

    yield {SHELL: Way("pxssh, no status", open_shell, features("bash"))}


DRIVERS = {"local": local, "ssh": ssh}


def version() -> str:
    """As installed."""
    return metadata.version("pexpect")
