"""A Docker container, through docker-py: created and hardened, or adopted with proof; programs by exec."""

from __future__ import annotations

import contextlib
import io
import secrets
import socket
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import docker
import docker.errors
import docker.types
import docker.utils
import requests

from sandbox.backends.docker_exec import DaemonCalls, DockerProcess, SlowReaders
from sandbox.backends.docker_identity import (
    LABEL_FINGERPRINT,
    LABEL_NAME,
    MountView,
    Wanted,
    differences,
    fingerprint,
    is_ours,
)
from sandbox.backends.docker_inventory import LABEL_OWNER, this_owner
from sandbox.backends.docker_inventory import remove as _remove
from sandbox.backends.docker_options import (
    WORKSPACE,
    Account,
    DockerMount,
    DockerOptions,
    account,
    needs_passwd,
    wanted,
)
from sandbox.errors import AdoptionRefused, BackendError, ConnectionLost, PlaceUnavailable, RequestError
from sandbox.values import Ahead, SpawnRequest

_CONTROL_TIMEOUT_S = 60
_STOP_GRACE_S = 5
_NAME_SETTLES_S = 10.0
_PIDS_FOR_LANES = 64
_DEFAULT_HOST = "unix:///var/run/docker.sock"


__all__ = ["DockerBackend", "DockerMount", "DockerOptions"]


