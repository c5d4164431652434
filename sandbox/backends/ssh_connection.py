"""One SSH connection that is logged in: channels, the programs on them, and finding a dead peer."""

from __future__ import annotations

import contextlib
import logging
import select
import signal
import socket
import threading
import time

import paramiko
from paramiko.common import (
    MSG_CHANNEL_CLOSE,
    MSG_CHANNEL_FAILURE,
    MSG_CHANNEL_REQUEST,
    cMSG_CHANNEL_REQUEST,
    cMSG_CHANNEL_WINDOW_ADJUST,
    cMSG_GLOBAL_REQUEST,
)
from paramiko.message import Message
from paramiko.packet import Packetizer

from sandbox.errors import BackendError
from sandbox.values import PtySize

LOGGER_NAME = "sandbox.backends.ssh"
UNKNOWN_SIGNAL_STATUS = 255
"""Status of a program that a signal ended which has no name in the protocol."""
_JOIN_S = 5.0
_REAPING_S = 1.0

# paramiko logs stack traces of failures that are raised as exceptions anyhow. To see them all the same:
# logging.getLogger(LOGGER_NAME).setLevel(logging.DEBUG).
logging.getLogger(LOGGER_NAME).setLevel(logging.CRITICAL + 1)


SEND_FAILURES = (paramiko.SSHException, EOFError, OSError)
"""What paramiko raises when a connection turns out to be dead."""


class ChannelRefused(Exception):
    """The server refused one more channel; the connection lives, and nothing was run."""


class ConnectionGone(Exception):
    """The connection is dead; nothing was run."""


class Program:
    """A channel on which a program was started, and what the server has said of the program.

    wake     set whenever something came: output, end of file, status, the end of the channel
    status   exit status as a shell gives it, once known
    refused  the server would not start the program, or gave it no terminal
    over     the server itself closed the channel
    """

    def __init__(self, connection: Connection, channel: paramiko.Channel) -> None:
        self.connection = connection
        self.channel = channel
        self.wake = threading.Event()
        self.status: int | None = None
        self.refused = False
        self.over = False
        self._taken = 0
        channel.settimeout(0.0)
        channel.in_buffer.set_event(_Waker(self.wake))
        channel.in_stderr_buffer.set_event(_Waker(self.wake))

    @property
    def lost(self) -> bool:
        """Whether nothing more will come, though the server did not close the channel."""
        # paramiko closes the channels of a dead connection before it calls it dead.
        return not self.over and (self.channel.closed or not self.connection.alive)

    def start(self, line: bytes, pty: PtySize | None, term: str) -> None:
        """Ask for the program. The answer is not waited for, which saves a round trip or two: the
        server takes requests in order, and a refusal is found when the output is read.

        Raises ConnectionGone if the request could not be sent whole, so that nothing was run."""
        try:
            self._ask(line, pty, term)
        except SEND_FAILURES as error:
            self.connection.lose(str(error) or "the server closed it")
            raise ConnectionGone(self.connection.lost_reason) from error

    def take(self, limit_bytes: int) -> tuple[bytes, bytes]:
        """Output and errors that are here, up to so many bytes of each. One caller at a time."""
        channel = self.channel
        out = channel.in_buffer.read(limit_bytes, 0.0) if channel.recv_ready() else b""
        err = channel.in_stderr_buffer.read(limit_bytes, 0.0) if channel.recv_stderr_ready() else b""
        self._taken += len(out) + len(err)
        # Room is given back in pieces; paramiko's own `recv` drops what it has if this cannot be sent.
        if self._taken > channel.in_window_threshold and not (channel.eof_received or channel.closed):
            message = Message()
            message.add_byte(cMSG_CHANNEL_WINDOW_ADJUST)
            message.add_int(channel.remote_chanid)
            message.add_int(self._taken)
            self._taken = 0
            with contextlib.suppress(*SEND_FAILURES):
                self.connection.transport.send(message)
        return out, err

    def _ask(self, line: bytes, pty: PtySize | None, term: str) -> None:
        if pty is not None:
            message = self._request("pty-req")
            message.add_string(term)
            for number in (pty.columns, pty.rows, 0, 0):
                message.add_int(number)
            message.add_string(b"")
            self.connection.transport.send(message)
        message = self._request("exec")
        message.add_string(line)
        self.connection.transport.send(message)

    def close(self) -> None:
        """Give the channel back."""
        with contextlib.suppress(*SEND_FAILURES):
            self.channel.close()
        self.wake.set()

    def _request(self, kind: str) -> Message:
        message = Message()
        message.add_byte(cMSG_CHANNEL_REQUEST)
        message.add_int(self.channel.remote_chanid)
        message.add_string(kind)
        message.add_boolean(True)
        return message


