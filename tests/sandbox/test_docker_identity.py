"""Which container may be adopted: the comparison by itself, then real containers behind our back."""

from __future__ import annotations

import dataclasses
import io
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.models.containers import Container
from services.docker_service import DockerService

from sandbox.backends.docker import DockerBackend, DockerMount, DockerOptions
from sandbox.backends.docker_identity import (
    LABEL_FINGERPRINT,
    MountView,
    Wanted,
    differences,
    fingerprint,
    is_ours,
)
from sandbox.backends.docker_options import account, needs_passwd, wanted
from sandbox.errors import AdoptionRefused, RequestError

BASE = Wanted(
    image_id="sha256:1",
    user="65534:65534",
    network="none",
    memory_bytes=1 << 30,
    cpus=1.0,
    pids_limit=128,
    command=("sh", "-c", "wait"),
    env={"PATH": "/bin", "TOKEN": "secret-1"},
    mounts=(MountView(type="bind", source="/srv/x", target="/workspace"),),
    tmpfs={"/tmp": "rw,size=64m"},
)


def live(base: Wanted = BASE) -> dict[str, Any]:
    """What a daemon would say of a container that was made as wanted."""
    return {
        "Image": base.image_id,
        "Config": {
            "User": base.user,
            "Env": [f"{name}={value}" for name, value in base.env.items()],
            "Entrypoint": list(base.command),
            "Cmd": None,
            "Labels": {LABEL_FINGERPRINT: fingerprint(base)},
        },
        "HostConfig": {
            "NetworkMode": base.network,
            "Memory": base.memory_bytes,
            "MemorySwap": base.memory_bytes,
            "NanoCpus": int(base.cpus * 1e9),
            "PidsLimit": base.pids_limit,
            "CapAdd": None,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "Tmpfs": dict(base.tmpfs),
            "Init": True,
            "Runtime": "runc",
            "IpcMode": "private",
            "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
            "MaskedPaths": ["/proc/acpi"],
            "ReadonlyPaths": ["/proc/bus"],
        },
        "NetworkSettings": {"Networks": {"none": {}}},
        "Mounts": [{"Type": "bind", "Source": "/srv/x", "Destination": "/workspace", "RW": True}],
    }


# ---- pure --------------------------------------------------------------------------------------


@pytest.mark.spec("DK-01")
def test_a_container_that_is_as_wanted_has_no_differences() -> None:
    assert differences(BASE, live()) == []


WANTED_CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("image", {"image_id": "sha256:2"}),
    ("runtime", {"runtime": "runsc"}),
    ("user", {"user": "0:0"}),
    ("network", {"network": "bridge"}),
    ("mounts", {"mounts": ()}),
    ("mounts", {"mounts": (MountView(type="bind", source="/srv/y", target="/workspace"),)}),
    ("mounts", {"mounts": (MountView(type="bind", source="/srv/x", target="/workspace", read_only=True),)}),
    ("tmpfs", {"tmpfs": {"/tmp": "rw,size=65m"}}),
    ("memory_bytes", {"memory_bytes": 2 << 30}),
    ("cpus", {"cpus": 1.5}),
    ("pids_limit", {"pids_limit": 129}),
    ("cap_add", {"cap_add": ("CHOWN",)}),
    ("cap_drop", {"cap_drop": ()}),
    ("security options", {"security": ()}),
    ("read_only", {"read_only": True}),
    ("env", {"env": {"PATH": "/bin", "TOKEN": "secret-2"}}),
    ("env", {"env": {"PATH": "/bin", "TOKEN": "secret-1", "MORE": ""}}),
    ("init", {"init": False}),
    ("command", {"command": ("sh",)}),
]


