"""Working with real programs on a terminal, on every place: typing, polling, interrupting, the screen."""

from __future__ import annotations

import hashlib
import re
import secrets
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from places import Place

from sandbox import RequestError, Shell, ShellResult

LIMIT_S = 30.0

# What each place has: a difference in what is installed is no difference in meaning.
PYTHON = {"docker-busybox": ""}
ENDLESS = b"exec('print(1000+1)\\nwhile True: pass')\n"
REPLS = {
    "python": ("exec python3 -q", b"6*7\n", "42", ENDLESS, b"raise SystemExit(3)\n"),
    "shell": (
        "exec sh -i",
        b"echo $((6*7))\n",
        "42",
        b"echo $((1000+1)); while :; do :; done\n",
        b"exit 3\n",
    ),
}
PAGERS = {"docker-debian": "more", "docker-busybox": "less"}
EDITORS = {"docker-busybox": "vi"}


@pytest.fixture
def shell(place: Place) -> Iterator[Shell]:
    """A new shell in the place, closed afterwards."""
    opened = place.box.shell(f"i-{secrets.token_hex(4)}")
    yield opened
    opened.close()


def left_running(shell: Shell, command: str) -> str:
    """A command that waits for what is typed; its output so far."""
    result = shell.run(command, stdin_tty=True, yield_s=0)
    assert result.running, result
    return result.output


def read_until(shell: Shell, wanted: str, seen: str = "", limit_s: float = LIMIT_S) -> str:
    """Poll until the output, with what was seen before, holds a text; the command runs on."""
    until_s = time.monotonic() + limit_s
    while wanted not in seen:
        assert time.monotonic() < until_s, f"{wanted!r} did not come: {seen[-500:]!r}"
        result = shell.poll(0.05)
        seen += result.output
        assert result.running or wanted in seen, result
    return seen


def end(shell: Shell, limit_s: float = LIMIT_S) -> ShellResult:
    """Poll to the end."""
    result = shell.poll(limit_s)
    assert not result.running, result
    return result


def wait_for_screen(shell: Shell, condition: Callable[[str], bool], limit_s: float = LIMIT_S) -> str:
    """The first screen that fits."""
    until_s = time.monotonic() + limit_s
    while not condition(shown := shell.screen()):
        assert time.monotonic() < until_s, shown
        time.sleep(0.01)
    return shown


def text(result: ShellResult) -> tuple[str, int | None]:
    return result.output, result.exit_code


def started(place: Place, words: str) -> None:
    """Until the program runs there, and has the terminal."""
    until_s = time.monotonic() + LIMIT_S
    while not place.processes(words):
        assert time.monotonic() < until_s, f"{words} did not start"


def usable(shell: Shell) -> bool:
    return text(shell.run("echo still here", timeout_s=20)) == ("still here\n", 0)


@pytest.mark.spec("IW-01")
def test_a_repl_is_talked_to_interrupted_and_left_with_its_status(place: Place, shell: Shell) -> None:
    start, question, answer, endless, leave = REPLS["python" if PYTHON.get(place.name, "yes") else "shell"]
    command = f"({start}); echo left:$?; (exit 5)"
    left_running(shell, command)
    shell.write(question)
    read_until(shell, answer)
    shell.write(endless)
    read_until(shell, "1001")
    shell.interrupt()
    shell.write(question)
    read_until(shell, answer)
    shell.write(leave)
    done = end(shell)
    assert "left:3" in done.output and done.exit_code == 5
    assert usable(shell)


@pytest.mark.spec("IW-02")
def test_ctrl_d_is_the_end_of_input_and_the_status_is_the_programs(shell: Shell) -> None:
    left_running(shell, "cat; echo end:$?; (exit 7)")
    shell.write(b"one\ntwo\n\x04")
    assert text(end(shell)) == ("one\ntwo\nend:0\n", 7)
    left_running(shell, "cat")
    shell.write(b"no line end\x04\x04")
    assert text(end(shell)) == ("no line end", 0)
    left_running(shell, "read -r x; echo $? [$x]")
    shell.write(b"\x04")
    assert text(end(shell)) == ("1 []\n", 0)


