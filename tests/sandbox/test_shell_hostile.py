"""Commands that do something to the shell they run in, on every place: the result is what a script would
give, nothing of the frame shows, and the next command is right."""

from __future__ import annotations

import re
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import Place

from sandbox import Shell, ShellResult

REAL = {"bash": ["bash"], "dash": ["dash"], "ash": ["busybox", "sh"]}
NEXT = 'printf "%s\\n" "NEXT"; (exit 3)'


@pytest.fixture
def shell(place: Place) -> Iterator[Shell]:
    """A new shell in the place, closed afterwards."""
    opened = place.box.shell(f"h-{secrets.token_hex(4)}")
    yield opened
    opened.close()


def real(place: Place, script: str, directory: Path) -> tuple[str, int]:
    """What the shell that the place has does with the script in a file: the independent source."""
    path = directory / "script"
    path.write_bytes(script.encode())
    done = subprocess.run(
        [*REAL[place.shell], str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=directory,
        timeout=20,
        check=False,
        start_new_session=True,
    )
    return plain(done.stdout.decode(errors="replace")), done.returncode % 256 if done.returncode >= 0 else (
        128 - done.returncode
    )


def plain(text: str) -> str:
    """Text without the name and the line that a shell puts in front of its own messages."""
    return re.sub(r"^(bash|sh|\S*script|busybox)(: (eval|set|line \d+|\d+))*: ", "SHELL: ", text, flags=re.M)


def assert_unhurt(shell: Shell, result: ShellResult) -> None:
    """Nothing of the frame in the output, and the next command gives its own output and status."""
    assert not result.timed_out, result
    assert re.search(r"cr_[0-9a-f]{6}|\]8671", result.output) is None, result.output
    after = shell.run(NEXT, timeout_s=20)
    assert (after.output, after.exit_code, after.timed_out) == ("NEXT\n", 3, False)
    last = shell.run("true", timeout_s=20)
    assert (last.output, last.exit_code) == ("", 0)


NAMES = [
    "enable -n printf builtin unset 2>/dev/null; (exit 4)",
    "builtin() { :; }; command() { :; }; set() { echo S; }; unset() { echo U; }; (exit 4)",
    "eval() { echo E; }; exec() { echo X; }; trap() { echo T; }; (exit 5)",
    "jobs() { echo J; }; shopt() { echo S; }; read() { echo R; }; pwd() { echo P; }; false",
    "test() { echo T; }; stty() { echo S; }; cat() { echo C; }; local() { echo L; }; true",
    "readonly cr_c=1 cr_s=2 cr_x=3 cr_d=4; echo hi",
    "shopt -s expand_aliases 2>/dev/null; alias {=false eval=false builtin=false if=false; echo hi",
    "alias ll='echo LL'\nll",
    "shopt -s expand_aliases 2>/dev/null\nalias ll='echo LL'\nll",
]


@pytest.mark.spec("NS-50")
@pytest.mark.parametrize("command", NAMES)
def test_no_name_that_a_command_defines_or_disables_is_in_the_way(
    place: Place, shell: Shell, command: str, tmp_path: Path
) -> None:
    result = shell.run(command, timeout_s=20)
    assert (plain(result.output), result.exit_code) == real(place, command, tmp_path)
    # A function called `printf` is the caller's own business.
    assert_unhurt(shell, result)


OPTIONS = [
    "set -o posix 2>/dev/null; echo hi",
    "set -f; echo *",
    "set -a; A=1; B=2; echo hi",
    "set -e; ! true",
    "set -u; echo hi",
    "set -e; true",
    "set -C; set +h; set -h; echo hi",
    "set -k 2>/dev/null; echo a=1",
    "set -t 2>/dev/null; echo hi",
    "set -o vi; set -o emacs; echo hi",
    "shopt -s extdebug failglob nullglob lastpipe xpg_echo 2>/dev/null; echo hi",
    "shopt -s nocasematch nocaseglob dotglob 2>/dev/null; echo hi",
    "IFS=0123456789; echo hi",
    "IFS=; echo hi",
    "LC_ALL=C; LANG=C; echo hi",
    "PATH=; echo hi",
    "readonly PATH IFS PS4; echo hi",
    "readonly PS1=x PS2=y PROMPT_COMMAND TMOUT BASH_ENV; echo hi",
    "PROMPT_COMMAND='echo pc'; PS0='ps0'; PS1='$(exit 3)x'; PS2='y'",
    "PROMPT_COMMAND=x; PROMPT_DIRTRIM=2; TMOUT=1; MAILCHECK=0; echo hi",
    "BASH_ENV=/nowhere; ENV=/nowhere; export ENV BASH_ENV; echo hi",
    "umask 077; umask",
    "ulimit -f 0; ulimit -s 256; echo hi",
    "trap '' INT QUIT TERM CHLD WINCH TSTP; echo hi",
    "trap 'echo u' USR1; kill -USR1 $$; echo after",
    "trap 'exit 7' USR1; echo hi",
    "exec 3>&1 4<&0; echo hi >&3",
    "set -- a b; echo $#",
]


@pytest.mark.spec("NS-51")
@pytest.mark.parametrize("command", OPTIONS)
def test_no_option_variable_or_trap_changes_a_result(
    place: Place, shell: Shell, command: str, tmp_path: Path
) -> None:
    result = shell.run(command, timeout_s=20)
    assert (plain(result.output), result.exit_code) == real(place, command, tmp_path)
    assert_unhurt(shell, result)


DESCRIPTORS = [
    "exec 9>&-; exec 8>/dev/null 7</dev/null; echo hi",
    "exec 9>/dev/null 10>/dev/null 11>/dev/null 12>/dev/null 13>/dev/null; echo hi",
    "exec 255>&-; echo hi",
    "exec 255>/dev/null; echo hi",
    'for i in 3 4 5 6 7 8 9; do eval "exec $i>&-"; done; echo hi',
    "exec 0<&-; cat 2>/dev/null; echo hi",
    "exec </dev/null; echo hi",
]


@pytest.mark.spec("NS-52")
@pytest.mark.parametrize("command", DESCRIPTORS)
def test_closed_and_taken_descriptors_lose_no_result(
    place: Place, shell: Shell, command: str, tmp_path: Path
) -> None:
    result = shell.run(command, timeout_s=20)
    output, status = real(place, command, tmp_path)
    # What becomes of a number that the shell itself uses is told by the shell.
    assert [line for line in plain(result.output).splitlines() if not line.startswith("SHELL: ")] == [
        line for line in output.splitlines() if not line.startswith("SHELL: ")
    ]
    assert result.exit_code == status
    assert_unhurt(shell, result)


@pytest.mark.spec("NS-52")
def test_bash_answers_though_the_descriptor_that_keeps_its_input_is_closed(
    place: Place, shell: Shell
) -> None:
    if place.shell == "bash":
        closing = 'for i in 3 4 9 10 11 12 20 63 254 255; do eval "exec $i>&-"; done; echo hi; false'
        result = shell.run(closing, timeout_s=20)
        assert (result.output.splitlines()[0], result.exit_code, result.ended) == ("hi", 1, False)
    assert shell.run("echo next", timeout_s=20).output == "next\n"


@pytest.mark.spec("NS-52")
def test_output_that_a_command_closed_stays_closed(shell: Shell) -> None:
    result = shell.run("exec 1>&- 2>&-; echo lost", timeout_s=20)
    assert (result.output, result.exit_code) == ("", 1)
    assert shell.run("exec >/dev/tty 2>&1; echo back", timeout_s=20).output == "back\n"


@pytest.mark.spec("NS-53")
@pytest.mark.parametrize("command", ["ulimit -n 3", "set -n; echo x", "set -r 2>/dev/null; true"])
def test_a_shell_that_cannot_answer_any_more_is_ended_soon_or_goes_on(shell: Shell, command: str) -> None:
    result = shell.run(f"kept=yes; {command}", timeout_s=20)
    assert not result.timed_out
    assert not result.ended or "cannot answer" in result.notice
    if not result.ended:
        shell.run("true", timeout_s=20)
    again = shell.run("echo hi; (exit 3)", timeout_s=20)
    assert (again.output, again.exit_code) == ("hi\n", 3)


@pytest.mark.spec("NS-54")
@pytest.mark.parametrize("after", ["exit", "(exit $?)", "f() { return; }; f", "trap 'exit' EXIT; exit"])
def test_the_status_before_is_there_for_all_that_use_it(
    place: Place, shell: Shell, after: str, tmp_path: Path
) -> None:
    shell.run("(exit 7)", timeout_s=20)
    result = shell.run(after, timeout_s=20)
    assert (plain(result.output), result.exit_code) == real(place, f"(exit 7)\n{after}", tmp_path)


@pytest.mark.spec("NS-54")
def test_the_status_before_neither_ends_a_shell_nor_fires_a_trap(place: Place, shell: Shell) -> None:
    shell.run("set -e; ! true", timeout_s=20)
    assert shell.run("echo $?", timeout_s=20).output == "1\n"
    if place.shell == "bash":
        assert shell.run("set +e; trap 'echo E' ERR; false", timeout_s=20).output == "E\n"
        assert shell.run("echo $?", timeout_s=20).output == "1\n"


@pytest.mark.spec("NS-55")
def test_programs_find_nothing_of_the_frame_in_their_environment(place: Place, shell: Shell) -> None:
    names = "^(PS1|PS2|ENV|PROMPT_COMMAND|OLDPWD)=|cr_[0-9a-f]{6}|8671"
    assert shell.run(f'echo "${{OLDPWD-none}}"; env | grep -E "{names}"', timeout_s=20).output == "none\n"
    shell.run("set -a; A=1", timeout_s=20)
    assert shell.run(f'B=2; env | grep -E "{names}|^A="', timeout_s=20).output == "A=1\n"


@pytest.mark.spec("NS-56")
def test_a_file_that_takes_the_shells_errors_gets_nothing_of_the_frame(place: Place, shell: Shell) -> None:
    base = place.fresh()
    shell.run(f"exec 2>{base}/errors", timeout_s=20)
    for command in ("true", "false", "echo to-errors >&2", "sleep 0 & wait"):
        shell.run(command, timeout_s=20)
    assert place.box.read_file(f"{base}/errors") == b"to-errors\n"


@pytest.mark.spec("NS-57")
def test_a_shell_that_interrupts_itself_is_back_at_once(shell: Shell) -> None:
    shell.run("kept=yes", timeout_s=20)
    result = shell.run("echo before; kill -INT $$; echo after", timeout_s=20)
    assert (result.exit_code, result.timed_out, result.ended) == (130, False, False)
    assert result.output.strip() == "before"
    assert shell.run("echo $kept", timeout_s=20).output == "yes\n"


@pytest.mark.spec("NS-58")
@pytest.mark.parametrize("lie", ["PWD=/nonsense", "unset PWD", "PWD="])
def test_a_wrong_pwd_is_not_believed(place: Place, shell: Shell, lie: str) -> None:
    base = place.fresh()
    result = shell.run(f"cd {base}; {lie}; echo hi", timeout_s=20)
    assert (result.output, result.exit_code, result.cwd, result.notice) == ("hi\n", 0, base, "")


@pytest.mark.spec("NS-58")
@pytest.mark.parametrize("name", ["a\nb", "a\n", "a\x1b]8671;E;", "a;1;b", "-n", "a b'\"$x"])
def test_the_directorys_name_is_exact_when_pwd_is_wrong(place: Place, shell: Shell, name: str) -> None:
    path = f"{place.fresh()}/{name}"
    place.box.make_dirs(path)
    quoted = "'" + path.replace("'", "'\\''") + "'"
    assert shell.run(f"cd -- {quoted}; unset PWD", timeout_s=20).cwd == path
    assert shell.run("true", timeout_s=20).cwd == path


@pytest.mark.spec("NS-59")
def test_a_shell_that_is_killed_amid_many_commands_never_gives_a_false_success(shell: Shell) -> None:
    shell.run("(sleep 0.3; kill -9 $$) >/dev/null 2>&1 &", timeout_s=20)
    for _ in range(20_000):
        result = shell.run("(exit 5)", timeout_s=20)
        if result.ended or result.notice:
            break
        assert (result.exit_code, result.output) == (5, "")
    assert result.exit_code in (5, 137)
    assert "new shell" in result.notice or result.ended


@pytest.mark.spec("NS-60")
def test_bash_lists_only_the_callers_traps(place: Place, shell: Shell, tmp_path: Path) -> None:
    if place.shell == "bash":
        for command in ("trap", "trap -p TERM", "trap 'echo u' USR1; trap"):
            result = shell.run(command, timeout_s=20)
            assert (plain(result.output), result.exit_code) == real(place, command, tmp_path)
    ended = shell.run("kill -TERM $$; echo no", timeout_s=20)
    assert (ended.output, ended.exit_code, ended.ended) == ("", 143, True)


TEXTS = [
    "echo trap; echo a &&",
    "echo set x; echo a ||",
    "echo trap; g()",
    "cat <<E # trap\na\nE",
    "<<trap",
    "set -e; false && true",
    "set -e; echo 'a # b'; ! true",
    "set -e; echo a; false",
    "set -e; f() { false; echo no; }; f",
    'set x "y\'z"; echo "$2"',
]


@pytest.mark.spec("NS-61")
@pytest.mark.parametrize("command", TEXTS)
def test_no_line_of_the_frames_completes_a_text_or_changes_its_status(
    place: Place, shell: Shell, command: str, tmp_path: Path
) -> None:
    result = shell.run(command, timeout_s=20)
    output, status = real(place, command, tmp_path)
    assert result.exit_code == status
    assert [line for line in plain(result.output).splitlines() if not line.startswith("SHELL: ")] == [
        line for line in output.splitlines() if line and not line.startswith("SHELL: ")
    ]
    assert_unhurt(shell, result)


STRAY = ["}", ". /dev/null\n}", "set -e\n}", "trap : HUP\n}\n{ :", "set +e; :\n}; fi; done"]


@pytest.mark.spec("NS-61")
@pytest.mark.parametrize("text", STRAY)
def test_nothing_runs_behind_a_brace_too_many(place: Place, shell: Shell, text: str) -> None:
    made = f"{place.fresh()}/made"
    result = shell.run(f"{text}\n: >{made}\n", timeout_s=20)
    assert result.exit_code == 2
    assert place.box.exec(["ls", made]).exit_code != 0


UNFINISHED = [
    "[[ ]",
    "[[ a &&",
    "[[ (",
    "case x in",
    "case x in (a",
    "((",
    "a=(",
    "for ((",
    "f() {",
    "echo $(",
    "'",
    "<(",
]


@pytest.mark.spec("NS-61")
@pytest.mark.parametrize("text", UNFINISHED)
def test_an_unfinished_text_leaves_the_parser_able_to_read_the_frame(shell: Shell, text: str) -> None:
    # A trap, and a text that may set one, have the frame look after traps behind the text.
    shell.run("trap 'true' HUP", timeout_s=20)
    result = shell.run(f". ./no-such-file-{secrets.token_hex(4)}\n{text}", timeout_s=20)
    assert re.search(r"builtin|command (eval|trap|printf)", result.output) is None, result.output
    assert_unhurt(shell, result)


OUTPUT = [
    "printf '\\033]8671;E;'",
    "printf '\\033]867'",
    "printf '\\033'",
    "printf '\\033]0;title'",
    "printf '\\233\\235abc\\234 \\000x\\177 a\\rb'",
    "printf '\\r'; printf '\\r\\n'; printf '\\n\\r'",
    "printf '\\033]8671;S;0123456789abcdef\\007\\033]8671;P;0123456789abcdef01234567;1\\007'; false",
]


@pytest.mark.spec("NS-15")
@pytest.mark.parametrize("command", OUTPUT)
def test_parts_of_marks_and_control_bytes_are_output(
    place: Place, shell: Shell, command: str, tmp_path: Path
) -> None:
    (tmp_path / "script").write_text(command)
    done = subprocess.run(
        [*REAL[place.shell], str(tmp_path / "script")], capture_output=True, timeout=20, check=False
    )
    result = shell.run(command, timeout_s=20)
    assert (result.captured.data, result.exit_code) == (done.stdout, done.returncode)
    assert shell.run("echo next", timeout_s=20).output == "next\n"
