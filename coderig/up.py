"""`coderig up`: a directory's dev container, made or found again with proof, and its commands run."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from coderig.devcontainer_changes import changes, text_changes
from coderig.devcontainer_config import CREATE_STAGES, DevConfig
from coderig.devcontainer_record import Record, Records, current_host, record_of
from coderig.guard import UsageError
from coderig.signals import APPROVAL_NEEDED, FAILED, OK
from coderig.up_commands import StepFailed, open_container, remote_env, run_stage
from coderig.up_view import Log, UpView
from sandbox import AdoptionRefused, LocalSandbox, SandboxError
from sandbox.errors import BackendError

if TYPE_CHECKING:
    from sandbox.backends.docker_dev import ContainerFacts, DevDaemon, ImageFacts

_ROOT = ("", "root", "0", "0:0", "root:root")
_OF_IMAGE = (
    "privileged", "capAdd", "securityOpt", "mounts", "entrypoint", "initializeCommand", "onCreateCommand",
    "updateContentCommand", "postCreateCommand", "postStartCommand", "postAttachCommand",
)  # fmt: skip


def bring_up(config: DevConfig, records: Records, view: UpView, *, replace: bool, trust: bool) -> int:
    """Make, find or replace the container, start it and run what is due in it; returns the exit code.

    replace  a container that is not as the file says is removed and made again
    trust    the person agrees to what the file opens

    Raises SandboxError, UsageError, Interrupted."""
    with records.held(config.name):
        try:
            return _Up(config, records, view, replace=replace, trust=trust).run()
        except SandboxError as error:
            if view.json_lines:
                view.end(FAILED, "failed", str(error), name=config.name)
            raise


def build_text(config: DevConfig) -> str:
    """The Dockerfile and the settings of its build; "" without a build. BackendError if it cannot be read."""
    build = config.build
    if build is None:
        return ""
    try:
        text = build.dockerfile.read_text("utf-8", "surrogateescape")
    except OSError as error:
        raise BackendError(f"cannot read {build.dockerfile}: {error.strerror}") from None
    # As escapes: what is no UTF-8 must not spoil the record.
    return json.dumps([text, dict(build.args), build.target, str(build.context)])


@dataclass(slots=True)
class _Made:
    """A container that is there. `fresh`: it has just been made."""

    record: Record
    facts: ContainerFacts
    fresh: bool


class _Up:
    def __init__(
        self, config: DevConfig, records: Records, view: UpView, *, replace: bool, trust: bool
    ) -> None:
        self._config, self._records, self._view = config, records, view
        self._replace, self._trust = replace, trust
        self._record = records.load(config.name)
        self._log = Log(records.log(config.name))

    def run(self) -> int:
        from sandbox.backends.docker_dev import DevDaemon

        config, view = self._config, self._view
        self._check()
        trusted = self._record.trusted if self._record is not None else []
        asks = [line for line in config.loosens if line not in trusted]
        if asks and not self._trust:
            shown = "\n".join(f"  {line}" for line in asks)
            words = f"{config.source} opens more than the defaults:\n{shown}\nTo agree: coderig up --trust"
            return view.end(APPROVAL_NEEDED, "untrusted", words, name=config.name, opens=asks)
        for line in config.unsupported:
            view.remark(f"not supported: {line}")
        dockerfile = build_text(config)
        with DevDaemon(current_host()) as daemon:
            found = daemon.find(config.name)
            rows = self._unlike(found, dockerfile)
            if rows and not self._replace:
                return self._differs(rows)
            self._host_command()
            if found is not None and not rows:
                return self._finish(self._take(daemon, found, dockerfile))
            # The image comes first: one that cannot be built costs no container.
            record = self._wanted(daemon, dockerfile)
            if found is not None:
                view.say(f"removing the container {config.name}, which is not as the file says")
                daemon.remove(found.id)
            return self._finish(self._make(daemon, record))

    def _check(self) -> None:
        """Raises UsageError where the container would not be what the file means."""
        record, config = self._record, self._config
        if record is not None and record.directory != str(config.directory):
            raise UsageError(
                f"the name {config.name} is that of the dev container of {record.directory}; give another "
                f"name, or remove that one (coderig rm {config.name})"
            )
        binds = [mount.source for mount in config.options.mounts if mount.type == "bind"]
        host = current_host()
        if binds and not host.startswith("unix://"):
            raise UsageError(
                f"{binds[0]} is a directory of this machine, and the Docker daemon at {host} may be on "
                "another: use a daemon on this machine, or a volume (see workspaceMount)"
            )

    # ---- what is there -------------------------------------------------------------------------

    def _unlike(self, found: ContainerFacts | None, dockerfile: str) -> list[str]:
        """Why the container that is there is not the one that is wanted; [] if it is, or there is none."""
        if found is None or self._record is None:
            return []
        rows = changes(self._config, self._record, dockerfile)
        if rows:
            return rows
        return live_changes(self._record)

    def _differs(self, rows: list[str]) -> int:
        name = self._config.name
        text = text_changes(self._record, self._config.text) if self._record is not None else ""
        shown = "\n".join(f"  {row}" for row in rows)
        words = f"the container {name} is not as {self._config.source} says:\n{shown}\n"
        if text:
            words += f"{text}\n"
        words += "To make it again, without what only it holds: coderig up --replace"
        return self._view.end(FAILED, "changed", words, name=name, changes=rows)

    def _take(self, daemon: DevDaemon, found: ContainerFacts, dockerfile: str) -> _Made:
        record = self._record
        if record is None:
            # Ours by its label; the proof is whether it is what would be made now.
            self._view.remark(
                f"the container {found.name} was there already, and nothing is kept about how it was made: "
                "the commands of its creation are not run again"
            )
            record = self._wanted(daemon, dockerfile)
            record = replace(record, done=list(CREATE_STAGES), container=found.id)
        elif record.container != found.id:
            # The last `up` was ended just before it could write the id down.
            record = replace(record, container=found.id, done=[])
        record = replace(
            record,
            text=self._config.text,
            trusted=list(self._config.loosens),
            remote_env=remote_env(self._config.remote_env, found.env),
        )
        self._start(record, replace=self._replace)
        self._records.save(record)
        return _Made(record, self._facts(daemon), fresh=False)

    def _make(self, daemon: DevDaemon, record: Record) -> _Made:
        self._records.save(record)
        self._view.say(f"making the container {record.name} from {record.image}")
        self._start(record)
        facts = self._facts(daemon)
        record = replace(
            record, container=facts.id, remote_env=remote_env(self._config.remote_env, facts.env)
        )
        self._records.save(record)
        return _Made(record, facts, fresh=True)

    def _start(self, record: Record, *, replace: bool = False) -> None:
        from sandbox.backends.docker import DockerBackend

        backend = DockerBackend(record.docker_options(replace=replace))
        try:
            backend.start()
        finally:
            backend.close()

    def _facts(self, daemon: DevDaemon) -> ContainerFacts:
        facts = daemon.find(self._config.name)
        if facts is None:
            raise BackendError(f"the container {self._config.name} went away while it was being started")
        return facts

    # ---- what is wanted ------------------------------------------------------------------------

    def _wanted(self, daemon: DevDaemon, dockerfile: str) -> Record:
        config, build = self._config, self._config.build
        if build is None:
            name = str(config.image)
            image = daemon.image(name, self._view.say, config.options.platform)
        else:
            name = f"{config.name.lower().strip('-._')}:dev"
            self._view.say(f"building {build.dockerfile}")
            image = daemon.build(
                dockerfile=build.dockerfile,
                context=build.context,
                args=build.args,
                target=build.target,
                cache_from=build.cache_from,
                platform=config.options.platform,
                tag=name,
                say=self._view.say,
            )
        for prop in _OF_IMAGE:
            if image.metadata.get(prop):
                self._view.remark(f"not supported: the image itself asks for {prop}")
        return record_of(config, name, image.id, dockerfile, self._user(image))

    def _user(self, image: ImageFacts) -> str | None:
        """Who programs run as. Root without capabilities could not write into a person's directory."""
        if self._config.user_given:
            return self._config.options.user
        named = image.metadata.get("remoteUser") or image.metadata.get("containerUser") or image.user
        if named not in _ROOT:
            return str(named)
        workspace = str(self._config.directory)
        if any(mount.source == workspace for mount in self._config.options.mounts):
            owner = self._config.directory.stat()
            return f"{owner.st_uid}:{owner.st_gid}"
        return str(named) or None

    # ---- commands ------------------------------------------------------------------------------

    def _host_command(self) -> None:
        if self._config.host_command:
            with LocalSandbox(self._config.directory, warm=False) as box:
                self._stage("initialize", box, None)

    def _stage(self, stage: str, box: object, record: Record | None) -> None:
        steps = self._config.host_command if record is None else self._config.stages.get(stage, ())
        if steps:
            run_stage(stage, steps, box, record, self._view, self._log)  # type: ignore[arg-type]

    def _finish(self, made: _Made) -> int:
        try:
            run_due(self._config, made.record, self._records, self._view, made.facts.started)
        except StepFailed as error:
            words = (
                f"{error}\nThe container {made.facts.name} is there: `coderig shell` to look, `coderig up` "
            )
            words += "runs the command again."
            if self._config.options.network == "none":
                words += (
                    "\nIt has no network, which is the default; docs/devcontainers.md says how to allow one."
                )
            return self._view.end(FAILED, "failed", words, name=made.facts.name)
        how = "made" if made.fresh else "ready"
        lines = [f"{made.facts.name} is {how}: {made.record.folder} in {made.record.image}"]
        lines += [f"port {port} is at {where}" for port, where in made.facts.ports.items()]
        return self._view.end(
            OK,
            how,
            "\n".join(lines),
            name=made.facts.name,
            id=made.facts.id,
            folder=made.record.folder,
            user=made.record.user,
            image=made.record.image,
            ports=dict(made.facts.ports),
            unsupported=list(self._config.unsupported),
        )