@pytest.mark.spec("IW-03", "IW-20")
def test_a_pager_is_seen_page_by_page(place: Place, shell: Shell) -> None:
    base = place.fresh()
    shell.run(f"cd {base}; i=1; while [ $i -le 100 ]; do echo line $i; i=$((i+1)); done >text")
    left_running(shell, f"{PAGERS.get(place.name, 'less')} text; echo left:$?")
    first = wait_for_screen(shell, lambda shown: "line 23" in shown).split("\n")
    assert first[:23] == [f"line {n}" for n in range(1, 24)] and len(first) == 24
    shell.write(b" ")
    second = wait_for_screen(shell, lambda shown: "line 40" in shown)
    assert "line 2\n" not in second
    shell.write(b"q")
    done = end(shell)
    assert done.output.rstrip().endswith("left:0") and done.exit_code == 0
    assert usable(shell)


@pytest.mark.spec("IW-04", "IW-20")
def test_an_editor_writes_what_was_typed_and_its_screen_is_right(place: Place, shell: Shell) -> None:
    editor = EDITORS.get(place.name, "vim -u NONE -N -n")
    base = place.fresh()
    shell.run(f"cd {base}; echo 'printed before'")
    left_running(shell, f"echo main screen; {editor} file")
    wait_for_screen(shell, lambda shown: "~\n~" in shown)
    shell.write(b"ihello\nw\xc3\xb6rld\n")
    long_line = b"x" * 20_000
    assert shell.write(long_line) == len(long_line)
    shell.write(b"\x1b")
    wait_for_screen(shell, lambda shown: not re.match("I |-- INSERT", shown.split("\n")[-1]))
    shell.write(b":1\r")
    wait_for_screen(shell, lambda shown: shown.startswith("hello\nw\xf6rld\n"))
    shell.resize(60, 12)
    wait_for_screen(
        shell, lambda shown: shown.startswith("hello\nw\xf6rld\n") and 9 < len(shown.split("\n")) <= 12
    )
    shell.write(b":wq\r")
    assert end(shell).exit_code == 0
    assert place.box.read_file(f"{base}/file") == "hello\nw\xf6rld\n".encode() + long_line + b"\n"
    assert usable(shell)


@pytest.mark.spec("IW-05")
def test_a_password_is_not_shown_and_arrives(shell: Shell) -> None:
    command = (
        "stty echo; stty -echo; printf 'Password: '; read -r pw; stty echo; echo; "
        'printf \'%s\' "$pw" | md5sum; read -r more; echo "[$more]"'
    )
    seen = read_until(shell, "Password: ", left_running(shell, command))
    shell.write(b"s3cret and m\xc3\xb6re\n")
    seen += read_until(shell, "\n")
    shell.write(b"shown\n")
    done = end(shell)
    assert "s3cret" not in seen + done.output
    assert hashlib.md5("s3cret and m\xf6re".encode()).hexdigest() in seen + done.output
    # The program had turned the echo on; the next command finds it off again.
    assert done.output.endswith("[shown]\n")
    assert text(shell.run("read -r x <<e\nquiet\ne\necho $x", timeout_s=20)) == ("quiet\n", 0)


@pytest.mark.spec("IW-06")
def test_a_server_is_left_running_polled_and_interrupted(shell: Shell) -> None:
    # Over several seconds of real time at its own pace; every number once, in order.
    command = "trap 'echo bye; exit 9' INT; i=0; while :; do echo tick $i; i=$((i+1)); sleep 0.01; done"
    first = left_running(shell, f"sh -c {shlex.quote(command)}")
    seen = read_until(shell, "tick 20\n", first)
    for wait_s in (0.0, 0.0, 0.2, 0.0, 0.05):
        seen += shell.poll(wait_s).output
    seen += read_until(shell, "tick 120\n")
    shell.interrupt()
    done = end(shell)
    seen += done.output
    numbers = [int(number) for number in re.findall(r"tick (\d+)\n", seen)]
    assert numbers == list(range(len(numbers))) and len(numbers) > 120
    assert seen.endswith("bye\n") and done.exit_code == 9
    assert usable(shell)


@pytest.mark.spec("IW-07")
@pytest.mark.parametrize(("key", "status"), [(b"\x03", 130), (b"\x1c", 131), (b"\x1a", 148)])
def test_keys_that_signal_give_the_status_that_a_shell_gives(
    place: Place, shell: Shell, key: bytes, status: int
) -> None:
    left_running(shell, "sleep 7201")
    started(place, "sleep 7201")
    shell.write(key)
    assert end(shell).exit_code == status
    assert usable(shell)