class _Waker(threading.Event):
    """What paramiko's buffers signal. They would clear it when one of the two runs empty."""

    def __init__(self, wake: threading.Event) -> None:
        super().__init__()
        self._wake = wake

    def set(self) -> None:
        self._wake.set()

    def clear(self) -> None:
        return


class _Packetizer(Packetizer):
    """Remembers when the peer was last heard."""

    last_received_s = 0.0

    def read_message(self) -> tuple[int, Message]:
        got = super().read_message()
        self.last_received_s = time.monotonic()
        return got


class Transport(paramiko.Transport):
    """paramiko's transport, with three things that it lacks: the signal that ended a program, refusals
    that are told apart from closing, and requests that do not wait for their answer."""

    def __init__(self, sock: socket.socket | paramiko.Channel) -> None:
        super().__init__(sock, packetizer_class=_Packetizer)
        self.set_log_channel(LOGGER_NAME)
        self.programs: dict[int, Program] = {}
        self.closed_s = -_REAPING_S
        self._handlers = dict(paramiko.Transport._channel_handler_table)  # type: ignore[attr-defined]
        self._channel_handler_table = {
            **self._handlers,
            MSG_CHANNEL_REQUEST: self._on_request,
            MSG_CHANNEL_FAILURE: self._on_failure,
            MSG_CHANNEL_CLOSE: self._on_close,
        }

    def send(self, message: Message) -> None:
        """Send, or drop it if the connection is dead (which the reader of the answer will find)."""
        self._send_user_message(message)  # type: ignore[attr-defined]

    @property
    def last_received_s(self) -> float:
        """When the peer was last heard, on the monotonic clock."""
        assert isinstance(self.packetizer, _Packetizer)
        return self.packetizer.last_received_s

    def _on_request(self, channel: paramiko.Channel, message: Message) -> None:
        program = self.programs.get(channel.get_id())
        kind = message.get_text()
        if program is not None and kind == "exit-signal":
            message.get_boolean()
            program.status = _signal_status(message.get_text())
        else:
            if program is not None and kind == "exit-status":
                message.get_boolean()
                program.status = message.get_int() & 0xFF
            message.rewind()
            message.get_int()
            self._handlers[MSG_CHANNEL_REQUEST](channel, message)
        if program is not None:
            program.wake.set()

    def _on_failure(self, channel: paramiko.Channel, message: Message) -> None:
        program = self.programs.get(channel.get_id())
        if program is not None:
            program.refused = True
        self._handlers[MSG_CHANNEL_FAILURE](channel, message)

    def _on_close(self, channel: paramiko.Channel, message: Message) -> None:
        program = self.programs.pop(channel.get_id(), None)
        if program is not None:
            program.over = True
            self.closed_s = time.monotonic()
        self._handlers[MSG_CHANNEL_CLOSE](channel, message)
        # It comes only once. paramiko would remember every channel for as long as the connection lives.
        self.channels_seen.pop(channel.get_id(), None)


def _signal_status(name: str) -> int:
    try:
        return 128 + signal.Signals[f"SIG{name}"]
    except KeyError:
        return UNKNOWN_SIGNAL_STATUS