def live_changes(record: Record) -> list[str]:
    """Where the container itself is not as it was made, one line each. Starts it if it is stopped."""
    from sandbox.backends.docker import DockerBackend

    backend = DockerBackend(record.docker_options())
    try:
        backend.start()
    except AdoptionRefused as error:
        return [line.strip() for line in str(error).splitlines() if line.startswith("  ")] or [str(error)]
    finally:
        backend.close()
    return []


def run_due(config: DevConfig, record: Record, records: Records, view: UpView, started: str) -> Record:
    """Run what has not run yet: the commands of the creation, then those of this start.

    started  when the container was started, as the daemon says

    Raises StepFailed, SandboxError, Interrupted; what has run to its end is kept."""
    log = Log(records.log(record.name))
    due = [stage for stage in CREATE_STAGES if stage not in record.done and config.stages.get(stage)]
    begins = record.started != started
    if not due and not (begins and config.stages.get("postStart")):
        return record
    with open_container(record) as box:
        if not any(mount["target"] == record.folder for mount in record.options["mounts"]):
            box.exec(["mkdir", "-p", "--", record.folder], cwd="/")
        for stage in due:
            run_stage(stage, config.stages[stage], box, record, view, log)
            record = records.done(record, stage)
        if begins and config.stages.get("postStart"):
            run_stage("postStart", config.stages["postStart"], box, record, view, log)
            record = replace(record, started=started)
            records.save(record)
    return record


def read_for(directory: Path, chosen: Path | None) -> DevConfig:
    """The configuration of a directory as it is now. Raises ConfigError."""
    from coderig.devcontainer import find_config, read_config

    where = directory.absolute()
    return read_config(where, find_config(where, chosen), os.environ)