@pytest.mark.spec("DK-01", "DK-06")
@pytest.mark.parametrize(("option", "change"), WANTED_CHANGES)
def test_every_option_is_in_the_hash_and_is_named_when_it_differs(
    option: str, change: dict[str, Any]
) -> None:
    changed = dataclasses.replace(BASE, **change)
    assert fingerprint(changed) != fingerprint(BASE)
    named = [row.option for row in differences(changed, live())]
    assert option in named and named[-1] == "fingerprint"


LIVE_CHANGES: list[tuple[str, str, dict[str, Any]]] = [
    ("memory_bytes", "HostConfig", {"Memory": 0}),
    ("memory and swap", "HostConfig", {"MemorySwap": -1}),
    ("cpus", "HostConfig", {"NanoCpus": 0}),
    ("cpus", "HostConfig", {"CpuQuota": 50_000, "CpuPeriod": 100_000}),
    ("cpus", "HostConfig", {"CpusetCpus": "0"}),
    ("pids_limit", "HostConfig", {"PidsLimit": None}),
    ("cap_add", "HostConfig", {"CapAdd": ["CAP_SYS_ADMIN"]}),
    ("cap_drop", "HostConfig", {"CapDrop": None}),
    ("security options", "HostConfig", {"SecurityOpt": ["no-new-privileges", "seccomp=unconfined"]}),
    ("read_only", "HostConfig", {"ReadonlyRootfs": True}),
    ("privileged", "HostConfig", {"Privileged": True}),
    ("init", "HostConfig", {"Init": None}),
    ("runtime", "HostConfig", {"Runtime": "other"}),
    ("shared namespaces", "HostConfig", {"PidMode": "host"}),
    ("shared namespaces", "HostConfig", {"IpcMode": "host"}),
    ("shared namespaces", "HostConfig", {"IpcMode": "container:abc"}),
    ("shared namespaces", "HostConfig", {"UTSMode": "host"}),
    ("shared namespaces", "HostConfig", {"UsernsMode": "host"}),
    ("devices", "HostConfig", {"Devices": [{"PathOnHost": "/dev/sda"}]}),
    ("devices", "HostConfig", {"DeviceCgroupRules": ["c 1:3 rwm"]}),
    ("devices", "HostConfig", {"DeviceRequests": [{"Driver": "nvidia"}]}),
    ("published ports", "HostConfig", {"PortBindings": {"80/tcp": [{"HostPort": "80"}]}}),
    ("other host options", "HostConfig", {"GroupAdd": ["docker"]}),
    ("other host options", "HostConfig", {"ExtraHosts": ["a:1.2.3.4"]}),
    ("other host options", "HostConfig", {"Sysctls": {"net.ipv4.ip_forward": "1"}}),
    ("other host options", "HostConfig", {"VolumesFrom": ["other"]}),
    ("other host options", "HostConfig", {"RestartPolicy": {"Name": "always"}}),
    ("other host options", "HostConfig", {"MaskedPaths": []}),
    ("tmpfs", "HostConfig", {"Tmpfs": {"/tmp": "rw"}}),
    ("user", "Config", {"User": "root"}),
    ("env", "Config", {"Env": ["PATH=/bin"]}),
    ("command", "Config", {"Cmd": ["more"]}),
    ("attached networks", "NetworkSettings", {"Networks": {"none": {}, "inner": {}}}),
]


@pytest.mark.spec("DKB-11")
@pytest.mark.parametrize(("option", "part", "change"), LIVE_CHANGES)
def test_a_live_value_that_differs_is_found_although_the_label_is_right(
    option: str, part: str, change: dict[str, Any]
) -> None:
    container = live()
    container[part].update(change)
    assert [row.option for row in differences(BASE, container)] == [option]


@pytest.mark.spec("DKB-11")
def test_another_mount_of_the_live_container_is_found() -> None:
    container = live()
    container["Mounts"].append({"Type": "bind", "Source": "/", "Destination": "/host", "RW": True})
    rows = differences(BASE, container)
    assert [row.option for row in rows] == ["mounts"]
    assert "/host" in rows[0].found


