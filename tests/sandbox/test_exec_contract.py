"""What a one-shot command means, on every place."""

from __future__ import annotations

import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from places import Place

from sandbox import Cancelled, Closed, LocalSandbox, NotADirectory, NotFound, RequestError

pytestmark = pytest.mark.cold_too


@pytest.mark.spec("XE-01")
def test_stdout_stderr_and_status_come_back_apart(place: Place) -> None:
    result = place.box.exec("echo out; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 3)
    assert not result.timed_out


@pytest.mark.spec("XE-02")
@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("true", 0),
        ("false", 1),
        ("exit 255", 255),
        ("kill -9 $$", 137),
        ("sh -c 'kill -SEGV $$'", 139),
        ("kill -TERM $$", 143),
        ("coderig-no-such-program", 127),
        ("/dev/null", 126),
    ],
)
def test_exit_codes_are_those_of_a_shell(place: Place, command: str, status: int) -> None:
    assert place.box.exec(command).exit_code == status


@pytest.mark.spec("XE-02")
@pytest.mark.parametrize("signal", ["TERM", "KILL", "HUP", "ABRT"])
def test_nobody_speaks_of_the_signal_that_ended_a_command(place: Place, signal: str) -> None:
    for stdin in (None, b"x"):
        result = place.box.exec(f"echo out; kill -{signal} $$", stdin=stdin)
        assert (result.stdout, result.stderr) == ("out\n", "")


@pytest.mark.spec("XE-03")
def test_a_missing_program_of_a_list_is_a_result(place: Place) -> None:
    assert place.box.exec(["coderig-no-such-program", "x"]).exit_code == 127


@pytest.mark.spec("XE-04")
def test_arguments_of_a_list_arrive_byte_for_byte(place: Place) -> None:
    words = [
        "a b",
        "it's",
        '"q"',
        "$(id)",
        "`id`",
        "\\",
        "line\nbreak",
        "tab\t",
        "",
        "*",
        "-n",
        "漢",
        "\udcff",
        "!x",
    ]
    result = place.box.exec(["printf", "[%s]", *words])
    expected = "".join(f"[{word}]" for word in words).encode("utf-8", "surrogateescape")
    assert result.stdout_output.data == expected


# What bash and dash themselves do with these is the independent source.
SCRIPTS = [
    "echo 'abc",
    'echo "abc',
    "cat <<EOF\nabc",
    "echo abc \\",
    "if true; then",
    "echo $(",
    "foo() {",
    "echo ${x",
    "set -e; false; echo no",
    "set -u; echo $NOPE; echo no",
    "set -x; echo hi",
    "trap 'echo BYE' EXIT; echo hi",
    "trap 'echo BYE' EXIT; exit 4",
    "echo a; # comment \\\necho b",
    'a=\'x y\'; echo "$a"; echo $#; echo "$0" | wc -l',
    "f() { echo in; return 7; }; f; echo $?",
    "echo one; echo (",
    "printf 'a\\r\\nb'; printf '\\n\\n'",
    "cat <<'A' <<B\nx\nA\ny\nB",
    "readonly r=1; r=2; echo after",
    "exec sh -c 'echo replaced; exit 9'",
    "! true",
    "echo $((1+2)) ${HOME:+home} ~ | cut -c1-6",
    "eval 'echo nested'; . /dev/null; echo done",
    'while read -r l; do echo "[$l]"; done <<E\na\\b\n  c\nE',
    "",
    "   ",
    "# only a comment",
]


@pytest.mark.spec("XE-05")
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_does_what_the_shell_does_with_it(place: Place, script: str) -> None:
    shell = {"bash": ["bash"], "dash": ["dash"], "ash": ["busybox", "sh"]}[place.shell]
    real = subprocess.run(
        [*shell, "-c", script], stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False
    )
    result = place.box.exec(script)
    assert (result.stdout_output.data, result.exit_code) == (real.stdout, real.returncode)


