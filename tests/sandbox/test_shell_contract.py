"""What a named shell means, on every place."""

from __future__ import annotations

import secrets
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from places import Place

from sandbox import Cancelled, Closed, LocalSandbox, RequestError, Shell


@pytest.fixture
def shell(place: Place) -> Iterator[Shell]:
    """A new shell in the place, closed afterwards."""
    opened = place.box.shell(f"s-{secrets.token_hex(4)}")
    yield opened
    opened.close()


def run(shell: Shell, command: str) -> tuple[str, int | None]:
    """Output and status of a command that must not time out."""
    result = shell.run(command, timeout_s=20)
    assert not result.timed_out, result
    return result.output, result.exit_code


@pytest.mark.spec("SH-01")
def test_state_lasts_from_one_command_to_the_next(place: Place, shell: Shell) -> None:
    base = place.fresh()
    assert run(shell, f"cd {base}; export A=1; b=2; f() {{ echo f$A$b; }}; umask 027") == ("", 0)
    assert run(shell, "f; pwd; umask") == (f"f12\n{base}\n0027\n", 0)
    assert shell.run("true").cwd == base


@pytest.mark.spec("NS-01")
def test_status_and_output_are_those_of_the_command(shell: Shell) -> None:
    assert run(shell, "echo hi; false") == ("hi\n", 1)
    assert run(shell, "echo $?") == ("1\n", 0)
    assert run(shell, "sh -c 'kill -9 $$'; exit_code=$?; echo $exit_code")[0].endswith("137\n")
    assert run(shell, "coderig-no-such-program")[1] == 127


@pytest.mark.spec("NS-02")
@pytest.mark.parametrize(
    "script",
    [
        "echo 'abc",
        'echo "abc',
        "cat <<EOF\nabc",
        "echo abc \\",
        "if true; then",
        "echo $(",
        "foo() {",
        "echo ${x",
        "echo one; echo (",
    ],
)
def test_unfinished_syntax_ends_at_once_and_does_not_leak(place: Place, shell: Shell, script: str) -> None:
    # `eval` in the shell that the place has is the independent source for the status.
    kind = {"bash": ["bash"], "dash": ["dash"], "ash": ["busybox", "sh"]}[place.shell]
    real = subprocess.run(
        [*kind, "-c", 'command eval "$1"; echo "status:$?"', "sh", script],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
        check=False,
    )
    expected, _, status = real.stdout.decode().rpartition("status:")
    output, code = run(shell, script)
    assert code == int(status)
    assert expected in output
    assert run(shell, "echo NEXT") == ("NEXT\n", 0)


@pytest.mark.spec("NS-03")
def test_errexit_ends_the_shell_at_once_and_the_next_use_says_so(shell: Shell) -> None:
    assert run(shell, "set -eu") == ("", 0)
    assert run(shell, "echo fine") == ("fine\n", 0)
    result = shell.run("false", timeout_s=20)
    assert (result.exit_code, result.ended, result.timed_out) == (1, True, False)
    again = shell.run("echo hi", timeout_s=20)
    assert (again.output, again.exit_code) == ("hi\n", 0)
    assert "new shell" in again.notice


@pytest.mark.spec("NS-04")
def test_an_unset_variable_under_nounset_does_not_hang(shell: Shell) -> None:
    result = shell.run("set -u; echo $NOPE; echo after", timeout_s=20)
    assert "after" not in result.output
    assert result.exit_code in (1, 2)
    assert run(shell, "echo next") == ("next\n", 0)


@pytest.mark.spec("NS-05")
def test_a_trace_shows_the_callers_commands_and_nothing_of_ours(shell: Shell) -> None:
    run(shell, "set -x")
    output, code = run(shell, "echo hi")
    assert code == 0
    assert [line.lstrip("+ ") for line in output.splitlines()] == ["echo hi", "hi"]
    run(shell, "set +x; set -v")
    assert run(shell, "echo v")[0].splitlines()[-1] == "v"
    run(shell, "set +v")
    assert run(shell, "echo quiet") == ("quiet\n", 0)


@pytest.mark.spec("NS-06")
@pytest.mark.parametrize("status", [0, 3])
def test_exit_is_reported_at_once_with_its_status(shell: Shell, status: int) -> None:
    result = shell.run(f"echo bye; exit {status}", timeout_s=20)
    assert (result.output, result.exit_code, result.ended) == ("bye\n", status, True)


