"""One program in a container, by exec: its stream, its status, and the watch over slow readers."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from sandbox.backends.docker_stream import Demux, Wire
from sandbox.errors import BackendError, ConnectionLost, PlaceUnavailable
from sandbox.values import Chunk, SpawnRequest

_KILLED = 137
# A container that is killed takes its programs with it first, and is seen to have died a moment later.
_DYING_S = 0.15
_START_PROCESSES = 12
_NOT_STARTED = (b"OCI runtime exec failed", b"runc exec failed", b"exec failed")
_STATE_EVERY_S = 1.0
_WATCH_EVERY_S = 0.5
_SAVED_BYTES = 16 << 20
_TERMINAL_MARK = "CODERIG_TERMINAL"
# What the kernel does when a terminal goes: a hang-up for the session's leader and for the foreground
# group. Docker keeps its side open when we close ours. The leader is the one without a parent in the
# container that carries our mark; $0 is the mark. Needs sh and cat only.
_HANG_UP = """
for d in /proc/[0-9]*; do
    IFS= read -r line <"$d/stat" || continue
    set -- ${line##*) }
    [ "$2" = 0 ] || continue
    case "$(cat "$d/environ")" in *"$0"*) ;; *) continue ;; esac
    kill -HUP "${d#/proc/}"; kill -CONT "${d#/proc/}"
    [ "$6" -gt 0 ] && kill -HUP -- "-$6" && kill -CONT -- "-$6"
done 2>/dev/null
"""


class DaemonCalls:
    """The daemon's calls about programs, with its failures in our words."""

    def __init__(self, api: Any, errors: Callable[[str], AbstractContextManager[None]]) -> None:
        self._api = api
        self._errors = errors

    def start(
        self, container: str, argv: list[str], env: Mapping[str, str], size: tuple[int, int] | None
    ) -> tuple[str, Wire]:
        """Start a program; its id and its connection. PlaceUnavailable if the container does not run."""
        try:
            with self._errors(f"start {argv[0]!r} in the container"):
                # "/": there is always such a directory, the container's own may have been removed.
                made = self._api.exec_create(
                    container, argv, stdin=True, tty=size is not None, environment=dict(env), workdir="/"
                )
                identity = str(made["Id"])
                url = self._api._url("/exec/{0}/start", identity)
                body: dict[str, object] = {"Tty": size is not None, "Detach": False}
                if size is not None:
                    body["ConsoleSize"] = [size[1], size[0]]
                headers = {"Connection": "Upgrade", "Upgrade": "tcp"}
                response = self._api._post_json(url, headers=headers, data=body, stream=True)
                try:
                    self._api._raise_for_status(response)
                    return identity, Wire(response)
                except BaseException:
                    response.close()
                    raise
        except PlaceUnavailable as error:
            _, words = self.state(container)
            raise PlaceUnavailable(f"the container is {words}: {error}") from error

    def inspect(self, identity: str) -> Mapping[str, Any]:
        """What the daemon says of one program. PlaceUnavailable if it knows it no more."""
        with self._errors("look at a program in the container"):
            return dict(self._api.exec_inspect(identity))

    def state(self, container: str) -> tuple[bool, str]:
        """Whether the container can run programs now, and its state in words."""
        try:
            with self._errors("look at the container"):
                state = self._api.inspect_container(container)["State"]
        except PlaceUnavailable:
            return False, "removed"
        status = str(state["Status"])
        if status == "exited":
            status = f"exited with {state['ExitCode']}"
        if state.get("OOMKilled") and not state["Running"]:
            status += " (out of memory)"
        if state.get("Error"):
            status += f" ({state['Error']})"
        usable = bool(state["Running"]) and not state["Paused"] and status not in ("removing", "dead")
        return usable, status

    def crowd(self, container: str) -> str:
        """In words, that the container has about as many processes as it may; "" if it has not."""
        try:
            with self._errors("count the container's processes"):
                counts = self._api.stats(container, stream=False, one_shot=True).get("pids_stats") or {}
        except BackendError:
            return ""
        now, most = counts.get("current") or 0, counts.get("limit") or 0
        # A program that starts needs a few for a moment.
        if not 0 < most <= now + _START_PROCESSES:
            return ""
        return (
            f"; it has {now} of the {most} processes that it may have (pids_limit): end some, or allow more"
        )

    def resize(self, identity: str, columns: int, rows: int) -> None:
        """Tell a terminal its size; one whose program has ended takes none."""
        try:
            with self._errors("resize a terminal"):
                self._api.exec_resize(identity, height=rows, width=columns)
        except ConnectionLost:
            raise
        except BackendError:
            if self.inspect(identity)["Running"]:
                raise

    def hang_up(self, container: str, mark: str) -> None:
        """Tell the programs of a terminal that it is gone."""
        with self._errors("close a terminal"):
            made = self._api.exec_create(container, ["sh", "-c", _HANG_UP, mark], stdout=False, stderr=False)
            self._api.exec_start(made["Id"], detach=True)


