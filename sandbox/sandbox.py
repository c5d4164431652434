"""The one interface to a place: commands, named shells, files."""

from __future__ import annotations

import posixpath
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sandbox.backend import Backend
from sandbox.errors import BackendError, Closed
from sandbox.execute import Executor
from sandbox.files import Files
from sandbox.shell import check_env, content, path_text
from sandbox.shell_pool import ShellPool
from sandbox.shells import Shell, ShellInfo
from sandbox.spill import SpillStore
from sandbox.values import (
    DEFAULT_LIMIT_BYTES,
    DEFAULT_READ_LIMIT_BYTES,
    DEFAULT_TIMEOUT_S,
    ExecRequest,
    ExecResult,
    FileEntry,
    OnOutput,
    StrPath,
)

if TYPE_CHECKING:
    from sandbox.backends.docker import DockerOptions
    from sandbox.backends.ssh import SshOptions

# Nobody sits at these commands: a pager, an editor or a question for a password would wait for ever.
QUIET_ENV: Mapping[str, str] = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
}


class Sandbox:
    """A place where commands run and files are edited. Thread-safe. A context manager.

    backend    what runs the programs
    name       what people read in messages
    directory  working directory; None: where the place starts programs; relative: below that
    env        set for every command, on top of what the place gives
    warm       start the shells of commands ahead, so that a command begins at once; a few small programs
               then wait in the place, until a minute after the last command
    shell_idle_s  named shells that were not used for so many seconds are closed, unless a command runs in
               them; the next use opens a new one and says so; None: never
    """

    def __init__(
        self,
        backend: Backend,
        *,
        name: str,
        directory: str | None = None,
        env: Mapping[str, str] | None = None,
        warm: bool = True,
        shell_idle_s: float | None = None,
    ) -> None:
        self.name = name
        self._backend = backend
        self._directory = directory
        check_env(env or {})
        self._env = {**QUIET_ENV, **(env or {})}
        self._executor = Executor(backend, self._env, warm=warm)
        self._cwd: str | None = directory if directory and directory.startswith("/") else None
        self._cwd_lock = threading.Lock()
        self._shells = ShellPool(
            self._executor.backend, self._executor.sweeper, self._env, lambda: self.cwd, shell_idle_s
        )
        self._files = Files(self.run)
        self._closed = False

    @property
    def backend(self) -> Backend:
        """The backend, for its optional abilities."""
        return self._backend

    @property
    def cwd(self) -> str:
        """The working directory, absolute. Asks the place once if it was not given as absolute."""
        with self._cwd_lock:
            if self._cwd is None:
                self._cwd = self._ask_cwd()
            return self._cwd

    def _ask_cwd(self) -> str:
        # A backend starts programs wherever it likes; HOME is where a person would be.
        result = self._executor.run(ExecRequest(command="cd; pwd; printf x"), cwd=None)
        if result.exit_code != 0:
            raise BackendError(f"{self.name}: cannot find the working directory: {result.stderr.strip()}")
        home = result.stdout_output.data[:-2].decode("utf-8", "surrogateescape")
        return posixpath.normpath(posixpath.join(home, self._directory or ""))

    def run(self, request: ExecRequest) -> ExecResult:
        """Run one command to its end. See ExecRequest and ExecResult for every default and unit.

        Raises RequestError (nothing ran), NotFound or NotADirectory for the working directory
        (nothing ran), Cancelled (the tree was killed), Closed, BackendError (the place failed)."""
        if self._closed:
            raise Closed(f"{self.name} is closed")
        cwd = posixpath.join(self.cwd, path_text(request.cwd)) if request.cwd else self.cwd
        return self._executor.run(request, cwd=cwd)

    def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: StrPath | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
        spill: SpillStore | None = None,
        on_output: OnOutput | None = None,
        cancel: threading.Event | None = None,
    ) -> ExecResult:
        """`run` with the request's fields as arguments."""
        return self.run(
            ExecRequest(
                command=command,
                cwd=cwd,
                env={} if env is None else env,
                stdin=stdin,
                timeout_s=timeout_s,
                limit_bytes=limit_bytes,
                spill=spill,
                on_output=on_output,
                cancel=cancel,
            )
        )

    def shell(self, name: str) -> Shell:
        """The named shell; opened by its first command. One that was closed is replaced by a new one.

        name  printable text of at most 200 characters

        Raises Closed, RequestError for what is no name. At most 64 shells are open at once: beyond, a `run`
        that would open one is a RequestError."""
        return self._shells.get(name)

    def shells(self) -> list[ShellInfo]:
        """The shells that are open, by name."""
        return self._shells.list()

    def read_file(self, path: StrPath, limit_bytes: int = DEFAULT_READ_LIMIT_BYTES) -> bytes:
        """The content of a regular file. Raises NotFound, NotAFile, PermissionDenied, TooLarge."""
        return self._files.read(path_text(path), limit_bytes)

    def write_file(self, path: StrPath, data: bytes) -> None:
        """Replace or make a file, atomically where the place allows it; makes parents.

        Mode and owner of an existing file stay; links are followed; a file with several hard links
        is written in place. Raises NotAFile, PermissionDenied, NotADirectory."""
        self._files.write(path_text(path), content(data))

    def create_exclusive(self, path: StrPath, data: bytes) -> None:
        """Make a file that must not exist yet; makes parents. Raises AlreadyExists."""
        self._files.create(path_text(path), content(data))

    def list_dir(self, path: StrPath = ".") -> list[FileEntry]:
        """The entries of a directory, by name. Raises NotFound, NotADirectory, PermissionDenied."""
        return self._files.list(path_text(path))

    def stat(self, path: StrPath) -> FileEntry:
        """What a path leads to; links are followed. Raises NotFound."""
        return self._files.stat(path_text(path))

    def remove(self, path: StrPath) -> None:
        """Remove a file, a link (not what it leads to) or an empty directory. Raises NotFound."""
        self._files.remove(path_text(path))

    def rename(self, old: StrPath, new: StrPath) -> None:
        """Rename; makes parents of `new`, replaces a file there. Raises NotFound, NotAFile."""
        self._files.rename(path_text(old), path_text(new))

    def make_dirs(self, path: StrPath) -> None:
        """Make a directory and its parents; one that exists is fine. Raises NotADirectory."""
        self._files.make_dirs(path_text(path))

    def upload(self, local: StrPath, path: StrPath) -> None:
        """Copy a local file to the place; an execute bit comes along."""
        self._files.upload(Path(path_text(local)), path_text(path))

    def download(self, path: StrPath, local: StrPath) -> None:
        """Copy a file of the place to a local path."""
        self._files.download(path_text(path), Path(path_text(local)))

    def close(self) -> None:
        """Close all shells, then the place. Idempotent; running commands are ended."""
        if not self._closed:
            self._closed = True
            self._executor.close()
            self._shells.close()
            self._executor.sweeper.close()
            self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class LocalSandbox(Sandbox):
    """This machine. There is no isolation: commands can do what the user can.

    directory    working directory; default: the current one
    inherit_env  give commands the whole environment of this process, secrets included
    env, warm, shell_idle_s: see Sandbox
    """

    def __init__(
        self,
        directory: StrPath | None = None,
        *,
        env: Mapping[str, str] | None = None,
        inherit_env: bool = False,
        warm: bool = True,
        shell_idle_s: float | None = None,
    ) -> None:
        from sandbox.backends.local import LocalBackend

        where = Path(path_text(directory or ".")).absolute()
        super().__init__(
            LocalBackend(inherit_env=inherit_env),
            name=f"local:{where}",
            directory=str(where),
            env=env,
            warm=warm,
            shell_idle_s=shell_idle_s,
        )


class SSHSandbox(Sandbox):
    """Another machine over SSH. Host keys are verified; see SshOptions for how it connects.

    directory  working directory there; default: the home directory
    """

    def __init__(
        self,
        options: SshOptions,
        directory: str | None = None,
        *,
        env: Mapping[str, str] | None = None,
        warm: bool = True,
        shell_idle_s: float | None = None,
    ) -> None:
        from sandbox.backends.ssh import SshBackend

        user = f"{options.user}@" if options.user else ""
        super().__init__(
            SshBackend(options),
            name=f"ssh://{user}{options.host}",
            directory=directory,
            env=env,
            warm=warm,
            shell_idle_s=shell_idle_s,
        )


class DockerSandbox(Sandbox):
    """A container, hardened by default; see DockerOptions for every loosening."""

    def __init__(
        self,
        options: DockerOptions,
        *,
        env: Mapping[str, str] | None = None,
        warm: bool = True,
        shell_idle_s: float | None = None,
    ) -> None:
        from sandbox.backends.docker import DockerBackend

        super().__init__(
            DockerBackend(options),
            name=f"docker://{options.image}",
            directory=options.workdir,
            env=env,
            warm=warm,
            shell_idle_s=shell_idle_s,
        )