@pytest.mark.spec("XE-06")
@pytest.mark.parametrize("command", ["cat", "read x; echo got:$x", "wc -c", "sh -s", "exec cat"])
def test_a_program_that_reads_its_input_finds_it_empty(place: Place, command: str) -> None:
    real = subprocess.run(
        ["sh", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False
    )
    result = place.box.exec(command, timeout_s=20)
    assert (result.stdout.strip(), result.exit_code) == (real.stdout.decode().strip(), real.returncode)


@pytest.mark.spec("XE-07")
def test_input_arrives_whole_and_ends(place: Place) -> None:
    data = bytes(range(256)) * 20_000
    result = place.box.exec("cat", stdin=data, limit_bytes=len(data) * 2, timeout_s=40)
    assert result.stdout_output.data == data
    assert place.box.exec("cat", stdin=b"").stdout == ""


@pytest.mark.spec("XE-08")
def test_input_that_nobody_reads_does_not_hold_the_call(place: Place) -> None:
    result = place.box.exec("echo done", stdin=b"x" * 3_000_000, timeout_s=20)
    assert (result.stdout, result.exit_code) == ("done\n", 0)


@pytest.mark.spec("XE-08")
def test_input_that_nobody_read_never_reaches_another_command(place: Place) -> None:
    for _ in range(15):
        assert place.box.exec("true", stdin=b"x" * 3_000_000, timeout_s=20).exit_code == 0
        result = place.box.exec("cat; echo end", stdin=b"y" * 200_000, timeout_s=20)
        assert result.stdout == "y" * 200_000 + "end\n"


@pytest.mark.spec("XE-09")
def test_a_command_of_a_megabyte_runs(place: Place) -> None:
    result = place.box.exec(": " + "x" * 1_000_000 + "; echo end", timeout_s=30)
    assert (result.stdout, result.exit_code) == ("end\n", 0)


@pytest.mark.spec("XE-10")
def test_environment_values_arrive_exactly(place: Place) -> None:
    env = {"A": 'it\'s "x" $y `z`', "B": "two\nlines\n", "C": "漢=1", "EMPTY": ""}
    result = place.box.exec('printf "%s|" "$A" "$B" "$C" "${EMPTY-unset}"', env=env)
    assert result.stdout == "".join(f"{value}|" for value in env.values())


@pytest.mark.spec("XE-11")
@pytest.mark.parametrize("env", [{"A-B": "x"}, {"A": "a\0b"}, {"HUGE": "x" * 200_000}, {"": "x"}])
def test_a_variable_that_cannot_be_carried_is_named_and_nothing_runs(
    place: Place, env: dict[str, str]
) -> None:
    with pytest.raises(RequestError) as caught:
        place.box.exec("echo no", env=env)
    assert next(iter(env)) in str(caught.value)


@pytest.mark.spec("XE-12")
def test_nothing_of_the_machinery_is_visible_to_a_command(place: Place) -> None:
    result = place.box.exec('set | grep "^cr_"; echo "$# $*"; env | grep -c "^CODERIG_EXEC="')
    assert result.stdout == "0 \n1\n"


@pytest.mark.spec("XE-13")
def test_a_working_directory_is_entered_or_nothing_runs(place: Place) -> None:
    base = place.fresh()
    odd = f"{base}/-P it's\n漢"
    place.box.make_dirs(odd)
    assert place.box.exec("pwd", cwd=odd).stdout == f"{odd}\n"
    with pytest.raises(NotFound):
        place.box.exec(f"touch {base}/ran; echo no || touch {base}/ran", cwd=f"{base}/missing")
    place.box.write_file(f"{base}/file", b"")
    with pytest.raises(NotADirectory):
        place.box.exec(f"touch {base}/ran", cwd=f"{base}/file")
    assert "ran" not in [entry.name for entry in place.box.list_dir(base)]


@pytest.mark.spec("XE-14")
def test_a_timeout_keeps_the_output_and_kills(place: Place) -> None:
    result = place.box.exec("echo before; sleep 3333; echo after", timeout_s=0.5)
    assert (result.timed_out, result.stdout) == (True, "before\n")
    assert result.exit_code in (137, 143)
    assert place.processes("sleep 3333") == []


@pytest.mark.spec("XE-15")
@pytest.mark.parametrize(
    "command",
    [
        "sleep 4101 2>&1 | tee /dev/null",
        "(sleep 4102; echo a) | tail -40",
        "yes | while read l; do :; done # 4103",
        "trap '' TERM; sleep 4104 & sleep 4104",
        "sh -c \"trap '' TERM HUP INT; sleep 4105\"",
        "sh -c '(exec setsid sleep 4106 &) ; sh -c \"sleep 4106\" & sleep 4106'",
        "for i in 1 2; do sleep 4107; done",
        "nohup sleep 4108 >/dev/null 2>&1 & sleep 4108",
    ],
)
def test_after_a_timeout_nothing_of_the_tree_is_left(place: Place, command: str) -> None:
    number = next(str(4100 + n) for n in range(1, 9) if str(4100 + n) in command)
    result = place.box.exec(command, timeout_s=0.5)
    assert result.timed_out
    assert result.survivors == ()
    assert place.processes(f"sleep {number}") == []


@pytest.mark.spec("XE-16")
def test_endless_output_does_not_starve_the_timer_or_grow(place: Place) -> None:
    result = place.box.exec("yes", timeout_s=1, limit_bytes=10_000)
    assert result.timed_out
    assert len(result.stdout_output.data) == 10_000
    assert result.stdout_output.dropped_bytes > 0


@pytest.mark.spec("XE-17")
def test_a_command_that_ends_in_time_is_no_timeout(place: Place) -> None:
    result = place.box.exec("sleep 0.2; echo ok", timeout_s=20)
    assert (result.stdout, result.exit_code, result.timed_out) == ("ok\n", 0, False)


@pytest.mark.spec("XE-18")
def test_a_background_child_neither_holds_the_call_nor_is_killed(place: Place) -> None:
    result = place.box.exec("sleep 5551 & echo $!", timeout_s=20)
    assert not result.timed_out
    assert place.processes("sleep 5551") != []
    place.box.exec(f"kill {result.stdout.strip()}")


@pytest.mark.spec("XE-19")
def test_closed_streams_are_not_an_end(place: Place) -> None:
    assert place.box.exec("exec >&- 2>&-; sleep 0.3; exit 4", timeout_s=20).exit_code == 4
    assert place.box.exec("exec >&- 2>&-; sleep 6001", timeout_s=0.5).timed_out
    assert place.processes("sleep 6001") == []


@pytest.mark.spec("XE-20")
def test_the_callers_cancel_is_raised_and_kills(place: Place) -> None:
    cancel = threading.Event()
    seen: list[bytes] = []

    def on_output(stream: str, data: bytes) -> None:
        seen.append(data)
        cancel.set()

    with pytest.raises(Cancelled) as caught:
        place.box.exec("echo part; sleep 3334", cancel=cancel, on_output=on_output, timeout_s=20)
    assert caught.value.stdout == b"part\n" == b"".join(seen)
    assert place.processes("sleep 3334") == []


@pytest.mark.spec("XE-21")
def test_head_and_tail_are_kept_with_an_exact_count(place: Place) -> None:
    result = place.box.exec(
        "i=0; while [ $i -lt 20000 ]; do echo line$i; i=$((i+1)); done", limit_bytes=1000, timeout_s=40
    )
    whole = "".join(f"line{i}\n" for i in range(20_000)).encode()
    kept = result.stdout_output
    assert kept.head == whole[:600]
    assert kept.tail == whole[-400:]
    assert kept.dropped_bytes == len(whole) - 1000


@pytest.mark.spec("XE-22")
def test_a_late_short_stderr_survives_a_flooding_stdout(place: Place) -> None:
    result = place.box.exec("head -c 3000000 /dev/zero; echo late >&2", limit_bytes=1024, timeout_s=30)
    assert result.stderr == "late\n"
    assert result.stdout_output.dropped_bytes == 3_000_000 - 1024


@pytest.mark.spec("XE-23")
def test_bytes_are_kept_and_split_characters_come_whole(place: Place) -> None:
    result = place.box.exec("printf '\\344\\270'; sleep 0.2; printf '\\255\\n\\377\\000\\033[1m'")
    assert result.stdout_output.data == b"\xe4\xb8\xad\n\xff\x00\x1b[1m"
    assert result.stdout.startswith("中\n�")


@pytest.mark.spec("XE-24")
@pytest.mark.parametrize("timeout", ["30", None, True, float("nan"), 1e9])
def test_a_timeout_of_the_wrong_kind_is_an_argument_error(timeout: object) -> None:
    with LocalSandbox("/") as box, pytest.raises(RequestError):
        box.exec("echo no", timeout_s=timeout)  # type: ignore[arg-type]


@pytest.mark.spec("XE-25")
@pytest.mark.parametrize("timeout", [0, -1])
def test_a_timeout_of_zero_or_less_is_the_default(timeout: int) -> None:
    with LocalSandbox("/") as box:
        assert box.exec("sleep 0.2; echo ok", timeout_s=timeout).stdout == "ok\n"


@pytest.mark.spec("XE-26")
@pytest.mark.parametrize("command", ["a\0b", "lone \ud800", [], [""]])
def test_a_command_that_no_shell_can_carry_is_refused(place: Place, command: str | list[str]) -> None:
    with pytest.raises(RequestError):
        place.box.exec(command)
    with pytest.raises(RequestError):
        place.box.exec("true", cwd="a\0b")


@pytest.mark.spec("XE-33")
@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("command", 5),
        ("command", b"touch made"),
        ("command", ["touch", 5]),
        ("command", {"touch": "made"}),
        ("cwd", 5),
        ("cwd", b"/"),
        ("env", ["A"]),
        ("env", {"A": 5}),
        ("env", {5: "a"}),
        ("stdin", "text"),
        ("on_output", 5),
        ("cancel", 5),
        ("limit_bytes", "5"),
        ("spill", "directory"),
    ],
)
def test_an_argument_of_a_wrong_kind_is_named_and_nothing_runs(
    tmp_path: Path, argument: str, value: object
) -> None:
    arguments: dict[str, Any] = {"command": "touch made", argument: value}
    with LocalSandbox(tmp_path) as box:
        with pytest.raises(RequestError) as caught:
            box.exec(**arguments)
        assert {"cwd": "path", "env": "env"}.get(argument, argument) in str(caught.value)
        assert box.list_dir() == []