class Connection:
    """A connection that is logged in. Thread-safe.

    name         "user@host:port", for people
    carrier      the connection to a jump host that this one runs through, closed with it
    keepalive_s  a peer that says nothing for this long is asked; one that is silent for as long
                 again is dead. 0: never asked
    """

    def __init__(
        self, transport: Transport, name: str, *, keepalive_s: float, carrier: Connection | None = None
    ) -> None:
        self.transport = transport
        self.name = name
        self.lost_reason = ""
        self._served = False
        self._openings = 0
        self._opening = threading.Lock()
        self._carrier = carrier
        self._keepalive_s = keepalive_s
        self._stop = threading.Event()
        self._watcher: threading.Thread | None = None
        if keepalive_s > 0:
            self._watcher = threading.Thread(target=self._watch, daemon=True, name="coderig-ssh-keepalive")
            self._watcher.start()

    @property
    def alive(self) -> bool:
        """Whether the connection still stands, as far as is known."""
        return self.transport.is_active()

    @property
    def why(self) -> str:
        """Why it is dead, in words."""
        return self.lost_reason or str(self.transport.saved_exception or "") or "the server closed it"

    @property
    def serves(self) -> bool:
        """Whether a channel was ever opened, or another caller may have got one that it has not seen yet."""
        with self._opening:
            return self._served or self._openings > 0

    @property
    def open_programs(self) -> int:
        """How many channels the server has not closed yet."""
        return len(self.transport.programs)

    @property
    def makes_room(self) -> bool:
        """Whether a channel is closed on our side, but not yet on the server's, or was so a moment ago.

        sshd counts a session until the session's process has been reaped."""
        if time.monotonic() < self.transport.closed_s + _REAPING_S:
            return True
        return any(program.channel.closed for program in list(self.transport.programs.values()))

    def open(self, timeout_s: float) -> Program:
        """Open a channel: one round trip. Raises ChannelRefused or ConnectionGone."""
        with self._opening:
            self._openings += 1
        try:
            channel = self.transport.open_session(timeout=timeout_s)
            self._served = True
        except paramiko.ChannelException as error:
            raise ChannelRefused(str(error)) from error
        except SEND_FAILURES as error:
            # Two refusals at once: paramiko gives the reason to one of the two callers only.
            if self.alive and "Unable to open channel" in str(error):
                raise ChannelRefused("refused") from error
            self.lose(str(error) or "the server closed it")
            raise ConnectionGone(self.lost_reason) from error
        finally:
            with self._opening:
                self._openings -= 1
        program = Program(self, channel)
        self.transport.programs[channel.get_id()] = program
        return program

    def tunnel(self, host: str, port: int, timeout_s: float) -> paramiko.Channel:
        """A TCP connection made by the far end. Raises BackendError if it cannot be made."""
        try:
            return self.transport.open_channel(
                "direct-tcpip", (host, port), ("127.0.0.1", 0), timeout=timeout_s
            )
        except SEND_FAILURES as error:
            raise BackendError(f"{self.name} cannot reach {host} port {port}: {error}") from error

    def lose(self, reason: str) -> None:
        """Give the connection up: everything that waits on it is told."""
        self.lost_reason = self.lost_reason or reason
        close_transport(self.transport)
        self._stop.set()

    def close(self) -> None:
        """End the connection and its threads. Idempotent."""
        self.lose("it was closed")
        for thread in (self.transport, self._watcher):
            if thread is not None and thread is not threading.current_thread() and thread.is_alive():
                thread.join(_JOIN_S)
        if self._carrier is not None:
            self._carrier.close()

    def _watch(self) -> None:
        """Find a peer that is gone without a word; TCP alone may take hours or never know."""
        asked_s = 0.0
        while self.alive:
            heard_s = self.transport.last_received_s
            now_s = time.monotonic()
            due_s = heard_s + self._keepalive_s
            if now_s >= due_s:
                if asked_s <= heard_s:
                    asked_s = now_s
                    self._ask()
                elif now_s >= asked_s + self._keepalive_s:
                    self.lose(f"the server has not answered for {now_s - heard_s:.0f} s")
                    return
                due_s = asked_s + self._keepalive_s
            if self._stop.wait(max(0.01, due_s - now_s)):
                return

    def _ask(self) -> None:
        # When nothing more can be sent, asking would block; the silence is counted all the same.
        if not _writable(self.transport.sock):
            return
        message = Message()
        message.add_byte(cMSG_GLOBAL_REQUEST)
        message.add_string("keepalive@openssh.com")
        message.add_boolean(True)
        with contextlib.suppress(*SEND_FAILURES):
            self.transport.send(message)


def close_transport(transport: Transport) -> None:
    """Close the socket under a transport so that its thread sees it at once, and drop its timer."""
    with contextlib.suppress(*SEND_FAILURES):
        transport.sock.shutdown(socket.SHUT_RDWR)
    transport.packetizer.complete_handshake()
    if transport.is_alive() and transport is not threading.current_thread():
        transport.join(_JOIN_S)
    transport.close()
    with contextlib.suppress(OSError):
        transport.sock.close()


def _writable(sock: socket.socket | paramiko.Channel) -> bool:
    if isinstance(sock, paramiko.Channel):
        return sock.send_ready()
    try:
        poller = select.poll()
        poller.register(sock, select.POLLOUT)
        return bool(poller.poll(0))
    except (OSError, ValueError):
        return False  # closed meanwhile