@pytest.mark.spec("DK-02")
@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("HostConfig", {"SecurityOpt": ["no-new-privileges:true"]}),
        ("HostConfig", {"SecurityOpt": ["no-new-privileges=true"]}),
        ("HostConfig", {"CapDrop": ["all"]}),
        ("HostConfig", {"IpcMode": "shareable"}),
        ("HostConfig", {"Tmpfs": {"/tmp": "size=64m,rw"}}),
        ("HostConfig", {"PortBindings": {}, "Devices": [], "GroupAdd": None}),
        ("Config", {"Env": ["TOKEN=secret-1", "PATH=/bin"]}),
        ("Config", {"Entrypoint": ["sh"], "Cmd": ["-c", "wait"]}),
    ],
)
def test_another_spelling_of_the_same_configuration_is_no_difference(
    part: str, change: dict[str, Any]
) -> None:
    container = live()
    container[part].update(change)
    assert differences(BASE, container) == []


@pytest.mark.spec("DKB-12")
def test_a_difference_in_the_environment_shows_no_value() -> None:
    changed = dataclasses.replace(BASE, env={"PATH": "/bin", "TOKEN": "secret-2"})
    shown = " ".join(map(str, differences(changed, live())))
    assert "TOKEN" in shown and "secret" not in shown


@pytest.mark.spec("DKB-13")
def test_a_label_that_the_image_has_too_proves_nothing() -> None:
    image = {"Config": {"Labels": {LABEL_FINGERPRINT: fingerprint(BASE)}}}
    assert is_ours(live(), None)
    assert is_ours(live(), {"Config": {"Labels": None}})
    assert not is_ours(live(), image)
    assert not is_ours({"Config": {"Labels": None}}, None)


IMAGE = {"Id": "sha256:1", "Config": {"User": "node", "Env": ["PATH=/bin"], "Volumes": {"/data": {}}}}


@pytest.mark.spec("QX-09")
def test_the_effective_user_follows_from_the_kind_of_container(tmp_path: Path) -> None:
    owner = tmp_path.stat()
    assert wanted(DockerOptions(image="x"), IMAGE).user == "65534:65534"
    assert wanted(DockerOptions(image="x", name="n"), IMAGE).user == "node"
    bound = DockerOptions(image="x", name="n", directory=tmp_path)
    assert wanted(bound, IMAGE).user == f"{owner.st_uid}:{owner.st_gid}"
    assert wanted(DockerOptions(image="x", name="n", user="7"), IMAGE).user == "7"


@pytest.mark.spec("DK-02", "DK-03")
def test_equivalent_options_have_one_fingerprint(tmp_path: Path) -> None:
    def of(**options: Any) -> str:
        return fingerprint(wanted(DockerOptions(image="x", **options), IMAGE))

    assert of() == of(user="65534:65534", pids_limit=128, network="none", env={})
    assert of() == of(workdir="/workspace/below", keep=True, replace=True)
    (tmp_path / "x").mkdir()
    assert of(directory=tmp_path) == of(directory=f"{tmp_path}/") == of(directory=tmp_path / "x" / "..")
    assert of(cap_add=("CHOWN", "KILL")) == of(cap_add=("cap_kill", "CAP_CHOWN"))
    mount = DockerMount("/a", "/b")
    assert of(mounts=(mount,)) == of(mounts=(DockerMount("/a/", "/b/"),)) != of()


@pytest.mark.parametrize(
    "options", [{"image": ""}, {"cpus": 0}, {"memory_bytes": -1}, {"directory": "/a", "volume": "b"}]
)
def test_options_that_make_no_sense_are_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        DockerOptions(**{"image": "x", **options})