@pytest.mark.spec("IW-07")
def test_a_job_that_was_stopped_stays_in_its_shell(place: Place, shell: Shell) -> None:
    left_running(shell, "sleep 7202")
    started(place, "sleep 7202")
    shell.write(b"\x1a")
    assert end(shell).exit_code == 148
    assert "sleep 7202" in shell.run("jobs", timeout_s=20).output
    assert len(place.processes("sleep 7202")) == 1
    # Brought back, it is a command like any other.
    assert shell.run("fg", stdin_tty=True, yield_s=0.2).running
    shell.interrupt()
    assert end(shell).exit_code == 130
    assert place.processes("sleep 7202") == []


@pytest.mark.spec("IW-08")
def test_polls_give_every_byte_once_and_then_the_true_status(place: Place, shell: Shell) -> None:
    base = place.fresh()
    script = (
        f"cd {base}; i=0; while [ $i -lt 500 ]; do printf 'n%s \\303' $i; printf '\\251|'; i=$((i+1)); done; "
        "touch printed; until [ -e go ]; do sleep 0.01; done; printf last; (exit 42)"
    )
    first = shell.run(script, yield_s=0)
    assert first.running
    place.box.exec(f"cd {base}; until [ -e printed ]; do sleep 0.01; done", timeout_s=LIMIT_S)
    pieces = [first.output]
    while "n499 \xe9|" not in "".join(pieces):
        pieces.append(shell.poll(0).output)
    place.box.write_file(f"{base}/go", b"")
    done = end(shell)
    assert "".join([*pieces, done.output]) == "".join(f"n{i} \xe9|" for i in range(500)) + "last"
    assert (done.exit_code, done.cwd) == (42, base)
    with pytest.raises(RequestError, match="no command is running"):
        shell.poll(0)


@pytest.mark.spec("IW-08")
def test_an_end_between_two_polls_is_told_by_the_next_at_once(place: Place, shell: Shell) -> None:
    base = place.fresh()
    assert shell.run(f"until [ -e {base}/go ]; do sleep 0.01; done; echo out; false", yield_s=0).running
    place.box.write_file(f"{base}/go", b"")
    place.box.exec("sleep 0.5")
    with pytest.raises(RequestError, match="has ended, but nobody polled its end"):
        shell.run("true")
    done = shell.poll(0)
    assert (done.output, done.exit_code, done.running) == ("out\n", 1, False)


@pytest.mark.spec("IW-09")
@pytest.mark.parametrize(
    ("command", "status"), [("exit 5", 5), ("exec sh -c 'exit 6'", 6), ("kill -9 $$", 137)]
)
def test_a_shell_that_ends_meanwhile_is_told_with_its_status(
    place: Place, shell: Shell, command: str, status: int
) -> None:
    base = place.fresh()
    shell.run(f"cd {base}", timeout_s=20)
    script = f"echo before; until [ -e go ]; do sleep 0.01; done; echo after; {command}"
    first = shell.run(script, yield_s=0)
    assert first.running
    place.box.write_file(f"{base}/go", b"")
    done = end(shell)
    assert (first.output + done.output, done.exit_code, done.ended) == ("before\nafter\n", status, True)
    with pytest.raises(RequestError, match="no command is running"):
        shell.poll(0)
    again = shell.run("pwd", timeout_s=20)
    assert again.output == f"{base}\n" and "new shell" in again.notice


@pytest.mark.spec("IW-11")
def test_a_line_is_taken_up_to_what_a_terminal_holds_and_a_longer_one_refused_before_it_is_typed(
    shell: Shell,
) -> None:
    left_running(shell, 'IFS= read -r a; IFS= read -r b; printf %s "$a$b" | md5sum')
    assert shell.write(b"x" * 4095 + b"\n") == 4096
    with pytest.raises(RequestError, match="4096 bytes.*4095.*read a file"):
        shell.write(b"y" * 4096 + b"\n")
    with pytest.raises(RequestError, match="20000 bytes"):
        shell.write(b"z" * 20_000)
    assert shell.write(b"y" * 3000) == 3000
    with pytest.raises(RequestError, match="6000 bytes.*typed of it before"):
        shell.write(b"y" * 3000)
    assert shell.write(b"y\n") == 2
    assert hashlib.md5(b"x" * 4095 + b"y" * 3001).hexdigest() in end(shell).output