class DockerProcess:
    """A program in a container. Docker makes each one the leader of its own session."""

    def __init__(
        self, calls: DaemonCalls, container: str, identity: str, wire: Wire, slow: SlowReaders
    ) -> None:
        self._calls = calls
        self._container = container
        self._identity = identity
        self._wire = wire
        self._slow = slow
        self._terminal_mark: str | None = None
        self._demux: Demux | None = Demux()
        self._reading = threading.Lock()
        self._writing = threading.Lock()
        self._first = True
        self._saved: list[bytes] = []
        self._read_at_s = time.monotonic()
        self._status: int | None = None
        self._state_at_s = time.monotonic()
        self._killed_s = -_DYING_S
        self._started = True
        self._closed = False

    @classmethod
    def start(
        cls,
        calls: DaemonCalls,
        container: str,
        request: SpawnRequest,
        env: Mapping[str, str],
        slow: SlowReaders,
    ) -> DockerProcess:
        """Start a program. The daemon's words about one that cannot start come with the first read."""
        env = {**env, **request.env}
        size, mark = None, None
        if request.pty is not None:
            mark = f"{_TERMINAL_MARK}={secrets.token_hex(12)}"
            env[_TERMINAL_MARK] = mark.partition("=")[2]
            size = (request.pty.columns, request.pty.rows)
        identity, wire = calls.start(container, list(request.argv), env, size)
        process = cls(calls, container, identity, wire, slow)
        if size is not None:
            process._terminal_mark, process._demux = mark, None
            # It was started with this size, which old daemons pass over. If it did not start, read tells.
            with contextlib.suppress(BackendError):
                process.resize(*size)
        slow.watch(process)
        return process

    def read(self, timeout_s: float) -> Chunk:
        """See Process.read."""
        with self._reading:
            self._read_at_s = time.monotonic()
            if self._closed:
                return Chunk(eof=True)
            data = self._saved.pop(0) if self._saved else self._receive(timeout_s)
            self._read_at_s = time.monotonic()
            if data is None:
                return Chunk()
            if not data:
                return Chunk(eof=self._is_end(timeout_s))
            if self._demux is None:
                self._check_started(data)
                return Chunk(stdout=data)
            out, err = self._demux.feed(data)
            self._check_started(out)
            return Chunk(out, err)

    def write(self, data: bytes, timeout_s: float) -> int:
        """See Process.write."""
        with self._writing:
            if self._closed:
                return len(data)
            try:
                return self._wire.send(data, timeout_s)
            except OSError:
                # The program has ended; if it is the daemon that has, read tells.
                return len(data)

    def close_stdin(self) -> None:
        """See Process.close_stdin."""
        with self._writing:
            if self._demux is not None and not self._closed:
                self._wire.end_sending()

    def resize(self, columns: int, rows: int) -> None:
        """See Process.resize."""
        if self._terminal_mark is not None and not self._closed:
            self._calls.resize(self._identity, columns, rows)

    def poll(self) -> int | None:
        """See Process.poll. Raises PlaceUnavailable if the container died, or is paused."""
        if self._status is not None:
            return self._status
        now_s = time.monotonic()
        if now_s < self._killed_s + _DYING_S:
            return None
        try:
            told = self._calls.inspect(self._identity)
        except PlaceUnavailable:
            # With the container, its programs are forgotten.
            self._require_container()
            raise
        status = None if told["Running"] else told["ExitCode"]
        self._started = bool(told["Running"] or told["Pid"])
        if status == _KILLED:
            self._require_container()
            if self._killed_s < 0:
                self._killed_s = now_s
                return None
        elif status is None and now_s - self._state_at_s > _STATE_EVERY_S:
            # A paused container answers for its programs as if they ran.
            self._state_at_s = now_s
            self._require_container()
        self._status = None if status is None else int(status)
        return self._status

    def close(self) -> None:
        """See Process.close."""
        if self._closed:
            return
        self._closed = True
        self._slow.forget(self)
        self._wire.interrupt()
        with self._reading, self._writing:
            self._wire.close()
            self._saved.clear()
        if self._terminal_mark is not None and self._status is None:
            try:
                if self.poll() is None:
                    self._calls.hang_up(self._container, self._terminal_mark)
            except BackendError:
                return  # a container that is gone has no terminals

    def rescue(self) -> None:
        """Take what an ended program left in the daemon, if nobody has read for a while (see SlowReaders)."""
        if time.monotonic() - self._read_at_s < _WATCH_EVERY_S or not self._reading.acquire(blocking=False):
            return
        try:
            if self._closed or self._saved or not self._wire.pending():
                return
            # The daemon forgets a status after some minutes; this keeps that of a program nobody asks about.
            if self.poll() is None:
                return
            size, data = 0, self._receive(_WATCH_EVERY_S)
            while data and size < _SAVED_BYTES:
                self._saved.append(data)
                size += len(data)
                data = self._receive(_WATCH_EVERY_S)
        except BackendError:
            return  # the next read meets it
        finally:
            self._reading.release()

    def _receive(self, timeout_s: float) -> bytes | None:
        try:
            return self._wire.receive(timeout_s)
        except OSError as error:
            self._require_container()
            # So the daemon leaves a program that ended before it took all its input; its output came before.
            if isinstance(error, ConnectionResetError) and self._ends_within(_DYING_S):
                return b""
            raise ConnectionLost(f"the Docker daemon broke the connection: {error}") from error

    def _check_started(self, data: bytes) -> None:
        """A program that could not be started has the daemon's words in its output, or nothing at all."""
        if not self._first or not data:
            return
        self._first = False
        if data.startswith(_NOT_STARTED):
            told = self._calls.inspect(self._identity)
            if not told["Running"] and not told["Pid"]:
                raise self._not_started(data)

    def _not_started(self, said: bytes) -> BackendError:
        words = said.decode("utf-8", "replace").strip() or "the daemon does not say why"
        crowd = self._calls.crowd(self._container)
        return BackendError(f"the container cannot start the program: {words}{crowd}")

    def _is_end(self, timeout_s: float) -> bool:
        """The end of the stream is the program's only if the container and the daemon are still there."""
        if self._closed:
            return True
        if self.poll() is not None or self._killed_s < 0:
            if self._first and not self._started:
                raise self._not_started(b"")
            return True
        time.sleep(min(timeout_s, _DYING_S))
        return False

    def _ends_within(self, limit_s: float) -> bool:
        until_s = time.monotonic() + limit_s
        while self.poll() is None and self._killed_s < 0:
            if time.monotonic() > until_s:
                return False
            time.sleep(limit_s / 20)
        return True

    def _require_container(self) -> None:
        usable, words = self._calls.state(self._container)
        if not usable:
            raise PlaceUnavailable(f"the container is {words}")


class SlowReaders:
    """Saves the output of programs whose caller is slow to read it.

    dockerd drops what it still holds of a program's output two seconds after the program has
    ended. While the program runs, not reading holds it back, as it should; once it has ended, the rest
    (a megabyte or two) is taken into memory instead. One thread for a whole backend, while programs run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: set[DockerProcess] = set()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, process: DockerProcess) -> None:
        """Look after this program until it is forgotten."""
        with self._lock:
            self._watched.add(process)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True, name="coderig-docker-slow")
                self._thread.start()

    def forget(self, process: DockerProcess) -> None:
        """The program is closed."""
        with self._lock:
            self._watched.discard(process)

    def close(self) -> None:
        """Forget all."""
        with self._lock:
            self._watched.clear()
        self._wake.set()

    def _run(self) -> None:
        while True:
            self._wake.wait(_WATCH_EVERY_S)
            with self._lock:
                watched = list(self._watched)
                if not watched:
                    self._thread = None
                    self._wake.clear()
                    return
            for process in watched:
                process.rescue()