@pytest.mark.spec("DKB-08")
@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ("", (0, 0, "")),
        ("root", (0, 0, "")),
        ("0:5", (0, 0, "")),
        ("node", (1000, 1001, "")),
        ("1000", (1000, 1001, "")),
        ("1000:7", (1000, 7, "")),
        ("4321", (4321, 0, "/home/coderig")),
        ("4321:4322", (4321, 4322, "/home/coderig")),
        ("nobody", (65534, 65534, "/home/coderig")),
        ("www", (33, 33, "/home/coderig")),
    ],
)
def test_an_account_without_a_usable_home_gets_one(user: str, expected: tuple[int, int, str]) -> None:
    passwd = (
        "root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1001::/home/node:/bin/sh\n"
        "www:x:33:33::/var/www:/bin/sh\nnobody:x:65534:65534::/nonexistent:/bin/sh\nbroken line\n"
    )
    found = account(user, passwd)
    assert (found.uid, found.gid, found.home) == expected
    assert needs_passwd(user) or account(user, "") == found


# ---- real containers ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client(docker_daemon: DockerService) -> Iterator[docker.DockerClient]:
    client = docker.DockerClient(base_url=docker_daemon.url)
    yield client
    client.close()


@pytest.fixture
def options(docker_daemon: DockerService, client: docker.DockerClient) -> Iterator[DockerOptions]:
    """Options with a name of their own; what bears the name is removed afterwards."""
    name = f"coderig-test-{secrets.token_hex(4)}"
    yield DockerOptions(image=docker_daemon.busybox_image, host=docker_daemon.url, name=name)
    for container in client.containers.list(all=True, filters={"name": f"^/{name}$"}):
        container.remove(force=True, v=True)


def opened(options: DockerOptions) -> str:
    """The id of the container that these options come to."""
    backend = DockerBackend(options)
    try:
        backend.start()
        return str(backend.container_id)
    finally:
        backend.close()


def of_name(client: docker.DockerClient, options: DockerOptions) -> Container:
    return client.containers.get(str(options.name))


@pytest.mark.docker
@pytest.mark.spec("DK-01", "DK-03")
def test_the_same_options_adopt_the_same_container_wherever_programs_start(options: DockerOptions) -> None:
    first = opened(options)
    assert opened(options) == first
    assert opened(dataclasses.replace(options, workdir="/workspace/below")) == first


@pytest.mark.docker
@pytest.mark.spec("DKB-14")
def test_a_stopped_container_of_ours_is_started_again(
    options: DockerOptions, client: docker.DockerClient
) -> None:
    first = opened(options)
    of_name(client, options).stop(timeout=5)
    assert opened(options) == first
    assert of_name(client, options).status == "running"


@pytest.mark.docker
@pytest.mark.spec("DK-04")
def test_a_container_of_somebody_else_is_never_touched(
    options: DockerOptions, client: docker.DockerClient
) -> None:
    foreign = client.containers.run(
        options.image, ["sleep", "600"], name=str(options.name), detach=True, network_mode="none"
    )
    for replace in (False, True):
        with pytest.raises(AdoptionRefused, match=f"not made by coderig.*docker rm {options.name}"):
            opened(dataclasses.replace(options, replace=replace))
    assert of_name(client, options).id == foreign.id


@pytest.mark.docker
@pytest.mark.spec("DKB-13")
def test_an_image_cannot_lend_its_label_to_a_container(
    options: DockerOptions, client: docker.DockerClient
) -> None:
    opened(options)
    label = of_name(client, options).labels[LABEL_FINGERPRINT]
    of_name(client, options).remove(force=True)
    text = f"FROM {options.image}\nLABEL {LABEL_FINGERPRINT}={label}\n"
    forged, _ = client.images.build(fileobj=io.BytesIO(text.encode()))
    client.containers.create(str(forged.id), ["sleep", "600"], name=str(options.name), network_mode="none")
    for image in (options.image, str(forged.id)):
        with pytest.raises(AdoptionRefused, match="not made by coderig"):
            opened(dataclasses.replace(options, image=image))


def update_memory(container: Container, client: docker.DockerClient) -> None:
    container.update(mem_limit="1g", memswap_limit="1g")