class DockerBackend:
    """Programs in one container. It is made, or adopted, at the first use (or by `start`)."""

    def __init__(self, options: DockerOptions) -> None:
        self._options = options
        self._lock = threading.RLock()
        self._api: Any = None
        self._calls: DaemonCalls | None = None
        self._id: str | None = None
        self._exec_env: Mapping[str, str] = {}
        self._slow = SlowReaders()

    @property
    def ahead(self) -> Ahead:
        """See Backend. Lanes are several processes each: none where the container may have few."""
        few = self._options.pids_limit < _PIDS_FOR_LANES
        return Ahead(programs=0 if few else 2, shared=True)

    @property
    def container_id(self) -> str | None:
        """The container's id, once there is one."""
        return self._id

    def spawn(self, request: SpawnRequest) -> DockerProcess:
        """See Backend.spawn."""
        container = self._ensure()
        calls = self._daemon()
        return DockerProcess.start(calls, container, request, self._exec_env, self._slow)

    def start(self) -> None:
        """Make or adopt the container, and start it if it is stopped. On a running one: nothing.

        Raises AdoptionRefused if the name is taken by another, PlaceUnavailable without a daemon."""
        container = self._ensure()
        with self._errors("start the container"):
            self._api.start(container)

    def stop(self) -> None:
        """End everything that runs in the container; its files stay. On a stopped one, or none: nothing.

        Raises AdoptionRefused if the container of our name is not ours."""
        container = self._there()
        if container is not None:
            with self._errors("stop the container"):
                self._api.stop(container, timeout=_STOP_GRACE_S)

    def restart(self) -> None:
        """End everything that runs in the container and start it again: the same one, with its files."""
        container = self._ensure()
        with self._errors("restart the container"):
            self._api.restart(container, timeout=_STOP_GRACE_S)

    def status(self) -> str:
        """In words: "absent", "running", "paused", "exited with 137 (out of memory)", …

        Makes nothing. Raises AdoptionRefused if the container of our name is not ours, ConnectionLost if
        the daemon does not answer."""
        container = self._there()
        return "absent" if container is None else self._daemon().state(container)[1]

    def close(self) -> None:
        """Remove the container unless it is kept, and let go of the daemon. Idempotent."""
        with self._lock:
            container, self._id = self._id, None
            api, self._api = self._api, None
            self._calls = None
        self._slow.close()
        if api is None:
            return
        try:
            if container is not None and not self._options.keeps:
                _remove(api, container)
        finally:
            api.close()

    # ---- the daemon ----------------------------------------------------------------------------

    def _daemon(self) -> DaemonCalls:
        with self._lock:
            if self._calls is None:
                self._api = self._connect()
                self._calls = DaemonCalls(self._api, self._errors)
            return self._calls

    def _connect(self) -> Any:
        settings = docker.utils.kwargs_from_env()
        if self._options.host is not None:
            settings["base_url"] = self._options.host
        where = str(settings.setdefault("base_url", _DEFAULT_HOST))
        if self._options.directory is not None and not where.startswith("unix://"):
            raise RequestError(f"a bound directory needs a Docker daemon on this machine, not at {where}")
        try:
            _knock(where)
            return docker.APIClient(version="auto", timeout=_CONTROL_TIMEOUT_S, **settings)
        except (docker.errors.DockerException, requests.RequestException, OSError) as error:
            raise PlaceUnavailable(f"no Docker daemon answers at {where}: {error}") from error

    @contextlib.contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        """The daemon's failures in our words. A 409 is how it tells of a container that does not run."""
        try:
            yield
        except docker.errors.NotFound as error:
            raise PlaceUnavailable(f"cannot {action}: {error.explanation or error}") from error
        except docker.errors.APIError as error:
            kind = PlaceUnavailable if error.status_code == 409 else BackendError
            raise kind(f"cannot {action}: {error.explanation or error}") from error
        except (docker.errors.DockerException, requests.RequestException, OSError) as error:
            raise ConnectionLost(f"cannot {action}: the Docker daemon does not answer: {error}") from error

    # ---- making or adopting --------------------------------------------------------------------

    def _ensure(self) -> str:
        if self._id is not None:
            return self._id
        with self._lock:
            if self._id is None:
                self._daemon()
                values = wanted(self._options, self._image())
                container, made = self._make_or_adopt(values)
                try:
                    self._exec_env = self._home(container, values)
                    self._make_workdir(container)
                except BaseException:
                    if made:
                        self._drop(container)
                    raise
                self._id = container
            return self._id

    def _make_or_adopt(self, values: Wanted) -> tuple[str, bool]:
        """A container, and whether we made it."""
        until_s = time.monotonic() + _NAME_SETTLES_S
        while True:
            made = self._create(values)
            if made is not None:
                return made, True
            found = self._named()
            if found is not None:
                return self._adopt(values, found)
            # The daemon takes a name before it shows the container, and frees it after it has gone.
            if time.monotonic() > until_s:
                raise PlaceUnavailable(f"the name {self._options.name} is taken, but no container shows it")
            time.sleep(0.05)

    def _there(self) -> str | None:
        """The id of the container if it exists; looked up by name before the first use."""
        if self._id is not None or self._options.name is None:
            return self._id
        self._daemon()
        found = self._named()
        if found is None:
            return None
        self._require_ours(found)
        return str(found["Id"])

    def _named(self) -> Mapping[str, Any] | None:
        """What has our fixed name; None only if the daemon says that nothing has."""
        name = str(self._options.name)
        with self._errors(f"look at the container {name}"):
            try:
                found = dict(self._api.inspect_container(name))
            except docker.errors.NotFound:
                return None
        # The daemon also takes the beginning of an id for a name.
        return found if found.get("Name") == f"/{name}" else None

    def _require_ours(self, found: Mapping[str, Any]) -> None:
        name = self._options.name
        with self._errors(f"look at the container {name}"):
            image = self._own_image(found)
        if not is_ours(found, image):
            raise AdoptionRefused(
                f"a container named {name} exists and was not made by coderig: remove it "
                f"(docker rm {name}), rename it, or give another name"
            )
        if (found["Config"].get("Labels") or {}).get(LABEL_OWNER):
            raise AdoptionRefused(
                f"the container {name} is the temporary one of another sandbox and goes with it: "
                "give another name"
            )

    def _drop(self, container: str) -> None:
        # The failure that brought us here is the one to tell.
        with contextlib.suppress(docker.errors.DockerException, requests.RequestException, OSError):
            _remove(self._api, container)

    def _image(self) -> Mapping[str, Any]:
        name = self._options.image
        with self._errors(f"look at the image {name}"):
            try:
                return dict(self._api.inspect_image(name))
            except docker.errors.ImageNotFound:
                pass
        try:
            repository, tag = docker.utils.parse_repository_tag(name)
            self._api.pull(repository, tag=tag or "latest", platform=self._options.platform)
            return dict(self._api.inspect_image(name))
        except (docker.errors.DockerException, requests.RequestException, OSError) as error:
            raise BackendError(f"the image {name} is not here and cannot be pulled: {error}") from error

    def _create(self, values: Wanted) -> str | None:
        """A new container that runs; None if its fixed name is taken."""
        options = self._options
        name = options.name or f"coderig-{secrets.token_hex(6)}"
        with self._errors(f"create a container of {options.image}"):
            try:
                made = self._api.create_container(
                    # By id: the tag may move between the look at the image and now.
                    values.image_id,
                    entrypoint=list(values.command),
                    command=[],
                    user=values.user or None,
                    environment=dict(options.env),
                    working_dir=WORKSPACE,
                    ports=[(port, "tcp") for port in values.ports],
                    name=name,
                    labels=self._labels(values, name),
                    host_config=self._host_config(values),
                    platform=options.platform,
                    use_config_proxy=False,
                )
            except docker.errors.APIError as error:
                if options.name is not None and error.status_code == 409:
                    return None
                raise
        container = str(made["Id"])
        try:
            self._launch(container, values)
        except BaseException:
            self._drop(container)
            raise
        return container

    def _labels(self, values: Wanted, name: str) -> dict[str, str]:
        labels = {LABEL_FINGERPRINT: fingerprint(values), LABEL_NAME: name}
        if self._options.name is None and not self._options.keeps:
            labels[LABEL_OWNER] = this_owner().text()
        return labels

    def _host_config(self, values: Wanted) -> Any:
        mounts = [_mount(view) for view in values.mounts]
        return self._api.create_host_config(
            network_mode=values.network,
            mem_limit=values.memory_bytes,
            memswap_limit=values.memory_bytes,
            nano_cpus=int(values.cpus * 1e9),
            pids_limit=values.pids_limit,
            # The other end is always loopback, at a port that the daemon chooses.
            port_bindings={f"{port}/tcp": ("127.0.0.1",) for port in values.ports},
            cap_add=list(values.cap_add) or None,
            cap_drop=list(values.cap_drop),
            security_opt=list(values.security),
            read_only=values.read_only,
            tmpfs=dict(values.tmpfs),
            mounts=mounts,
            init=values.init,
            runtime=values.runtime or None,
            log_config=docker.types.LogConfig(type="json-file", config={"max-size": "10m", "max-file": "1"}),
        )

    def _launch(self, container: str, values: Wanted) -> None:
        """Start a container that was only created, with directories that its user may write to."""
        owner = self._account(container, values)
        mine = [] if _bound(values) else [WORKSPACE]
        mine += [owner.home] if owner.home else []
        mine += [view.target for view in values.mounts if view.type == "volume"]
        if owner.uid and mine and not values.read_only:
            with self._errors("prepare the container"):
                self._api.put_archive(container, "/", _directories(mine, owner))
        with self._errors("start the container"):
            self._api.start(container)

    def _account(self, container: str, values: Wanted) -> Account:
        # Asking mounts the container's file system, which takes as long as starting a program in it.
        if not needs_passwd(values.user):
            return account(values.user, "")
        with self._errors("look at the container's users"):
            try:
                stream, _ = self._api.get_archive(container, "/etc/passwd")
            except docker.errors.NotFound:
                return account(values.user, "")
            return account(values.user, _only_file(b"".join(stream)))

    def _home(self, container: str, values: Wanted) -> Mapping[str, str]:
        """HOME for every program, where the daemon's own choice is a place that cannot be written to."""
        if "HOME" in values.env:
            return {}
        home = self._account(container, values).home
        return {"HOME": home} if home else {}

    def _make_workdir(self, container: str) -> None:
        if self._options.workdir == WORKSPACE:
            return
        with self._errors("make the working directory"):
            made = self._api.exec_create(container, ["mkdir", "-p", "--", self._options.workdir])
            said = self._api.exec_start(made["Id"])
            status = self._api.exec_inspect(made["Id"])["ExitCode"]
        if status:
            raise BackendError(
                f"cannot make {self._options.workdir}: {said.decode('utf-8', 'replace').strip()}"
            )

    def _adopt(self, values: Wanted, found: Mapping[str, Any]) -> tuple[str, bool]:
        """The container that has our fixed name, if it is ours and as wanted; or a new one in its place."""
        name = str(self._options.name)
        self._require_ours(found)
        with self._errors("ask the daemon for its defaults"):
            default_runtime = str(self._api.info().get("DefaultRuntime") or "runc")
        unlike = differences(values, found, default_runtime=default_runtime)
        if not unlike:
            return self._revive(found, values), False
        if not self._options.replace:
            rows = "\n".join(f"  {row}" for row in unlike)
            raise AdoptionRefused(
                f"the container {name} is configured differently:\n{rows}\n"
                f"Ask for replace to remove it and make it again, remove it (docker rm -f {name}), "
                "or give another name."
            )
        with self._errors(f"replace the container {name}"):
            _remove(self._api, str(found["Id"]))
        made = self._create(values)
        if made is None:
            raise AdoptionRefused(
                f"another container took the name {name} while the old one was being replaced: "
                "it is left as it is; try again, or give another name"
            )
        return made, True

    def _own_image(self, container: Mapping[str, Any]) -> Mapping[str, Any] | None:
        try:
            return dict(self._api.inspect_image(container["Image"]))
        except docker.errors.ImageNotFound:
            return None

    def _revive(self, found: Mapping[str, Any], values: Wanted) -> str:
        container, status = str(found["Id"]), found["State"]["Status"]
        if status == "paused":
            raise PlaceUnavailable(
                f"the container {self._options.name} is paused (docker unpause continues it)"
            )
        if status == "created":
            self._launch(container, values)
        elif status != "running":
            with self._errors("start the container"):
                self._api.start(container)
        return container


def _bound(values: Wanted) -> bool:
    return any(view.target == WORKSPACE and view.type == "bind" for view in values.mounts)


def _mount(view: MountView) -> docker.types.Mount:
    kind: Any = view.type
    return docker.types.Mount(view.target, view.source, type=kind, read_only=view.read_only)


def _knock(host: str) -> None:
    """OSError if nobody listens on a Unix socket: docker-py would leave its own socket open then."""
    if host.startswith("unix://"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(_CONTROL_TIMEOUT_S)
            probe.connect("/" + host.removeprefix("unix://").lstrip("/"))


def _directories(paths: list[str], owner: Account) -> bytes:
    """A tar of directories that belong to the account."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in paths:
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            entry.uid, entry.gid = owner.uid, owner.gid
            entry.mtime = int(time.time())
            tar.addfile(entry)
    return buffer.getvalue()


def _only_file(archive: bytes) -> str:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for entry in tar:
            content = tar.extractfile(entry)
            if content is not None:
                return content.read().decode("utf-8", "replace")
    return ""