@pytest.mark.spec("NS-07")
@pytest.mark.parametrize(
    ("command", "status"), [("kill -TERM $$", 143), ("kill -9 $$", 137), ("exec sh -c 'echo x; exit 9'", 9)]
)
def test_the_death_of_the_shell_is_reported_with_its_status(shell: Shell, command: str, status: int) -> None:
    result = shell.run(command, timeout_s=20)
    assert (result.exit_code, result.ended) == (status, True)


@pytest.mark.spec("NS-08")
def test_a_new_shell_opens_in_the_last_directory(place: Place, shell: Shell) -> None:
    base = place.fresh()
    run(shell, f"cd {base}")
    shell.run("exit 1", timeout_s=20)
    assert run(shell, "pwd") == (f"{base}\n", 0)


@pytest.mark.spec("NS-09")
@pytest.mark.parametrize("command", ["cat", "read x; echo got:$x", "wc -c", "sh"])
def test_a_program_that_reads_does_not_eat_the_next_command(shell: Shell, command: str) -> None:
    real = subprocess.run(
        ["sh", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False
    )
    output, code = run(shell, command)
    assert (output.strip(), code) == (real.stdout.decode().strip(), real.returncode)
    assert run(shell, "echo next") == ("next\n", 0)


@pytest.mark.spec("NS-10")
def test_background_jobs_neither_hold_the_call_nor_make_noise(shell: Shell) -> None:
    assert run(shell, "sleep 0.1 & sleep 0.1 & echo started") == ("started\n", 0)
    assert run(shell, "wait; echo waited") == ("waited\n", 0)
    assert run(shell, "echo quiet") == ("quiet\n", 0)


@pytest.mark.spec("NS-10")
@pytest.mark.parametrize("job", ["sleep 0.2 &", "(sleep 0.2; exit 3) &", "(sleep 60; echo) & kill -9 $! ;"])
def test_a_job_that_ends_between_two_commands_makes_no_noise(shell: Shell, job: str) -> None:
    assert run(shell, job + " last=$!") == ("", 0)
    while run(shell, "kill -0 $last 2>/dev/null")[1] == 0:
        assert run(shell, "echo waiting; sleep 0.05") == ("waiting\n", 0)
    assert run(shell, "echo quiet") == ("quiet\n", 0)


@pytest.mark.spec("NS-11")
@pytest.mark.parametrize("command", ["sleep 7101", "while true; do sleep 7101; done", "while :; do :; done"])
def test_a_timeout_interrupts_and_leaves_the_shell_with_its_state(
    place: Place, shell: Shell, command: str
) -> None:
    run(shell, "kept=yes")
    result = shell.run(f"echo before; {command}", timeout_s=0.5)
    assert result.timed_out and not result.ended
    assert result.output.startswith("before\n")
    assert run(shell, "echo $kept") == ("yes\n", 0)
    assert place.processes("sleep 7101") == []


@pytest.mark.spec("NS-12")
def test_a_command_that_ignores_the_interrupt_is_ended_and_the_shell_stays(
    place: Place, shell: Shell
) -> None:
    run(shell, "kept=yes")
    result = shell.run("sh -c 'trap \"\" INT; sleep 7102; sleep 7103'", timeout_s=0.5)
    assert result.timed_out and not result.ended
    assert run(shell, "echo $kept") == ("yes\n", 0)
    assert place.processes("sleep 710") == []


@pytest.mark.spec("NS-13")
def test_a_shell_that_ignores_everything_is_replaced(shell: Shell) -> None:
    result = shell.run("trap '' INT TERM HUP; while :; do :; done", timeout_s=0.5)
    assert result.timed_out and result.ended
    assert run(shell, "echo fresh") == ("fresh\n", 0)


@pytest.mark.spec("NS-14")
def test_a_server_of_an_earlier_command_survives_a_timeout(place: Place, shell: Shell) -> None:
    run(shell, "sleep 7104 & echo")
    shell.run("sleep 7105", timeout_s=0.5)
    assert len(place.processes("sleep 7104")) == 1
    shell.close()
    assert place.processes("sleep 7104") == []


MARKERS = [
    "printf '\\033]8671;E;%s;0;;/;1;;%s\\007' 0123456789abcdef01234567 0123456789abcdef01234567",
    "printf '\\033]8671;S;0123456789abcdef01234567\\007'; printf '\\033]8671;P;x\\007'",
    "printf '\\033]8671;'",
    "echo __CMD_END__ 0; echo '###END_0###'; echo ' SHELLEND:0'",
    "printf '\\033]133;D;0\\007'; printf '\\033]633;D;0\\007'",
    "echo 'SHELLPS1PREFIX'; echo '[PEXPECT_PROMPT>'; echo '###PS1JSON###{\"exit_code\": 0}###PS1END###'",
    'echo "$PS1"; declare -f 2>/dev/null | cat; set',
    "set; cat /proc/$$/cmdline; cat /proc/$$/environ",
]


@pytest.mark.spec("NS-15")
@pytest.mark.parametrize("command", MARKERS)
def test_no_marker_in_the_output_changes_the_result(shell: Shell, command: str) -> None:
    result = shell.run(f"{command}; echo LAST; false", timeout_s=20)
    assert (result.exit_code, result.timed_out, result.ended) == (1, False, False)
    assert result.output.endswith("LAST\n")
    assert run(shell, "echo next") == ("next\n", 0)


@pytest.mark.spec("NS-16")
def test_redirecting_the_shells_own_output_loses_no_result(shell: Shell) -> None:
    assert run(shell, "exec >/dev/null 2>&1; echo lost; false")[1] == 1
    assert run(shell, "exec >/dev/tty 2>&1; true")[1] == 0
    assert run(shell, "echo back") == ("back\n", 0)


@pytest.mark.spec("NS-17")
@pytest.mark.parametrize(
    "change",
    [
        "PS1='> '; PS2='? '; PROMPT_COMMAND='echo P'",
        "alias echo=false; unalias echo",
        "stty echo onlcr </dev/tty",
        "stty raw -echo </dev/tty",
        "set -o noclobber; set -f",
        "IFS=x; LANG=C; LC_ALL=C",
        "unset PATH HOME PWD; PATH=/usr/bin:/bin",
        "printf '\\033[?1049h\\033[2J'",
        "HISTFILE=/tmp/x; set -o history 2>/dev/null || :",
        "printf() { :; }; jobs() { :; }",
        "readonly PROMPT_COMMAND PS1 PS2",
        "unset -f $(compgen -A function 2>/dev/null) x",
        "TMOUT=1",
        "set -t 2>/dev/null || :",
        "shopt -s expand_aliases 2>/dev/null; alias printf=false builtin=false command=false cr_c=x",
    ],
)
def test_changes_to_the_shell_do_not_break_the_next_result(shell: Shell, change: str) -> None:
    shell.run(change, timeout_s=20)
    assert run(shell, "echo out; (exit 5)") == ("out\n", 5)
    result = shell.run("sleep 7106", timeout_s=0.5)
    assert result.timed_out
    assert run(shell, "echo out") == ("out\n", 0)


@pytest.mark.spec("NS-18")
def test_traps_see_the_callers_commands_only(place: Place, shell: Shell) -> None:
    if place.shell == "bash":
        run(shell, "trap 'echo \"D:$BASH_COMMAND\"' DEBUG")
        assert run(shell, "true") == ("D:true\n", 0)
        assert run(shell, "false") == ("D:false\n", 1)
        run(shell, "trap - DEBUG")
        # What bash does with the same lines in a file is the independent source.
        real = "true; trap 'echo E' ERR; false; trap - ERR; echo end"
        expected = subprocess.run(["bash", "-c", real], capture_output=True, timeout=20, check=False).stdout
        assert run(shell, real) == (expected.decode(), 0)
        run(shell, "trap 'echo E' ERR")
        assert run(shell, "false") == ("E\n", 1)
        run(shell, "trap - ERR")
    run(shell, "trap 'echo BYE' EXIT")
    result = shell.run("exit 6", timeout_s=20)
    assert (result.output, result.exit_code, result.ended) == ("BYE\n", 6, True)


@pytest.mark.spec("NS-19")
def test_nothing_is_expanded_as_history(shell: Shell) -> None:
    assert run(shell, "echo \"Hello, world!\" '!!'") == ("Hello, world! !!\n", 0)
    assert run(shell, "!!")[1] == 127


@pytest.mark.spec("NS-20")
@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("echo " + "word " * 60, ("word " * 60).rstrip() + "\n"),
        ("printf '%s|' 'a\tb' '漢字' 'x\ny'", "a\tb|漢字|x\ny|"),
        ("printf 'abc'", "abc"),
        ("printf '\\n\\nx\\n\\n'", "\n\nx\n\n"),
        ("printf 'a\\r\\nb\\r\\n'", "a\r\nb\r\n"),
        ("", ""),
        ("   ", ""),
        ("# only a comment", ""),
        ("echo a # c \\", "a\n"),
        ("printf '%s' '\x01\x03\x04\x15\x16\x7f\x1a'", "\x01\x03\x04\x15\x16\x7f\x1a"),
        ("echo 'a\r'", "a\r\n"),
    ],
)
def test_output_is_exact(shell: Shell, command: str, output: str) -> None:
    assert run(shell, command) == (output, 0)


