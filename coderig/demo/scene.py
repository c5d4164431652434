"""Sets the demo up in a place, lets the agent work, and looks at what came of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rich.text import Text

from coderig.approvals import Answer, diff_style, plain
from coderig.masking import Mask
from coderig.place import DockerPlace, Place, parse_place
from coderig.session import Decisions, Session
from coderig.signals import FAILED, OK
from coderig.store import RunMeta, Store, new_id, now_s
from coderig.terminal_io import Stream, console
from coderig.view import TextView
from runtime import PendingApproval
from sandbox import ExecResult, Sandbox, SandboxError

_HERE = Path(__file__).parent
_FILES = ("README.md", "tally/__init__.py", "tally/shares.py", "tally/test_shares.py")
_TESTS = ["python3", "-m", "unittest"]
_TEST_TIMEOUT_S = 120.0
# Compiled files would show up in the diff.
_ENV = {"PYTHONDONTWRITEBYTECODE": "1"}
TASK = "The tests of this project fail. Find out why, repair the code (not the tests), and show it."

_MAKE_DIRECTORY = 'umask 077; d="${TMPDIR:-/tmp}/coderig-demo-$1"; mkdir -- "$d" && cd -- "$d" && pwd'
_REMEMBER = """\
if command -v git >/dev/null 2>&1; then
  git init -q . && git add . && git -c user.name=demo -c user.email=demo@localhost commit -q -m "As it came"
else
  mkdir .before && cp -R tally .before
fi"""
_DIFF = """\
if [ -d .before ]; then diff -ru .before/tally tally || [ $? = 1 ]; else git --no-pager diff; fi"""


class DemoError(Exception):
    """The demo cannot be shown in this place; the message says what to do."""


@dataclass(kw_only=True)
class Demo:
    """One showing.

    model  None: the script; else a model by name, which needs its key
    ask    a person decides about each command and edit
    keep   leave the project where it was repaired
    """

    store: Store
    place: str
    out: Stream
    remarks: Stream
    mask: Mask
    model: str | None = None
    base_url: str | None = None
    ask: bool = False
    keep: bool = False
    decisions: Decisions = field(default_factory=Decisions)
    person: Callable[[PendingApproval], Answer] | None = None
    _green: bool = field(init=False, default=False)
    _changed: str = field(init=False, default="")
    _said: str = field(init=False, default="")
    _directory: str = field(init=False, default="")

    def show(self) -> int:
        """Show it; returns the exit code: 0 only if the tests were red before and are green now.

        Raises DemoError, PlaceError, StoreError, UserError, SandboxError."""
        run_id = new_id()
        named = parse_place(self.place)
        self._say(f"{_opening(self.model)} This is the run {run_id}.", "dim")
        place = named.for_run(run_id)
        try:
            placed = self._prepare(named, place, run_id)
        except BaseException:
            with suppress(SandboxError):
                place.remove()
            raise
        meta = self._meta(run_id, placed)
        self.store.create(meta)
        view = TextView(self.out, self.remarks)
        session = Session(
            store=self.store,
            meta=meta,
            view=view,
            mask=self.mask,
            decisions=self.decisions,
            ask=self.person,
            remark=self._remark,
            when_done=self._judge,
        )
        ending = session.start()
        view.end(ending)
        if ending.status != "completed":
            return ending.exit_code
        self._tell()
        return OK if self._green else FAILED

    def _meta(self, run_id: str, place: Place) -> RunMeta:
        policy = (_HERE / "policy.toml").read_text("utf-8")
        return RunMeta(
            id=run_id,
            created_s=now_s(),
            task=TASK,
            place=place.text,
            model=self.model or f"script:{_HERE / 'script.jsonl'}",
            base_url=self.base_url,
            cwd=str(Path.cwd()),
            policy_path="the demo's own",
            policy_text=policy.replace('decision = "allow"', 'decision = "ask"') if self.ask else policy,
            max_turns=40,
            env=_ENV,
        )

    # -- before -----------------------------------------------------------------------------------

    def _prepare(self, named: Place, place: Place, run_id: str) -> Place:
        """Bring the project to the place; returns the place, with the project's directory."""
        with place.open(env=_ENV) as sandbox:
            if sandbox.exec(["python3", "-c", ""]).exit_code != 0:
                raise DemoError(
                    f"{sandbox.name} has no python3, and the demo's project is a Python one: "
                    "choose an image that has it, as docker://python:3-slim"
                )
            directory = _make_directory(sandbox, named, run_id)
            for name in _FILES:
                sandbox.upload(_HERE / "project" / name, f"{directory}/{name}")
            _must(sandbox.exec(_REMEMBER, cwd=directory), "remember the project as it came")
            tests = sandbox.exec(_TESTS, cwd=directory, timeout_s=_TEST_TIMEOUT_S)
            if tests.exit_code == 0:
                raise DemoError("the project's tests pass already; they should fail before the repair")
        self._say(f"A small project is in {directory} of {sandbox.name}. Its tests fail.\n", "dim")
        return named.at(directory)

    # -- after ------------------------------------------------------------------------------------

    def _judge(self, sandbox: Sandbox) -> None:
        """Look for ourselves: the diff, and the tests once more. The model's word is not asked."""
        self._changed = _must(sandbox.exec(_DIFF), "compare the project")
        tests = sandbox.exec(_TESTS, timeout_s=_TEST_TIMEOUT_S)
        self._green = tests.exit_code == 0 and "OK" in tests.stderr.split()
        self._said = tests.stderr
        self._directory = sandbox.cwd
        if not self.keep:
            sandbox.exec(["rm", "-rf", "--", sandbox.cwd], cwd="/")

    def _tell(self) -> None:
        self._say("\nWhat changed:", "bold")
        for line in plain(self._changed).splitlines():
            self._say(f"  {line}", diff_style(line))
        if not self._green:
            for line in plain(self._said).splitlines():
                self._say(f"  {line}")
        if self.keep:
            self._say(f"\nThe project stays in {self._directory}.")
        verdict = "The tests pass" if self._green else "The tests still fail"
        self._say(f"\n{verdict}: they were run once more, without the model.", "bold")

    def _say(self, text: str, style: str = "") -> None:
        console(self.out).print(Text(text, style=style))

    def _remark(self, text: str) -> None:
        console(self.remarks).print(Text(text))


def _opening(model: str | None) -> str:
    real = "the place, the shell, the policy, the approvals, the patch, the tests"
    if model is not None:
        return f"Everything here is real: {real}, and the model is {model}."
    return f"Everything here is real but the model's words, which come from a script: {real}."


def _make_directory(sandbox: Sandbox, place: Place, run_id: str) -> str:
    if isinstance(place, DockerPlace):
        directory = f"{sandbox.cwd.rstrip('/')}/coderig-demo-{run_id}"
        sandbox.make_dirs(directory)
        return directory
    made = sandbox.exec(["sh", "-c", _MAKE_DIRECTORY, "sh", run_id])
    return _must(made, "make a directory for the project").removesuffix("\n")


def _must(result: ExecResult, what: str) -> str:
    if result.exit_code != 0:
        raise DemoError(f"cannot {what}: {(result.stderr or result.stdout).strip()}")
    return result.stdout