@pytest.mark.spec("IW-11")
def test_many_lines_arrive_whole_however_they_are_cut(shell: Shell) -> None:
    data = "".join(f"{n} \u6f22\xe9\U0001f600 {'x' * (n % 90)}\n" for n in range(400)).encode()
    assert len(data) > 20_000
    left_running(shell, "cat")
    at = 0
    for size in [1, 2, 3, 5, 7, 4093, 11, 13, 6000, *[997] * 40]:
        assert shell.write(data[at : at + size]) == len(data[at : at + size])
        at += size
    assert at > len(data)
    shell.write(b"\x04")
    assert (end(shell).captured.data, usable(shell)) == (data, True)


@pytest.mark.spec("IW-11")
def test_a_program_that_takes_bytes_as_they_come_gets_lines_of_any_length(shell: Shell) -> None:
    data = bytes(range(32, 127)) * 300
    command = f"stty -icanon -isig -iexten min 1; echo ready; head -c {3 * len(data) + 2} | md5sum"
    read_until(shell, "ready", left_running(shell, command))
    assert shell.write(data) == len(data)
    # A long line is typed by itself: what a line before it does to the terminal has to be known first.
    rest = b"\n" + data + b"\n" + data
    assert shell.write(rest) == 1
    assert shell.write(rest[1:]) == len(data) + 1
    assert shell.write(rest[len(data) + 2 :]) == len(data)
    assert hashlib.md5(data + rest).hexdigest() in end(shell).output


