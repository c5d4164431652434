"""Shells that wait for commands: nothing but the time that a command takes may tell that there are any."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import COLD, PLACES, Place, needs, open_place
from services.ssh_service import SshService, start_sshd

from sandbox import BackendError, Closed, LocalSandbox, RequestError, Sandbox, SSHSandbox, lane, warm
from sandbox.backend import Process
from sandbox.backends.local import LocalBackend
from sandbox.backends.ssh import SshOptions
from sandbox.values import Ahead, SpawnRequest

LANES = [
    pytest.param("ssh", marks=pytest.mark.ssh),
    pytest.param("docker-debian", marks=pytest.mark.docker),
    pytest.param("docker-busybox", marks=pytest.mark.docker),
]
# How long the shell of a command has run when the command begins, in ticks of 1/100 s.
AGE = (
    "read -r up rest </proc/uptime; read -r line </proc/$$/stat; set -- ${line##*) }; "
    "shift 19; echo $((${up%.*}${up#*.} - $1))"
)
# What is another with each command, or in another container.
OWN = "^CODERIG_E\\|PWD\\|PATH=\\|PID\\|^RAND\\|^SEC\\|^EPOCH\\|^SRAND\\|^SSH_C\\|^HOSTN\\|^BASH_ARG\\|^HOME="
# Ends what waits for a command, in the place: launchers know their line's variable, lanes their secret's.
# This shell's own line is in its memory, not in its arguments.
KILL_WAITING = (
    "for d in /proc/[0-9]*; do p=${d#/proc/}; [ $p != $$ ] && [ $p != $PPID ] && "
    '{ tr "\\0" " " <$d/cmdline | grep -q "cr_lin[e]\\|cr_secre[t]"; } '
    "2>/dev/null && kill -9 $p; done; :"
)


class LaneBackend(LocalBackend):
    """This machine, as one where starting a program is dear."""

    ahead = Ahead(programs=2, shared=True)


def until(condition: Callable[[], bool], limit_s: float = 20.0) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def waiting(box: Sandbox) -> int:
    """How many shells or lanes wait for a command."""
    launchers = box._executor._launchers
    return sum(len(each) for each in launchers._waiting.values())


def warmed(box: Sandbox) -> Sandbox:
    box.exec("true")
    until(lambda: waiting(box) >= 2)
    return box


@pytest.fixture
def lanes() -> Iterator[Sandbox]:
    with Sandbox(LaneBackend(), name="lanes", directory="/tmp") as box:
        yield warmed(box)


@pytest.fixture(scope="module", params=[pytest.param(name, marks=needs(name)) for name in PLACES])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Place]]:
    """A place with shells that wait, and the same without."""
    directory = tmp_path_factory.mktemp("pair")
    (directory / "w").mkdir()
    (directory / "c").mkdir()
    with (
        open_place(request.param, request, directory / "w") as one,
        open_place(request.param + COLD, request, directory / "c") as other,
    ):
        yield [one, other]


@pytest.mark.spec("WX-01")
def test_a_command_begins_in_a_shell_that_waited(pair: list[Place]) -> None:
    with_waiting, without = (place.box for place in pair)
    warmed(with_waiting)
    time.sleep(0.3)  # so that the age of what waits can be told from that of a new shell
    assert int(with_waiting.exec(AGE).stdout) >= 25
    assert int(without.exec(AGE).stdout) < 25


@pytest.mark.spec("WX-02")
@pytest.mark.parametrize(
    "probe",
    [
        f"env | grep -v '{OWN}' | sort",
        f"set | grep -v '{OWN}'",
        "umask; ulimit -a | grep -v mem; trap",
        "echo $- $0 $# ${SHLVL-none} ${BASH_SUBSHELL-none} $LINENO; set -o",
        "grep '^Sig[^Q]\\|^Shd\\|^Cap\\|^NoNew\\|^Secc\\|^Groups\\|^Uid\\|^Umask' /proc/self/status",
        "for f in /proc/self/fd/*; do [ -e $f ] && if [ -p $f ]; then echo pipe $f; else echo $f; fi; done",
        "read -r line </proc/$$/stat; set -- ${line##*) }; [ $3 = $$ ] && [ $4 = $$ ] && echo own session $5",
        "cat /proc/$$/oom_score_adj; cut -d' ' -f18,19 /proc/$$/stat; jobs; alias; wait; echo $?",
    ],
)
def test_a_command_finds_what_it_would_find_in_a_new_shell(pair: list[Place], probe: str) -> None:
    with_waiting, without = (place.box for place in pair)
    warmed(with_waiting)
    for _ in range(2):
        found, expected = with_waiting.exec(probe), without.exec(probe)
        assert found.stdout == expected.stdout
        assert (found.stderr, found.exit_code) == (expected.stderr, expected.exit_code)


@pytest.mark.spec("WX-03")
def test_nothing_lasts_from_one_command_to_the_next(place: Place) -> None:
    box = warmed(place.box)
    dirty = "cd /; umask 077; x=1; export y=1; set -u; trap 'echo no' EXIT TERM; exec 7>&1; f() { :; }"
    probe = "pwd; umask; echo ${x-u}${y-u} $-; trap; [ -e /proc/self/fd/7 ] || echo closed; f"
    for _ in range(4):
        expected = box.exec(probe)
        box.exec(dirty)
        found = box.exec(probe)
        assert (found.stdout, found.exit_code) == (expected.stdout, 127)
        assert "closed" in found.stdout


LEFT_BEHIND = [
    "(sleep 0.3; echo LATE; echo LATE >&2) &",
    "setsid sh -c 'sleep 0.3; echo LATE; echo LATE >&2' &",
    "(env -i sh -c 'sleep 0.3; echo LATE' &)",
    "(sh -c 'sleep 0.3; echo LATE >&7' 7>&1 >/dev/null 2>&1 </dev/null &)",
]


@pytest.mark.spec("WX-04")
@pytest.mark.parametrize("command", LEFT_BEHIND)
def test_what_a_command_left_behind_never_reaches_the_next(place: Place, command: str) -> None:
    box = warmed(place.box)
    assert box.exec(f"{command}\necho now").stdout == "now\n"
    end = time.monotonic() + 0.6
    while time.monotonic() < end:
        result = box.exec("echo out; echo err >&2; exit 5")
        assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 5)


@pytest.mark.spec("WX-05")
def test_flags_that_a_command_sets_on_its_output_do_not_last(lanes: Sandbox) -> None:
    for stream in (1, 2):
        nonblocking = f"python3 -c 'import os; os.set_blocking({stream}, False)'"
        assert lanes.exec(nonblocking).exit_code == 0
        for _ in range(3):
            result = lanes.exec(
                f"head -c 3000000 /dev/zero >&{stream}", on_output=lambda *_: time.sleep(0.001)
            )
            total = sum(
                each.dropped_bytes + len(each.data) for each in (result.stdout_output, result.stderr_output)
            )
            assert (result.exit_code, total) == (0, 3_000_000)


@pytest.mark.spec("WX-06")
def test_what_waits_may_die_and_no_command_is_lost(place: Place) -> None:
    box = warmed(place.box)
    for _ in range(3):
        assert box.exec(KILL_WAITING).exit_code == 0
        for number in range(4):
            assert box.exec(f"echo {number}").stdout == f"{number}\n"
            assert box.exec("cat; exit 3", stdin=b"in").stdout == "in"


@pytest.mark.spec("WX-06")
@pytest.mark.ssh
def test_a_connection_that_was_lost_while_nothing_ran_costs_no_command() -> None:
    with start_sshd() as server, SSHSandbox(_options(server), "/tmp") as box:
        for number in range(3):
            warmed(box)
            box.exec("cat", stdin=b"x")
            # The lane's parent is the process that serves the connection.
            connection = box.exec(
                "read -r line </proc/$PPID/stat; set -- ${line##*) }; echo $2"
            ).stdout.strip()
            os.kill(int(connection), signal.SIGKILL)
            until(lambda: not any(each.alive for each in box.backend._connections))  # type: ignore[attr-defined]
            assert box.exec(f"echo {number}").stdout == f"{number}\n"


@pytest.mark.spec("WX-07")
@pytest.mark.parametrize("pair", LANES, indirect=True)
def test_a_command_that_kills_its_watcher_is_told_as_unknown_and_ended(pair: list[Place]) -> None:
    box = warmed(pair[0].box)
    for name in ("TERM", "HUP", "INT"):
        result = box.exec(f"kill -{name} $PPID; sleep 0.05; echo still; exit 3")
        assert (result.stdout, result.exit_code) == ("still\n", 3)
    with pytest.raises(BackendError, match="unknown") as caught:
        box.exec("echo before; kill -9 $PPID; sleep 7337", timeout_s=10)
    assert caught.value.stdout == b"before\n"
    assert pair[0].processes("sleep 7337") == []
    assert box.exec("echo next").stdout == "next\n"


@pytest.mark.spec("WX-08")
@pytest.mark.parametrize("size", [0, 1, 10, 4_096, 70_000, 900_000, 1 << 20, 1_500_000])
def test_input_of_any_size_is_the_commands_alone(place: Place, size: int) -> None:
    box = place.box
    box.exec("cat", stdin=b"first")
    data = (b"line \x00\xff\x1e;\n" * (size // 10 + 1))[:size]
    limit = 2 * size + 10
    assert box.exec("cat", stdin=data, limit_bytes=limit).stdout_output.data == data
    assert box.exec("head -c 3 >/dev/null; echo part", stdin=data).stdout == "part\n"
    assert box.exec("exec <&-; echo none", stdin=data).stdout == "none\n"
    assert box.exec(["cat"], stdin=data, limit_bytes=limit).stdout_output.data == data
    assert box.exec("cat").stdout == ""


@pytest.mark.spec("WX-09")
def test_what_waits_ends_when_nothing_happens(lanes: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "IDLE_S", 0.2)
    lanes.exec("cat", stdin=b"x")
    until(lambda: waiting(lanes) == 0)
    assert lanes.exec("echo again").stdout == "again\n"


@pytest.mark.spec("WX-09")
def test_the_number_that_waits_is_bounded(lanes: Sandbox) -> None:
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda n: lanes.exec("sleep 0.02; cat", stdin=b"x" if n % 2 else None), range(60)))
    until(lambda: waiting(lanes) == 3)
    assert waiting(lanes) == 3  # two, and one for commands with input


@pytest.mark.spec("WX-10")
@pytest.mark.parametrize("kind", [LocalBackend, LaneBackend])
def test_closing_ends_what_waits(kind: type[LocalBackend]) -> None:
    before = _children()
    box = warmed(Sandbox(kind(), name="x", directory="/tmp"))
    box.exec("cat", stdin=b"x")
    assert len(_children() - before) >= 2
    box.close()
    until(lambda: not _children() - before)


def _children() -> set[str]:
    """The processes that live below this one, by pid."""
    parents: dict[str, str] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(") ")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            parents[stat.parent.name] = fields[1]
    found, more = {str(os.getpid())}, True
    while more:
        below = {pid for pid, parent in parents.items() if parent in found}
        more = not below <= found
        found |= below
    return found - {str(os.getpid())}


@pytest.mark.spec("WX-11")
@pytest.mark.parametrize("missing", ["setsid", "head"])
def test_a_place_that_cannot_have_lanes_works_without(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for program in Path("/usr/bin").iterdir():
        if program.name != missing:
            (tmp_path / program.name).symlink_to(program)
    monkeypatch.setenv("PATH", str(tmp_path))
    with Sandbox(LaneBackend(), name="x", directory="/tmp") as box:
        for number in range(5):
            assert box.exec(f"cat; exit {number}", stdin=b"in").exit_code == number
            assert box.exec(f"echo {number}").stdout == f"{number}\n"


@pytest.mark.spec("WX-16")
@pytest.mark.parametrize("error", [BackendError("no"), RequestError("no"), Closed("no"), OSError("no")])
def test_nothing_that_fails_ahead_is_seen(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    spawn, refused = LocalBackend.spawn, threading.Event()

    def refuse(backend: LocalBackend, request: SpawnRequest) -> Process:
        if request.spare:
            refused.set()
            raise error
        return spawn(backend, request)

    monkeypatch.setattr(LocalBackend, "spawn", refuse)
    with LocalSandbox("/") as box:
        for _ in range(2):
            assert box.exec("echo a").stdout == "a\n"
            assert refused.wait(20)  # an exception that a thread does not catch fails the test


@pytest.mark.spec("WX-12")
@pytest.mark.ssh
def test_what_waits_gives_its_channels_back_when_they_are_needed() -> None:
    with start_sshd(max_sessions=3) as server, SSHSandbox(_options(server, max_connections=1), "/tmp") as box:
        warmed(box)
        shells = [box.shell(f"s{n}") for n in range(3)]
        assert [shell.run("echo hi").output for shell in shells] == ["hi\n"] * 3


def _options(server: SshService, max_connections: int = 4) -> SshOptions:
    return SshOptions(
        host=server.host,
        port=server.port,
        user=server.user,
        identity_file=str(server.identity_file),
        known_hosts_file=str(server.known_hosts_file),
        use_ssh_config=False,
        max_connections=max_connections,
    )


@pytest.mark.spec("WX-13")
@given(
    pieces=st.lists(
        st.one_of(st.binary(max_size=40), st.sampled_from([b"\x1e", b"\x1eab", b"\x1eabc", b";"]))
    ),
    cuts=st.lists(st.integers(1, 12), max_size=40),
    left=st.booleans(),
)
def test_marks_are_taken_out_wherever_the_stream_is_cut(
    pieces: list[bytes], cuts: list[int], left: bool
) -> None:
    secret = b"\x1eabcd0123"
    data = b"".join(pieces).replace(secret, b"")
    stream = data + secret + b"W;" + data + secret + (b"L7;" if left else b"E7;") + b"rest"
    finder = lane.MarkFinder(secret)
    out, at = b"", 0
    for cut in [*cuts, len(stream)]:
        out += finder.feed(stream[at : at + cut])
        at += cut
    assert finder.found == {"W": 0, "L" if left else "E": 7}
    assert (out, finder.rest()) == ((data + data + b"rest", b"") if left else (data + data, b"rest"))


@pytest.mark.spec("WX-14")
def test_many_at_once_on_lanes_never_mix(lanes: Sandbox) -> None:
    def one(number: int) -> None:
        data = str(number).encode() * 50 if number % 3 == 0 else None
        left = "(sleep 0.05; echo LATE) &" if number % 7 == 0 else ""
        result = lanes.exec(
            f"{left} echo {number}; cat; echo e{number} >&2; exit {number}", stdin=data, timeout_s=50
        )
        expected = f"{number}\n{(data or b'').decode()}"
        assert result.stdout.replace("LATE\n", "") == expected
        assert (result.stderr, result.exit_code) == (f"e{number}\n", number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(150)))


@pytest.mark.spec("WX-15")
def test_nothing_waits_where_that_is_not_wanted() -> None:
    with LocalSandbox("/", warm=False) as box:
        for _ in range(3):
            box.exec("true")
        assert waiting(box) == 0