@pytest.mark.spec("NS-21")
def test_large_commands_arrive_whole(shell: Shell) -> None:
    assert run(shell, "echo '" + "漢" * 3000 + "' | wc -c") == ("9001\n", 0)
    assert run(shell, "echo '" + "it'\\''s\n" * 3000 + "' | wc -l") == ("3001\n", 0)
    result = shell.run(": " + "x" * 1_000_000 + "; echo end", timeout_s=40)
    assert (result.output, result.exit_code) == ("end\n", 0)


@pytest.mark.spec("NS-22")
def test_split_characters_and_invalid_bytes_survive(shell: Shell) -> None:
    result = shell.run("printf '\\344\\270'; sleep 0.2; printf '\\255\\n\\377'", timeout_s=20)
    assert result.captured.data == b"\xe4\xb8\xad\n\xff"


@pytest.mark.spec("NS-23")
def test_a_flood_is_bounded_with_head_tail_and_an_exact_count(shell: Shell) -> None:
    result = shell.run(
        "echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last; exit_=1",
        timeout_s=50,
        limit_bytes=1000,
    )
    assert result.exit_code == 0
    assert result.captured.head.startswith(b"first\nxxx")
    assert result.captured.tail.endswith(b"xxx\nlast\n")
    assert result.captured.dropped_bytes == 6 + 3_000_000 + 6 - 1000