def update_pids(container: Container, client: docker.DockerClient) -> None:
    api: Any = client.api  # docker-py's update knows no limit of processes
    api._post_json(api._url("/containers/{0}/update", container.id), data={"PidsLimit": 4000})


def update_restart(container: Container, client: docker.DockerClient) -> None:
    container.update(restart_policy={"Name": "always"})


BEHIND_OUR_BACK: list[tuple[str, Callable[[Container, docker.DockerClient], None]]] = [
    ("memory_bytes: wanted 2147483648, found 1073741824", update_memory),
    ("pids_limit: wanted 128, found 4000", update_pids),
    ("other host options: wanted none, found RestartPolicy=always", update_restart),
]


@pytest.mark.docker
@pytest.mark.spec("DKB-11")
@pytest.mark.parametrize(("difference", "change"), BEHIND_OUR_BACK)
def test_an_update_after_creation_is_found(
    options: DockerOptions,
    client: docker.DockerClient,
    difference: str,
    change: Callable[[Container, docker.DockerClient], None],
) -> None:
    opened(options)
    change(of_name(client, options), client)
    with pytest.raises(AdoptionRefused) as refused:
        opened(options)
    assert difference in str(refused.value)


@pytest.mark.docker
@pytest.mark.spec("DKB-11")
def test_a_network_that_was_connected_after_creation_is_found(
    options: DockerOptions, client: docker.DockerClient
) -> None:
    inner = client.networks.create(f"{options.name}-inner", internal=True)
    other = client.networks.create(f"{options.name}-other", internal=True)
    mine = dataclasses.replace(options, network=str(inner.name))
    try:
        first = opened(mine)
        assert opened(mine) == first
        other.connect(first)
        with pytest.raises(AdoptionRefused, match=f"attached networks: .*{other.name}"):
            opened(mine)
    finally:
        for container in client.containers.list(all=True, filters={"name": f"^/{options.name}$"}):
            container.remove(force=True)
        inner.remove()
        other.remove()


@pytest.mark.docker
@pytest.mark.spec("QX-08")
def test_a_different_configuration_is_refused_with_a_diff_and_replaced_when_asked(
    options: DockerOptions, client: docker.DockerClient
) -> None:
    first = opened(options)
    other = dataclasses.replace(options, memory_bytes=1 << 30, env={"A": "b"}, cap_add=("CHOWN",))
    with pytest.raises(AdoptionRefused) as refused:
        opened(other)
    for option in ("memory_bytes", "env", "cap_add", "replace"):
        assert option in str(refused.value)
    assert of_name(client, options).id == first
    second = opened(dataclasses.replace(other, replace=True))
    assert second != first
    assert opened(other) == second


@pytest.mark.docker
@pytest.mark.spec("DKB-15")
def test_a_tag_that_moved_is_another_image(options: DockerOptions, client: docker.DockerClient) -> None:
    tag = f"{options.name}:latest"
    client.images.get(options.image).tag(tag)
    mine = dataclasses.replace(options, image=tag)
    opened(mine)
    client.images.build(fileobj=io.BytesIO(f"FROM {options.image}\nLABEL moved=yes\n".encode()), tag=tag)
    try:
        with pytest.raises(AdoptionRefused, match="image: wanted sha256"):
            opened(mine)
    finally:
        of_name(client, options).remove(force=True)
        client.images.remove(tag)


@pytest.mark.docker
@pytest.mark.spec("DKB-16")
def test_a_named_container_stays_and_an_unnamed_one_goes(
    options: DockerOptions, client: docker.DockerClient
) -> None:
    named, unnamed = opened(options), opened(dataclasses.replace(options, name=None))
    dropped = opened(dataclasses.replace(options, name=f"{options.name}-2", keep=False))
    left = {container.id for container in client.containers.list(all=True)}
    assert named in left
    assert unnamed not in left
    assert dropped not in left