@pytest.mark.spec("IW-12")
@pytest.mark.parametrize("size", [3_000, 60_000, 2_000_000])
def test_what_a_program_does_not_read_is_counted_and_reaches_nobody(
    place: Place, shell: Shell, size: int
) -> None:
    base = place.fresh()
    shell.run(f"cd {base}")
    left_running(shell, "until [ -e go ]; do sleep 0.01; done; echo done; false")
    data = b"touch injected; exit 9\n" * (size // 23)
    began_s = time.monotonic()
    taken = shell.write(data, timeout_s=0.3)
    assert time.monotonic() - began_s < 5
    assert taken == len(data) if size < 4000 else 0 < taken <= len(data)
    place.box.write_file(f"{base}/go", b"")
    assert text(end(shell)) == ("done\n", 1)
    assert text(shell.run("echo $?; echo next", timeout_s=60)) == ("1\nnext\n", 0)
    assert usable(shell)
    assert [entry.name for entry in place.box.list_dir(base)] == ["go"]


@pytest.mark.spec("IW-12")
@pytest.mark.parametrize("size", [0, 60_000])
def test_an_interrupt_reaches_a_program_that_reads_nothing(place: Place, shell: Shell, size: int) -> None:
    base = place.fresh()
    shell.run(f"cd {base}")
    left_running(shell, "sleep 7203")
    started(place, "sleep 7203")
    shell.write(b"touch injected\n" * (size // 15), timeout_s=0.2)
    shell.interrupt()
    assert end(shell).exit_code == 130
    assert usable(shell)
    assert place.box.list_dir(base) == []


@pytest.mark.spec("IW-12")
def test_what_is_typed_behind_an_interrupt_is_no_command(place: Place, shell: Shell) -> None:
    base = place.fresh()
    shell.run(f"cd {base}; kept=yes")
    for _ in range(3):
        left_running(shell, "sleep 7204")
        started(place, "sleep 7204")
        shell.write(b"\x03touch injected\n")
        assert end(shell).exit_code == 130
        left_running(shell, "sleep 7205")
        started(place, "sleep 7205")
        shell.interrupt()
        try:
            shell.write(b"touch injected\n")
        except RequestError as error:
            assert "no command is running" in str(error)
        assert end(shell).exit_code == 130
    assert text(shell.run("echo $kept", timeout_s=20)) == ("yes\n", 0)
    assert place.box.list_dir(base) == []


@pytest.mark.spec("IW-13")
def test_others_may_type_look_and_resize_while_a_command_is_waited_for(shell: Shell) -> None:
    began = threading.Event()
    lines = 40
    with ThreadPoolExecutor(8) as pool:
        waiting = pool.submit(
            shell.run,
            "echo begun; cat; stty size",
            stdin_tty=True,
            timeout_s=LIMIT_S,
            on_output=lambda *_: began.set(),
        )
        assert began.wait(LIMIT_S)

        def type_lines(letter: bytes) -> int:
            return sum(shell.write(letter * 200 + b"\n") for _ in range(lines))

        def look() -> int:
            return sum(shell.screen().count("\n") <= 50 for _ in range(20))

        typing = [pool.submit(type_lines, letter) for letter in (b"a", b"b", b"c")]
        looking = pool.submit(look)
        for rows in range(20, 40):
            shell.resize(100, rows)
        with pytest.raises(RequestError, match="another call waits"):
            shell.poll(0)
        with pytest.raises(RequestError, match="another call waits"):
            shell.poll(0.1)
        assert [each.result(LIMIT_S) for each in typing] == [lines * 201] * 3
        assert looking.result(LIMIT_S) == 20
        shell.write(b"\x04")
        done = waiting.result(LIMIT_S)
    head, *typed, size, rest = done.output.split("\n")
    assert (head, size, rest, done.exit_code) == ("begun", "39 100", "", 0)
    assert sorted(typed) == [letter * 200 for letter in "abc" for _ in range(lines)]


@pytest.mark.spec("IW-13")
def test_an_interrupt_from_another_thread_ends_what_is_waited_for(place: Place, shell: Shell) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(shell.run, "echo x; sleep 7206", timeout_s=LIMIT_S)
        started(place, "sleep 7206")
        shell.interrupt()
        assert text(waiting.result(LIMIT_S))[1] == 130
    assert usable(shell)


@pytest.mark.spec("IW-14")
def test_a_command_that_does_not_read_the_terminal_cannot_be_typed_to(place: Place, shell: Shell) -> None:
    base = place.fresh()
    assert shell.run(f"cd {base}; until [ -e go ]; do sleep 0.01; done", yield_s=0).running
    with pytest.raises(RequestError, match="stdin_tty=True"):
        shell.write(b"touch injected\n")
    place.box.write_file(f"{base}/go", b"")
    assert end(shell).exit_code == 0
    with pytest.raises(RequestError, match="no command is running"):
        shell.write(b"x")
    with pytest.raises(RequestError, match="no command is running"):
        shell.interrupt()


@pytest.mark.spec("IW-15")
def test_closing_ends_a_command_that_is_polled(place: Place, shell: Shell) -> None:
    left_running(shell, "sleep 7207")
    started(place, "sleep 7207")
    with ThreadPoolExecutor(1) as pool:
        polling = pool.submit(shell.poll, LIMIT_S)
        while not shell._turn.locked():
            time.sleep(0.001)
        shell.close()
        result = polling.result(LIMIT_S)
    assert (result.ended, result.running) == (True, False)
    assert "closed" in result.notice
    assert place.processes("sleep 7207") == []


@pytest.mark.spec("IW-22")
def test_the_screen_of_a_running_program_is_seen_before_its_output_is_polled(shell: Shell) -> None:
    first = left_running(shell, "printf 'one\\ntwo\\033[1;1HX'; read -r x; printf '\\033[2J\\033[Hnew'")
    assert wait_for_screen(shell, lambda shown: shown == "Xne\ntwo")
    assert first + shell.poll(0).output == "one\ntwo\x1b[1;1HX"
    shell.resize(2, 2)
    assert shell.screen() == "Xn\ntw"
    shell.write(b"\n")
    end(shell)
    assert shell.screen() == "ne\nw"
    shell.run(":", timeout_s=20)
    assert shell.screen() == ""


@pytest.mark.spec("IW-07")
def test_keys_for_flow_control_stop_nothing(shell: Shell) -> None:
    left_running(shell, 'read -r x; printf %s "$x" | od -An -c; read -r y; stty -a | grep -c -e -ixon')
    shell.write(b"a\x13b\x11c\n")
    assert read_until(shell, "c\n").split() == ["a", "023", "b", "021", "c"]
    shell.write(b"\x13\n")
    assert text(end(shell)) == ("1\n", 0)