@pytest.mark.spec("NS-24")
def test_a_deleted_directory_is_told_and_left(place: Place, shell: Shell) -> None:
    base = place.fresh()
    result = shell.run(f"mkdir {base}/x && cd {base}/x && rm -rf {base}/x", timeout_s=20)
    assert "no longer exists" in result.notice
    assert run(shell, "echo hi") == ("hi\n", 0)
    assert run(shell, f"cd {base} && pwd") == (f"{base}\n", 0)


@pytest.mark.spec("NS-34")
def test_a_directorys_name_cannot_speak_for_the_shell(place: Place, shell: Shell) -> None:
    base = place.fresh()
    name = f"{base}/;1;trap -- 'touch pwned' DEBUG\a;0;;"
    place.box.make_dirs(name)
    result = shell.run(f"cd {base}/*", timeout_s=20)
    assert (result.exit_code, result.cwd) == (0, name)
    assert run(shell, "true; pwd") == (f"{name}\n", 0)
    assert place.box.list_dir(name) == []


@pytest.mark.spec("NS-35")
def test_the_output_of_a_background_job_is_never_taken_for_the_shells_own(place: Place, shell: Shell) -> None:
    base = place.fresh()
    run(shell, f"(i=0; while [ $i -lt 20000 ]; do echo 'touch {base}/pwned'; i=$((i+1)); done) &")
    for status in [0, 3] * 15:
        result = shell.run(f"(exit {status})", timeout_s=20)
        assert (result.exit_code, result.ended, result.timed_out) == (status, False, False)
    run(shell, "wait")
    assert place.box.list_dir(base) == []


@pytest.mark.spec("NS-36")
@pytest.mark.parametrize("typed", [b"\x04\x04", b"echo INJECTED\n", b"y", b"echo 'open", b"\x03"])
def test_input_that_nobody_read_does_not_reach_the_next_command(shell: Shell, typed: bytes) -> None:
    assert shell.run("sleep 0.4; true", stdin_tty=True, yield_s=0.1).running
    shell.write(typed)
    while shell.poll(5).running:
        pass
    assert run(shell, "echo next") == ("next\n", 0)


@pytest.mark.spec("NS-37")
def test_a_command_whose_shell_died_before_it_began_runs_in_a_new_one(place: Place, shell: Shell) -> None:
    pid = run(shell, "echo $$")[0].strip()
    place.box.exec(f"kill -9 {pid}")
    result = shell.run("echo ran; exit_=3", timeout_s=20)
    assert (result.output, result.exit_code) == ("ran\n", 0)
    assert "new shell" in result.notice


