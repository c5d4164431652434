"""The command policy: tables of commands and what is decided about them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from codetools import PathRule, Policy, PolicyError, Rule
from codetools.rules import Decision, clean_path


def rules(**patterns: str) -> Policy:
    """A policy from lists of patterns, separated by commas."""
    made = [
        Rule(decision=decision, pattern=pattern.strip())
        for decision in ("allow", "ask", "deny")
        for pattern in patterns.get(decision, "").split(",")
        if pattern
    ]
    return Policy(rules=tuple(made))


USUAL = rules(allow="git *, ls*, cd *, cat *, echo *", deny="rm *, npm *", ask="some-script*")


def decided(policy: Policy, command: str) -> Decision:
    return policy.check(command).decision


DENIED_PARTS = [
    "git status && rm -rf x",
    "git status; rm x",
    "ls & rm x",
    "git status\nrm x",
    "cd a && npm i evil",
    "git status || rm x",
    "git log | rm x",
    "git log |& rm x",
    "{ rm x; }",
    "( rm x )",
    "! rm x",
    "if true; then rm x; fi",
    "if rm x; then ls; fi",
    "if true; then ls; elif true; then rm x; fi",
    "if false; then ls; else rm x; fi",
    "while true; do rm x; done",
    "until rm x; do ls; done",
    "for i in a; do rm x; done",
    "for ((i=0;i<1;i++)); do rm x; done",
    "select i in a; do rm x; done",
    "case a in a) rm x;; esac",
    "time rm x",
    "time -p rm x",
    "coproc rm x",
    "f(){ rm x; }; f",
    "function f { rm x; }; f",
    "f() ( rm x )",
    ">out rm x",
    "rm >out x",
    "ls && rm x >/dev/null 2>&1",
    "rm\\\n x",
    "ls\n\\rm x",
    "ls a\n \\rm x",
    "git status &&\n\\rm x",
    "ls # comment\nrm x",
]


@pytest.mark.spec("PO-01", "EX-03")
@pytest.mark.parametrize("command", DENIED_PARTS)
def test_one_refused_part_refuses_the_whole_command(command: str) -> None:
    verdict = USUAL.check(command)
    assert verdict.decision == "deny"
    assert verdict.rule in {"deny rm *", "deny npm *"}


DENIED_INSIDE = [
    "cat <(rm c)",
    "echo hi > $(rm x)",
    "echo hi > >(rm x)",
    "cat <<EOF\n$(rm e)\nEOF",
    "cat <<EOF\n`rm e`\nEOF",
    "cat <<-EOF\n\t$(rm e)\n\tEOF",
    'cat <<< "$(rm x)"',
    "echo $((a[$(rm x)]))",
    "echo $[ $(rm x) ]",
    "((a = $(rm x)))",
    "a[$(rm x)]=1",
    "A=$(rm x)",
    "A=(1 $(rm x))",
    "A=$(rm x) ls",
    "export A=$(rm x)",
    "declare A=`rm x`",
    "[[ -n $(rm x) ]]",
    "[ -n $(rm x) ]",
    'echo "a $(echo "b $(rm x)")"',
    "echo ${A:-$(rm x)}",
    'echo "${A:-`rm x`}"',
    "ls $(rm x)",
    "for i in $(rm x); do ls; done",
    "case $(rm x) in a) ls;; esac",
    "ls 2> $(rm x)",
    "echo `echo \\`rm x\\``",
    "echo `r\\\\m x`",
]


@pytest.mark.spec("PO-02")
@pytest.mark.parametrize("command", DENIED_INSIDE)
def test_a_command_inside_another_is_judged(command: str) -> None:
    assert decided(USUAL, command) == "deny"


SPELLINGS = [
    "$'\\x72m' y",
    "$'\\162m' y",
    "$'\\u0072m' y",
    "$'rm' y",
    '$"rm" y',
    "r\\m y",
    "'r'm y",
    '"rm" y',
    'r""m y',
    "r''m y",
    "/bin/rm y",
    "/usr/bin/rm y",
    "../../bin/rm y",
    "\\rm y",
    "r\\\nm y",
    "'rm' y",
    "\"r\"'m' y",
]


@pytest.mark.spec("PO-03")
@pytest.mark.parametrize("command", SPELLINGS)
def test_however_a_program_is_spelled_the_rule_knows_it(command: str) -> None:
    assert decided(USUAL, command) == "deny"


CARRIED = [
    'eval "rm x"',
    "eval rm x",
    "eval -- rm x",
    "env rm x",
    "env -i A=1 rm x",
    "env -u B -C /tmp rm x",
    "env --unset=B rm x",
    "env -S 'rm x'",
    "env '-Srm x'",
    "/usr/bin/env rm x",
    "A=1 rm x",
    "sudo rm x",
    "sudo -u root rm x",
    "sudo -nE A=1 rm x",
    "sudo --user=root -- rm x",
    "doas -u root rm x",
    "nohup rm x",
    "nice -n 5 rm x",
    "nice -5 rm x",
    "ionice -c2 -n 0 rm x",
    "timeout 5 rm x",
    "timeout -k 1 -s KILL 5 rm x",
    "timeout --signal=KILL 5s rm x",
    "stdbuf -oL rm x",
    "setsid rm x",
    "command rm x",
    "command -p rm x",
    "builtin eval rm x",
    "exec rm x",
    "exec -a name rm x",
    "xargs rm",
    "xargs -n1 -P 4 rm",
    "xargs -I{} rm {}",
    "ls | xargs -0 -r rm",
    "xargs sh -c 'rm \"$@\"' _",
    "xargs -I% sh -c 'rm %'",
    "xargs -I % sh -c 'rm %'",
    "xargs -a list rm",
    "find . -exec sh -c 'rm {}' \\;",
    "env - rm x",
    "bash --norc -c 'rm x'",
    "bash -O extglob -c 'rm x'",
    "bash +x -ce 'rm x'",
    "ls | while read f; do rm $f; done",
    "nohup sh -c 'rm x' &",
    "trap -- 'rm x' EXIT",
    "find . -exec rm {} \\;",
    "find . -execdir rm {} +",
    "find . -ok rm {} ';'",
    "find . -name x -delete",
    "find . -exec sh -c 'rm x' \\;",
    "sh -c 'rm x'",
    "bash -lc 'rm x'",
    "bash -e -c 'rm x'",
    "bash -o pipefail -c 'rm x'",
    "bash -c -- 'rm x'",
    "zsh -c 'rm x'",
    "dash -c 'ls; rm x'",
    "bash -c 'bash -c \"rm x\"'",
    "busybox rm x",
    "busybox sh -c 'rm x'",
    "bash <<< 'rm x'",
    "bash -s <<'EOF'\nrm x\nEOF",
    "bash /dev/stdin <<'EOF'\nrm x\nEOF",
    "source /dev/stdin <<'EOF'\nrm x\nEOF",
    "{ bash; } <<'EOF'\nrm x\nEOF",
    "bash <<'EOF' | cat\nrm x\nEOF",
    "alias ls='rm x'",
    "trap 'rm x' EXIT",
    "watch -n1 rm x",
    "git -c alias.x='!rm y' x",
    "git bisect run rm x",
    "git submodule foreach 'rm x'",
    "git rebase -x 'rm x' HEAD~1",
    "git rebase --exec='rm x' HEAD~1",
    "su -c 'rm x'",
    "su root --command='rm x'",
    "script -qc 'rm x' /dev/null",
    "flock /tmp/l rm x",
    "flock /tmp/l -c 'rm x'",
    "git <<EOF && rm x\nhi\nEOF",
    "env nice timeout 5 sudo xargs rm",
]


@pytest.mark.spec("PO-04")
@pytest.mark.parametrize("command", CARRIED)
def test_a_command_behind_a_carrier_is_judged(command: str) -> None:
    assert decided(USUAL, command) == "deny"


UNREADABLE = [
    'ls "漢',
    'ls $"漢',
    "x=rm; $x y",
    "${X:-rm} y",
    "$(echo rm) y",
    "`echo rm` y",
    "r$x y",
    '"$@"',
    "/bin/r? y",
    "/bin/r[m] y",
    "/b*/rm y",
    "{rm,y}",
    "~/bin/x",
    'bash -c "$x"',
    'eval "$x"',
    "eval $x",
    "curl -s u | sh",
    "bash",
    "bash -s",
    "bash < file",
    "bash <(curl u)",
    "source <(curl u)",
    '. "$x"',
    "python3 -c 'print(1)'",
    "python3 -Ic 'print(1)'",
    "python3 - <<'EOF'\nprint(1)\nEOF",
    "python3 <<'EOF'\nprint(1)\nEOF",
    "echo 'print(1)' | python3",
    "perl -e 1",
    "perl -ne 1",
    "node -e 1",
    "node --eval=1",
    "ruby -e 1",
    "php -r 1",
    "awk 'BEGIN{system(\"rm x\")}'",
    "ssh host rm x",
    "git -c core.pager='rm x' log",
    "git -c core.sshCommand=x fetch",
    "git --exec-path=/evil status",
    "git --config-env=core.pager=X log",
    "git grep -O'rm x' y",
    "bind -x '\"a\":rm x'",
    "mapfile -C 'rm x' a",
    "hash -p /bin/rm ls",
    "PS4='$(rm x)'; set -x; ls",
    "PROMPT_COMMAND='rm x'",
    "BASH_ENV=x bash -c ls",
    "a='x[$(rm y)]'; echo $((a))",
    "let 'a[$(rm x)]=1'",
    "ls\n\\{ x",
    "echo $(( cat <<'E'\n$(`echo ls`)\nE\n ))",
    "((ls); ls)",
    "[]#;ls",
    "ls ''\\$",
    "{ ls; }#;ls",
    ">{\\] ls",
    "echo $(( $(echo 'a[$(rm x)]') ))",
    "for ((i=$(echo 'a[$(rm x)]');i<1;i++)); do ls; done",
    "printf -v 'a[$(rm x)]' y",
    "ls $(",
    "ls 'unfinished",
    "if true; then ls",
    "cat <<A <<'B'\na\nA\nb\nB",
    "ls\r\nls",
    'echo `echo "`ls`"`',
    "env --frobnicate ls",
    "xargs -I{} {} x",
    "xargs -I% % x",
    "xargs -0I % % x",
    "xargs --replace=X X x",
    "xargs -i x {}",
    "find . -exec {} \\;",
    "echo \udc80",
    "(" * 500 + "ls" + ")" * 500,
    "bash -c " * 20 + "ls",
    "time ! " * 50 + "{ ls; }",
]


@pytest.mark.spec("PO-05")
@pytest.mark.parametrize("command", UNREADABLE, ids=lambda command: ascii(command)[:40])
def test_what_cannot_be_read_before_it_runs_is_never_allowed_by_a_broad_rule(command: str) -> None:
    broad = rules(allow="*", deny="rm *")
    assert decided(broad, command) == "ask" or (decided(broad, command) == "deny" and "rm" in command)
    assert decided(rules(deny="rm *"), command) in {"ask", "deny"}


NEIGHBOURS = [
    "git log | sh",
    "git status; make",
    "git status $(touch /tmp/p)",
    'git log "`id`"',
    "git log >(tee /x)",
    "ls && ./script",
    "./git status",
    "/tmp/git status",
    "~/git status",
    "sudo git status",
    "PATH=/evil git status",
    "GIT_SSH_COMMAND=evil git fetch",
    "LD_PRELOAD=x ls",
    "env LD_PRELOAD=x ls",
    "export PATH=/evil; ls",
    "PATH=/evil; ls",
    "cat <<'EOF' | some-script\nEOF",
    "find . -exec git status \\;",
    "alias x='git status'",
]


@pytest.mark.spec("PO-06")
@pytest.mark.parametrize("command", NEIGHBOURS)
def test_a_part_with_no_rule_is_not_allowed_by_its_neighbour(command: str) -> None:
    assert decided(USUAL, command) == "ask"


HARMLESS = [
    "git status",
    "git -C /r status",
    "git --no-pager status",
    "git -C /r --no-pager -c color.ui=always status",
    "git --git-dir=/r/.git status",
    'ls "a b"',
    "ls 2>/dev/null",
    "ls > /dev/null",
    "ls >/dev/null 2>&1",
    "ls &>/dev/null",
    "ls | cat",
    "ls; git status && echo done",
    "timeout 60 git status",
    "time git status",
    "nice git status",
    "env FOO=1 git status",
    "FOO=1 git status",
    "bash -c 'git status'",
    "git diff $(git merge-base main HEAD)",
    "if [ -f a ]; then ls; fi",
    "[[ -f a ]] && ls",
    "for f in a b; do cat $f; done",
    "ls || true",
    "! ls",
    "ls *.py",
    "x=1; echo $x",
    "export FOO=1; ls",
    "/bin/ls",
    "cat >> n.md <<'EOF'\nmentions rm -rf x\nEOF",
    "cat <<'EOF'\n$(rm x) `rm y`\nEOF",
    "echo 'rm x; npm y'",
    "echo rm",
    "# rm x",
    "command -v rm",
    "command -v git && git status",
    "set -euo pipefail; ls",
    "echo no >/dev/stderr",
    "ls # rm x",
    "ls | xargs git status",
    "f() { ls; }; f",
]


@pytest.mark.spec("PO-07")
@pytest.mark.parametrize("command", HARMLESS)
def test_what_the_rules_allow_is_not_asked_about(command: str) -> None:
    verdict = USUAL.check(command)
    assert verdict.decision == "allow", verdict.reason


@pytest.mark.spec("PO-07")
@pytest.mark.parametrize(
    "command", ["git -C /r status", "git --no-pager status", "git status -s", "git status"]
)
def test_options_before_a_subcommand_do_not_hide_it(command: str) -> None:
    assert decided(rules(allow="git status*"), command) == "allow"
    assert decided(rules(deny="git status*"), command) == "deny"
    assert decided(rules(allow="git log*"), command) == "ask"


@pytest.mark.spec("PO-08", "EX-05")
@pytest.mark.parametrize(
    "command", ["rm -rf /", "git diff $(git merge-base main HEAD)", "$x", "((", "\0", ""]
)
def test_a_policy_that_says_nothing_allows_everything(command: str) -> None:
    assert Policy().empty
    assert decided(Policy(), command) == "allow"


@pytest.mark.spec("PO-09")
def test_without_allow_rules_what_no_rule_names_is_allowed() -> None:
    policy = rules(deny="rm *", ask="git push*")
    assert decided(policy, "make && ls | wc -l") == "allow"
    assert decided(policy, "git push origin") == "ask"
    assert decided(policy, "make; rm x") == "deny"


@pytest.mark.spec("PO-09")
def test_a_default_of_ask_is_for_every_program_and_every_written_file_without_a_rule() -> None:
    policy = rules(allow="ls*").with_default("ask")
    assert decided(policy, "ls") == "allow"
    assert decided(policy, "make") == "ask"
    assert decided(policy, "ls > out") == "ask"
    assert decided(policy, "true > out") == "ask"
    assert decided(Policy().with_default("ask"), "ls") == "ask"
    assert decided(Policy(default="deny"), "ls") == "deny"
    strict = Policy(rules=(Rule(decision="allow", pattern="ls*"),), default="deny")
    assert [decided(strict, text) for text in ("ls", "$x", 'bash -c "$x"', "ls $(", "ls > out")] == [
        "allow",
        "deny",
        "deny",
        "deny",
        "deny",
    ]
    assert Policy(default="allow").with_default("ask").default == "allow"


@pytest.mark.spec("PO-10")
def test_deny_beats_ask_beats_allow_in_any_order() -> None:
    parts = (
        Rule(decision="allow", pattern="git *"),
        Rule(decision="ask", pattern="git push*"),
        Rule(decision="deny", pattern="git push --force*"),
    )
    for ordered in (parts, parts[::-1], (parts[1], parts[0], parts[2])):
        policy = Policy(rules=ordered)
        assert decided(policy, "git log") == "allow"
        assert decided(policy, "git push") == "ask"
        assert decided(policy, "git push --force") == "deny"


@pytest.mark.spec("PO-11")
@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("rm $x", "ask"),
        ("rm -r{f,} x", "ask"),
        ("rm *", "ask"),
        ("rm src/*", "allow"),
        ("rm x", "allow"),
        ("$r -rf x", "ask"),
        ("rm -rf x", "deny"),
        ("xargs rm", "ask"),
    ],
)
def test_an_argument_that_is_unknown_may_be_the_refused_one(command: str, wanted: Decision) -> None:
    assert decided(rules(allow="rm*", deny="rm -rf*"), command) == wanted


@pytest.mark.spec("PO-12")
@pytest.mark.parametrize(
    ("pattern", "command", "match"),
    [
        ("ls *", "ls", True),
        ("ls *", "ls -l a b", True),
        ("ls *", "lsof", False),
        ("ls*", "lsof -i", True),
        ("ls", "ls", True),
        ("ls", "ls -l", False),
        ("git status*", "git status -s", True),
        ("git status*", "git stash", False),
        ("git * --force", "git push --force", True),
        ("git * --force", "git push", False),
        ("pip install requests*", "pip install requests==2", True),
        ("pip install requests*", "pip install evil", False),
        ("echo [a]", "echo '[a]'", True),
        ("echo [a]", "echo a", False),
        ("./run.sh *", "./run.sh a", True),
        ("./run.sh *", "/tmp/run.sh a", False),
    ],
)
def test_how_a_pattern_matches(pattern: str, command: str, match: bool) -> None:
    assert (decided(rules(allow=pattern), command) == "allow") is match


@pytest.mark.spec("PO-12")
def test_an_argv_rule_is_an_exact_prefix_with_alternatives() -> None:
    policy = Policy(rules=(Rule(decision="allow", argv=("git", ("log", "status"))),))
    assert decided(policy, "git log -p") == "allow"
    assert decided(policy, "git status") == "allow"
    assert decided(policy, "git push") == "ask"
    assert decided(Policy(rules=(Rule(decision="allow", argv=("*",)),)), "ls") == "ask"


@pytest.mark.spec("PO-13")
def test_inline_code_is_allowed_only_by_a_rule_that_names_it_exactly() -> None:
    command = "python3 -c 'print(1)'"
    assert decided(rules(allow="python3 *"), command) == "ask"
    assert decided(Policy(rules=(Rule(decision="allow", argv=("python3", "-c")),)), command) == "ask"
    exact = Policy(rules=(Rule(decision="allow", argv=("python3", "-c", "print(1)")),))
    assert decided(exact, command) == "allow"
    assert decided(exact, "python3 -c 'print(2)'") == "ask"
    assert decided(rules(allow="python3 *"), "python3 -m pytest -c x") == "allow"
    assert decided(rules(allow="python3 *"), "python3 script.py -c x") == "allow"


@pytest.mark.spec("PO-14")
def test_the_answer_names_the_part_the_rule_and_the_reason() -> None:
    policy = Policy(rules=(Rule(decision="deny", pattern="rm *", reason="use trash"),))
    verdict = policy.check("ls && rm -rf x")
    assert verdict.rule == "deny rm *"
    assert "`rm -rf x`" in verdict.reason
    assert "use trash" in verdict.reason
    assert "`make`" in USUAL.check("ls; make").reason


@pytest.mark.spec("EX-08", "PO-15")
def test_plain_patterns_are_searched_anywhere_in_the_trimmed_command() -> None:
    policy = Policy(allow_regex=("^git ", "pytest$"), deny_regex=("push",))
    assert decided(policy, "  git status  ") == "allow"
    assert decided(policy, "python -m pytest") == "allow"
    refused = policy.check("make all")
    assert (refused.decision, refused.rule) == ("deny", "no allow pattern")
    assert "`make all`" in refused.reason
    pushed = policy.check("git push")
    assert pushed.decision == "deny"
    assert "'push'" in pushed.reason and "`git push`" in pushed.reason


@pytest.mark.spec("EX-07")
@pytest.mark.parametrize(
    "command",
    ["rm -fr /", "rm  -rf /", "rm -r -f /", "eval $(echo cm0gLXJmIC8= | base64 -d)", 'rm -rf "$HOME"'],
)
def test_plain_patterns_are_no_containment(command: str) -> None:
    policy = Policy(deny_regex=("rm -rf /",))
    assert decided(policy, "rm -rf /") == "deny"
    assert decided(policy, command) == "allow"
    assert decided(Policy(allow_regex=("^git ",)), "git status; rm -rf x") == "allow"


@pytest.mark.spec("EX-06")
@pytest.mark.parametrize("field", ["allow_regex", "deny_regex"])
def test_a_pattern_that_does_not_compile_refuses_everything(field: str) -> None:
    policy = Policy(**{field: ("ok", "(unclosed")})  # type: ignore[arg-type]
    verdict = policy.check("ls")
    assert verdict.decision == "deny"
    assert "(unclosed" in verdict.reason
    assert policy.check_path("a", "read").decision == "deny"


@pytest.mark.spec("PO-15")
def test_a_hostile_pattern_takes_linear_time() -> None:
    policy = Policy(deny_regex=("^(a+)+$",))
    assert decided(policy, "a" * 5000 + "b") == "allow"


@pytest.mark.spec("EX-09")
def test_one_policy_serves_many_threads() -> None:
    start = threading.Barrier(8)

    def work(_: int) -> set[Decision]:
        start.wait(10)
        return {decided(USUAL, "git status && rm x") for _ in range(50)}

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(work, range(8)))
    assert results == [{"deny"}] * 8


PATHS = Policy(
    paths=(
        PathRule(decision="deny", pattern=".git/*", access="write"),
        PathRule(decision="deny", pattern="secret*"),
        PathRule(decision="ask", pattern="/*", access="write"),
        PathRule(decision="allow", pattern="src/*"),
    )
)


@pytest.mark.spec("PO-16")
@pytest.mark.parametrize(
    ("path", "access", "wanted"),
    [
        (".git/config", "write", "deny"),
        ("./.git/config", "write", "deny"),
        ("a/../.git/hooks/x", "write", "deny"),
        ("/work/.git/config", "write", "deny"),
        (".git/config", "read", "allow"),
        ("secret.txt", "read", "deny"),
        ("/etc/passwd", "write", "ask"),
        ("/work/src/a", "write", "allow"),
        ("src/a", "write", "allow"),
        ("other", "write", "allow"),
    ],
)
def test_path_rules_see_through_the_spelling(path: str, access: str, wanted: Decision) -> None:
    assert PATHS.check_path(path, access, "/work").decision == wanted  # type: ignore[arg-type]


@pytest.mark.spec("PO-16")
@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("echo x > .git/config", "deny"),
        ("echo x >> ./.git/config", "deny"),
        ("echo x &> .git/config", "deny"),
        ("echo x >| .git/config", "deny"),
        ("cat < secret.txt", "deny"),
        ("echo x <> secret.txt", "ask"),
        ("echo x > $f", "ask"),
        ("cd .git && echo x > config", "ask"),
        ("echo x > out", "allow"),
        ("echo x > /dev/null", "allow"),
        ("find . -fprint .git/config", "deny"),
    ],
)
def test_path_rules_hold_for_what_the_shell_opens(command: str, wanted: Decision) -> None:
    assert decided(PATHS, command) == wanted


@pytest.mark.spec("PO-19")
@pytest.mark.parametrize(
    ("command", "elsewhere", "wanted"),
    [
        ("./run.sh", False, "allow"),
        ("./run.sh", True, "ask"),
        ("cd /evil && ./run.sh", False, "ask"),
        ("env -C /evil ./run.sh", False, "ask"),
        ("cd /evil && ls", False, "allow"),
        ("ls", True, "allow"),
    ],
)
def test_a_relative_program_is_not_the_allowed_one_elsewhere(
    command: str, elsewhere: bool, wanted: Decision
) -> None:
    policy = rules(allow="./run.sh, ls*, cd *")
    assert policy.check(command, elsewhere=elsewhere).decision == wanted
    assert PATHS.check("echo x > config", elsewhere=elsewhere).decision == ("ask" if elsewhere else "allow")


@pytest.mark.spec("PO-16")
@pytest.mark.parametrize(
    ("path", "cwd", "clean"),
    [
        ("", "", "."),
        ("./a//b/", "", "a/b"),
        ("//a", "", "/a"),
        ("/work/a", "/work", "a"),
        ("/work", "/work", "."),
        ("/workshop/a", "/work", "/workshop/a"),
        ("/a", "/", "a"),
        ("../a", "/work", "../a"),
    ],
)
def test_a_path_has_one_spelling(path: str, cwd: str, clean: str) -> None:
    assert clean_path(path, cwd) == clean


@pytest.mark.spec("PO-17")
def test_a_rule_file_is_read() -> None:
    policy = Policy.from_toml(
        """
        default = "ask"
        deny_regex = ["passwd"]

        [[rule]]
        decision = "allow"
        pattern = "git status*"
        match = ["git status -s", "git -C /r status"]
        not_match = ["git push"]

        [[rule]]
        decision = "deny"
        argv = ["git", ["push", "fetch"]]
        reason = "no network"

        [[path]]
        decision = "deny"
        pattern = ".git/*"
        access = "write"
        """
    )
    assert decided(policy, "git status") == "allow"
    assert decided(policy, "make") == "ask"
    assert decided(policy, "cat /etc/passwd") == "deny"
    assert policy.check("git fetch").reason.endswith("no network")
    assert policy.check_path(".git/x", "write").decision == "deny"


WRONG_FILES = [
    ("[[rule", "not TOML"),
    ("colour = 1", "unknown key 'colour'"),
    ("default = 'perhaps'", "'perhaps'"),
    ("rule = 1", "[[rule]]"),
    ("[[rule]]\npattern = 'ls'", "rule 1"),
    ("[[rule]]\ndecision = 'allow'", "rule 1"),
    ("[[rule]]\ndecision = 'allow'\npattern = '  '", "rule 1"),
    ("[[rule]]\ndecision = 'allow'\npattern = 'ls'\nargv = ['ls']", "not both"),
    ("[[rule]]\ndecision = 'allow'\npattern = 1", "pattern is a text"),
    ("[[rule]]\ndecision = 'allow'\nargv = 'ls'", "argv is a list"),
    ("[[rule]]\ndecision = 'allow'\nargv = [1]", "argv holds"),
    ("[[rule]]\ndecision = 'allow'\npattern = 'ls'\nmatch = 'ls'", "match is a list"),
    ("[[rule]]\ndecision = 'allow'\npattern = 'ls'\nmatch = ['ls -l']", "should match 'ls -l'"),
    ("[[rule]]\ndecision = 'allow'\npattern = 'ls*'\nnot_match = ['lsof']", "should not match 'lsof'"),
    ("[[path]]\ndecision = 'deny'", "path 1"),
    ("[[path]]\ndecision = 'deny'\npattern = 'a'\naccess = 'run'", "'run'"),
    ("deny_regex = ['(']", "does not compile"),
]


@pytest.mark.spec("PO-17")
@pytest.mark.parametrize(("text", "complaint"), WRONG_FILES)
def test_a_wrong_rule_file_is_refused_by_name(text: str, complaint: str) -> None:
    with pytest.raises(PolicyError) as caught:
        Policy.from_toml(text)
    assert complaint in str(caught.value)