@pytest.mark.spec("XE-27")
def test_twenty_at_once_each_get_their_own_output(place: Place) -> None:
    with ThreadPoolExecutor(20) as pool:
        results = list(
            pool.map(lambda n: place.box.exec(f"sleep 0.1; echo {n}; exit {n}", timeout_s=50), range(20))
        )
    assert [(r.stdout, r.exit_code) for r in results] == [(f"{n}\n", n) for n in range(20)]


@pytest.mark.spec("XE-28")
def test_nobody_is_asked_and_nothing_is_paged(place: Place) -> None:
    result = place.box.exec("echo $PAGER $GIT_PAGER $GIT_TERMINAL_PROMPT")
    assert result.stdout == "cat cat 0\n"


@pytest.mark.spec("XE-29")
def test_the_hosts_secrets_are_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
    with LocalSandbox("/") as box:
        assert "s3cret" not in box.exec("env").stdout
        assert "s3cret" not in box.shell("s").run("env").output
    with LocalSandbox("/", inherit_env=True) as box:
        assert "s3cret" in box.exec("env").stdout


@pytest.mark.spec("XE-30")
def test_closing_ends_a_running_command_and_later_calls_fail() -> None:
    box = LocalSandbox("/")
    running = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(box.exec, "echo x; sleep 3335", on_output=lambda *_: running.set(), timeout_s=20)
        assert running.wait(5)
        box.close()
        with pytest.raises(Closed):
            call.result(timeout=10)
    box.close()
    with pytest.raises(Closed):
        box.exec("echo no")
    assert subprocess.run(["pgrep", "-f", "sleep 3335"], check=False).returncode == 1


@pytest.mark.spec("XE-32")
def test_a_callback_that_raises_ends_the_command(place: Place) -> None:
    def broken(stream: str, data: bytes) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        place.box.exec("echo x; sleep 3336", on_output=broken, timeout_s=20)
    assert place.processes("sleep 3336") == []


@pytest.mark.spec("XE-31")
def test_a_slow_watcher_holds_the_command_back_and_loses_nothing(place: Place) -> None:
    seen = bytearray()

    def slowly(stream: str, data: bytes) -> None:
        seen.extend(data)
        if len(seen) < 400_000:
            time.sleep(0.01)

    result = place.box.exec("head -c 1000000 /dev/zero", on_output=slowly, timeout_s=50)
    assert (result.exit_code, len(seen)) == (0, 1_000_000)
