"""One run from its start, or from where it stopped, to its end or its next pause in this process."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coderig.agent import make_agent
from coderig.approvals import Answer
from coderig.leftovers import RUN_VARIABLE, end_leftovers
from coderig.masking import Mask, MaskingJournal
from coderig.place import DockerPlace, Place, parse_place
from coderig.signals import APPROVAL_NEEDED, FAILED, OK, SIGNALS, Interrupted, raise_on_signals
from coderig.store import RunMeta, Store
from coderig.terminal_io import OutputGone
from coderig.view import Ending, TextView, View, short_place
from codetools import Policy, PolicyError
from runtime import (
    Agent,
    ErrorCode,
    ExecOptions,
    Journal,
    Model,
    ModelNotice,
    ObserveOptions,
    PendingApproval,
    Retry,
    RunCompleted,
    RunControl,
    RunError,
    RunOptions,
    RunResult,
    RunState,
    RunStream,
    code_of,
    resolve_model,
    resume_run,
    run,
)
from sandbox import Sandbox, SandboxError


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """What was decided beforehand, on the command line.

    approve_all  approve whatever asks
    approve      ids of calls; "all" stands for those that wait now
    reject       ids of calls
    reason       told to the model with each rejection
    """

    approve_all: bool = False
    approve: Sequence[str] = ()
    reject: Sequence[str] = ()
    reason: str | None = None


@dataclass(kw_only=True)
class Session:
    """What a run needs in this process.

    ask        asks a person about one call; None: there is nobody
    remark     takes words about the run, for standard error
    when_done  gets the place of a run that is complete, before it is closed
    """

    store: Store
    meta: RunMeta
    view: View
    mask: Mask
    decisions: Decisions
    ask: Callable[[PendingApproval], Answer] | None
    remark: Callable[[str], None]
    when_done: Callable[[Sandbox], None] | None = None
    _approve_all: bool = field(init=False, default=False)
    _signal: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._approve_all = self.decisions.approve_all

    def start(self) -> Ending:
        """Begin the run. Raises what opening its parts raises; a run that fails is an ending."""

        def work() -> Ending:
            with self.store.journal(self.meta.id) as journal:
                return self._go(journal, None, None)

        return self._ended(work)

    def resume(self, say: str | None = None, max_turns: int | None = None) -> Ending:
        """Go on with the run from what its journal holds. Raises as `start`, and JournalInUse.

        say        a further message for the agent
        max_turns  a new limit
        """
        return self._ended(lambda: self._resume(say, max_turns))

    def _ended(self, work: Callable[[], Ending]) -> Ending:
        try:
            return work()
        except Interrupted as stop:
            return self._interrupted(stop.exit_code, None)
        except KeyboardInterrupt:
            return self._interrupted(128 + signal.SIGINT, None)
        except OutputGone as gone:
            return self._interrupted(FAILED, None, f"{gone}; the run was stopped")
        except SandboxError as error:
            return Ending(
                status="failed",
                exit_code=FAILED,
                code="place_failed",
                message=f"{short_place(self.meta.place)}: {error}",
                resume=self._command,
            )

    def _resume(self, say: str | None, max_turns: int | None) -> Ending:
        torn = self.store.torn(self.meta.id)
        # The journal is held before it is read: what it says stays true.
        with self.store.journal(self.meta.id) as journal:
            state = self.store.state(self.meta.id)
            if torn:
                self.remark(torn)
            if state is None:
                return self._go(journal, None, None)
            if max_turns is not None:
                state.max_turns = max_turns
            if state.completed and say is None:
                return _already_complete(state)
            self._apply_given(state)
            # Going on with a decision about some of them keeps it; the others ask again then.
            some = self.ask is None and bool(self.decisions.approve or self.decisions.reject)
            if state.interruptions and not self._decide(state) and not some:
                return self._paused(RunResult(state=state, interruptions=tuple(state.interruptions)))
            return self._go(journal, state, say)

    def _go(self, journal: Journal, state: RunState | None, say: str | None) -> Ending:
        model = self._retried(model_of(self.meta))
        policy = policy_of(self.meta)
        place = place_of(self.meta)
        outputs = self.store.outputs(self.meta.id, self.mask.rewriter)
        with outputs, place.open(env={**self.meta.env, RUN_VARIABLE: self.meta.id}) as sandbox:
            if state is not None:
                self._clear(sandbox, state, alone=isinstance(place, DockerPlace) and place.ours)
            agent = make_agent(sandbox, policy, model, outputs)
            options = RunOptions(
                exec=ExecOptions(
                    max_turns=self.meta.max_turns, environment_id=f"{sandbox.name} {sandbox.cwd}"
                ),
                observe=ObserveOptions(journal=MaskingJournal(journal, self.mask)),
            )
            self.view.begin(self.meta, state)
            ending = self._drive(agent, model, options, state, say)
            if self.when_done is not None and ending.status == "completed":
                self.when_done(sandbox)
        self._leave(place, ending)
        return ending

    def _retried(self, model: Model) -> Model:
        if self.meta.model.startswith("script:"):
            return model
        # Words are shown when an answer is whole, so one that breaks in the middle can be replaced.
        return Retry(model, hold_all=isinstance(self.view, TextView), notify=self._tell_of_failure)

    def _tell_of_failure(self, notice: ModelNotice) -> None:
        if notice.kind == "retry":
            self.remark(self.mask.text(f"{notice.error}; trying again in {notice.wait_s:.0f} s"))

    def _clear(self, sandbox: Sandbox, state: RunState, *, alone: bool) -> None:
        if set(state.started) - set(state.finished):
            ended = end_leftovers(sandbox, self.meta.id, alone=alone)
            if ended:
                self.remark(f"ended {ended} process(es) that the killed run had left running")

    def _leave(self, place: Place, ending: Ending) -> None:
        if ending.status == "completed":
            try:
                place.remove()
            except SandboxError as error:
                self.remark(f"could not clean up {short_place(place.text)}: {error}")

    def _drive(
        self, agent: Agent, model: Model, options: RunOptions, state: RunState | None, say: str | None
    ) -> Ending:
        if state is None:
            stream, control = run(agent, self.meta.task, options)
        else:
            stream, control = resume_run(agent, state, options, input=say)
        while True:
            try:
                result = self._read(stream, control)
            except RunError as error:
                return self._failed(error)
            if not result.interruptions:
                return Ending(status="completed", exit_code=OK, result=result)
            if not self._decide(result.state):
                return self._paused(result)
            stream, control = resume_run(agent, result.state, options)

    # -- decisions --------------------------------------------------------------------------------

    def _apply_given(self, state: RunState) -> None:
        """The decisions of the command line. Raises UserError for a call that does not wait."""
        waiting = [call.call_id for call in state.interruptions]
        for call_id in self.decisions.approve:
            for each in waiting if call_id == "all" else [call_id]:
                state.approve(each)
        for call_id in self.decisions.reject:
            for each in waiting if call_id == "all" else [call_id]:
                state.reject(each, self.decisions.reason)

    def _decide(self, state: RunState) -> bool:
        """Get an answer for each call that waits. False: there are some without."""
        for call in list(state.interruptions):
            decided = state.decisions.get(call.call_id)
            if decided is not None and decided.fingerprint == call.fingerprint:
                continue
            if self._approve_all:
                state.approve(call)
            elif self.ask is None or not self._take(state, call, self.ask(call)):
                return False
        return True

    def _take(self, state: RunState, call: PendingApproval, answer: Answer) -> bool:
        match answer.kind:
            case "stop":
                return False
            case "no":
                state.reject(call, answer.words or None)
            case "all":
                self._approve_all = True
                state.approve(call)
            case "yes":
                state.approve(call)
        return True

    # -- endings ----------------------------------------------------------------------------------

    @property
    def _command(self) -> str:
        return f"coderig resume {self.meta.id}"

    def _paused(self, result: RunResult) -> Ending:
        count = len(result.interruptions)
        first = result.interruptions[0].call_id if count else "CALL"
        return Ending(
            status="paused",
            exit_code=APPROVAL_NEEDED,
            result=result,
            code="approval_needed",
            message=f"{count} call{'s need' if count != 1 else ' needs'} an approval; nothing ran yet",
            resume=f"{self._command} --approve {first}   (or --reject {first} --reason WORDS, or --yes)",
        )

    def _failed(self, error: RunError) -> Ending:
        code = code_of(error)
        if code == ErrorCode.CANCELLED:
            return self._interrupted(128 + (self._signal or signal.SIGINT), error.result)
        return Ending(
            status="failed",
            exit_code=FAILED,
            result=error.result,
            code=code,
            message=str(error),
            resume=f"{self._command} --max-turns N" if code == ErrorCode.MAX_TURNS else self._command,
        )

    def _interrupted(self, exit_code: int, result: RunResult | None, why: str = "") -> Ending:
        return Ending(
            status="interrupted",
            exit_code=exit_code,
            result=result,
            code=ErrorCode.CANCELLED,
            message=why or "the run was stopped, and the command that ran was ended",
            resume=self._command,
        )

    # -- reading the run --------------------------------------------------------------------------

    def _read(self, stream: RunStream, control: RunControl) -> RunResult:
        """Show the run's events until it ends or pauses. A signal stops it; a second one leaves at once."""
        return asyncio.run(self._read_all(stream, control))

    async def _read_all(self, stream: RunStream, control: RunControl) -> RunResult:
        loop = asyncio.get_running_loop()
        result: RunResult | None = None
        for number in SIGNALS:
            loop.add_signal_handler(number, self._stop, number, control)
        try:
            async with stream:
                async for event in stream:
                    self.view.event(event)
                    if isinstance(event, RunCompleted):
                        result = event.result
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)
            raise_on_signals()
        assert result is not None
        return result

    def _stop(self, number: int, control: RunControl) -> None:
        if self._signal:
            os._exit(128 + number)
        self._signal = number
        self.remark("stopping; once more to leave at once")
        control.cancel()


def _already_complete(state: RunState) -> Ending:
    return Ending(
        status="completed",
        exit_code=OK,
        result=RunResult(state=state),
        message="this run is complete; --say WORDS tells the agent more",
    )


def place_of(meta: RunMeta) -> Place:
    """The run's place. Raises PlaceError."""
    return parse_place(meta.place, Path(meta.cwd)).for_run(meta.id)


def model_of(meta: RunMeta) -> Model:
    """The run's model. Raises UserError."""
    kind, colon, name = meta.model.partition(":")
    spec = f"script:{Path(meta.cwd) / name}" if kind == "script" and name else meta.model
    return resolve_model(spec, base_url=meta.base_url)


def policy_of(meta: RunMeta) -> Policy:
    """The rules that the run began with. Raises PolicyError that names their file."""
    if meta.policy_text is None:
        return Policy()
    try:
        return Policy.from_toml(meta.policy_text)
    except PolicyError as error:
        raise PolicyError(f"{meta.policy_path}: {error}") from None
