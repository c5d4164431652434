"""The lifecycle commands of a dev container, run in it."""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from coderig.devcontainer_config import Step
from coderig.devcontainer_record import Record
from coderig.devcontainer_variables import fill_container_env
from coderig.signals import Interrupted, on_signals, raise_on_signals
from coderig.up_view import Log, UpView
from sandbox import Cancelled, PlaceUnavailable, Sandbox
from sandbox.values import MAX_TIMEOUT_S, StreamName

# What the daemon gives programs where the image sets none.
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def open_container(record: Record, env: Mapping[str, str] | None = None, *, warm: bool = False) -> Sandbox:
    """The container of a record, as a place; what it says of itself must still be what the record says.

    env  set for every program, after the file's remoteEnv

    Raises AdoptionRefused, PlaceUnavailable; a container that is gone is not made again here."""
    from sandbox.backends.docker import DockerBackend
    from sandbox.backends.docker_dev import DevDaemon

    with DevDaemon(record.host or None) as daemon:
        found = daemon.find(record.name)
    if found is None or found.id != record.container:
        raise PlaceUnavailable(f"the container {record.name} is gone; `coderig up` makes it again")
    given = {name: value for name, value in record.remote_env.items() if value is not None}
    return Sandbox(
        DockerBackend(record.docker_options()),
        name=f"dev:{record.directory}",
        directory=record.folder,
        env={**given, **(env or {})},
        warm=warm,
    )


def remote_env(values: Mapping[str, str | None], container_env: Mapping[str, str]) -> dict[str, str | None]:
    """remoteEnv as programs get it; a variable that is as in the container is left out."""
    known = {"PATH": _DEFAULT_PATH, **container_env}
    filled = fill_container_env(values, known)
    return {name: value for name, value in filled.items() if value != known.get(name)}


def taken_away(command: str | Sequence[str], record: Record) -> str | list[str]:
    """The command without the variables that the file takes away."""
    names = [name for name, value in record.remote_env.items() if value is None]
    if not names:
        return command if isinstance(command, str) else list(command)
    if isinstance(command, str):
        return f"unset {' '.join(shlex.quote(name) for name in names)}\n{command}"
    return ["env", *(part for name in names for part in ("-u", name)), *command]


class StepFailed(Exception):
    """A lifecycle command ended with another status than 0."""

    def __init__(self, stage: str, step: Step, exit_code: int) -> None:
        super().__init__(f"{stage}Command failed with exit code {exit_code}: {step.words()}")
        self.exit_code = exit_code


def run_stage(
    stage: str,
    steps: Sequence[Step],
    box: Sandbox,
    record: Record | None,
    view: UpView,
    log: Log,
) -> None:
    """Run the commands of one stage, all at once; a signal ends them first, and this process then.

    record  of the container; None: on this machine

    Raises StepFailed for the first that failed, SandboxError if the place does, Interrupted."""
    cancel, signals = threading.Event(), list[int]()

    def stop(number: int) -> None:
        signals.append(number)
        cancel.set()

    def one(step: Step) -> int:
        moment = time.strftime("%Y-%m-%d %H:%M:%S")
        view.say(f"{stage}: {step.words()}")
        log.write(f"== {moment} {stage}: {step.words()}\n".encode("utf-8", "replace"))
        prefix = f"[{step.name}] ".encode() if len(steps) > 1 else b""

        def pass_on(stream: StreamName, data: bytes) -> None:
            shown = prefix + data if prefix else data
            log.write(shown)
            view.output(stage, stream, shown)

        result = box.exec(
            step.command if record is None and isinstance(step.command, str)
            else taken_away(step.command, record) if record is not None
            else list(step.command),
            timeout_s=MAX_TIMEOUT_S,
            limit_bytes=1,
            on_output=pass_on,
            cancel=cancel,
        )  # fmt: skip
        log.write(f"== {stage} ended with exit code {result.exit_code}\n".encode())
        return result.exit_code

    on_signals(stop)
    try:
        with ThreadPoolExecutor(max(1, len(steps))) as pool:
            running = [pool.submit(one, step) for step in steps]
            codes = [each.result() for each in running]
    except Cancelled:
        raise Interrupted(signals[0]) from None
    finally:
        raise_on_signals()
    for step, code in zip(steps, codes, strict=True):
        if code:
            raise StepFailed(stage, step, code)


def caller_env() -> dict[str, str]:
    """What a person's terminal tells programs about itself."""
    return {name: os.environ[name] for name in ("TERM", "COLORTERM") if os.environ.get(name)}