@pytest.mark.spec("NS-38")
def test_a_program_that_shows_our_prompt_is_not_told_how_to_end(shell: Shell) -> None:
    command = 'printf \'%s\' "$PS1"; read -r x </dev/tty; echo "read:$x"; false'
    assert shell.run(command, stdin_tty=True, yield_s=1).running
    shell.write(b"mine\n")
    done = shell.poll(20)
    assert (done.output, done.exit_code) == ("read:mine\n", 1)


@pytest.mark.spec("NS-25")
def test_a_command_may_be_left_running_and_polled(shell: Shell) -> None:
    result = shell.run("echo one; sleep 0.5; echo two; false", yield_s=0.2)
    assert (result.running, result.exit_code, result.output) == (True, None, "one\n")
    with pytest.raises(RequestError, match="still runs"):
        shell.run("echo no")
    rest = shell.poll(20)
    assert (rest.running, rest.exit_code, rest.output) == (False, 1, "two\n")


@pytest.mark.spec("NS-26")
def test_a_program_on_the_terminal_can_be_typed_to(shell: Shell) -> None:
    result = shell.run('read -r a; echo "got:$a"', stdin_tty=True, yield_s=0.2)
    assert result.running
    shell.write(b"typed words\n")
    done = shell.poll(20)
    assert (done.output, done.exit_code) == ("got:typed words\n", 0)
    assert run(shell, "echo next") == ("next\n", 0)


@pytest.mark.spec("NS-27")
def test_interrupt_ends_the_command_but_not_the_shell(shell: Shell) -> None:
    run(shell, "kept=yes")
    assert shell.run("sleep 7107", yield_s=0.2).running
    shell.interrupt()
    done = shell.poll(20)
    assert (done.running, done.exit_code) == (False, 130)
    assert run(shell, "echo $kept") == ("yes\n", 0)


@pytest.mark.spec("NS-28")
def test_the_callers_cancel_is_raised_and_the_shell_stays(shell: Shell) -> None:
    run(shell, "kept=yes")
    cancel = threading.Event()
    with pytest.raises(Cancelled) as caught:
        shell.run("echo part; sleep 7108", cancel=cancel, on_output=lambda *_: cancel.set(), timeout_s=20)
    assert caught.value.stdout.startswith(b"part\n")
    assert run(shell, "echo $kept") == ("yes\n", 0)


@pytest.mark.spec("NS-33")
def test_a_callback_that_raises_ends_the_command_and_the_shell_stays(place: Place, shell: Shell) -> None:
    def broken(stream: str, data: bytes) -> None:
        raise ZeroDivisionError

    run(shell, "kept=yes")
    with pytest.raises(ZeroDivisionError):
        shell.run("echo x; sleep 7110", on_output=broken, timeout_s=20)
    assert run(shell, "echo $kept") == ("yes\n", 0)
    assert place.processes("sleep 7110") == []


@pytest.mark.spec("NS-29")
def test_the_terminals_size_can_be_changed(shell: Shell) -> None:
    run(shell, ":")
    shell.resize(123, 45)
    assert run(shell, "stty size </dev/tty") == ("45 123\n", 0)


@pytest.mark.spec("NS-30")
def test_the_screen_is_rendered(shell: Shell) -> None:
    run(shell, "printf 'abc\\033[2;3Hxy\\033[1;1HZ'")
    assert shell.screen() == "Zbc\n  xy"


@pytest.mark.spec("NS-31")
def test_many_shells_run_at_once_without_waiting_for_each_other(place: Place) -> None:
    names = [f"p-{secrets.token_hex(3)}" for _ in range(4)]
    shells = [place.box.shell(name) for name in names]
    with ThreadPoolExecutor(4) as pool:
        results = list(
            pool.map(lambda pair: pair[1].run(f"sleep 0.2; echo {pair[0]}", timeout_s=30), enumerate(shells))
        )
    assert [result.output for result in results] == [f"{n}\n" for n in range(4)]
    assert set(names) <= {info.name for info in place.box.shells()}
    for shell in shells:
        shell.close()


@pytest.mark.spec("NS-32")
def test_closing_the_sandbox_ends_a_running_shell_command() -> None:
    box = LocalSandbox("/")
    shell = box.shell("s")
    running = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(shell.run, "echo x; sleep 7109", on_output=lambda *_: running.set(), timeout_s=20)
        assert running.wait(5)
        box.close()
        result = call.result(timeout=10)
    assert (result.ended, result.output) == (True, "x\n")
    assert "closed" in result.notice
    with pytest.raises(Closed):
        shell.run("echo no")
    assert subprocess.run(["pgrep", "-f", "sleep 7109"], check=False).returncode == 1
