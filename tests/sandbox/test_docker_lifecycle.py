"""Who owns a container, and that none is made twice or left behind."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import docker
import pytest
from services.docker_service import DockerService

from sandbox.backends.docker import DockerBackend, DockerOptions
from sandbox.backends.docker_inventory import collect, list_containers
from sandbox.errors import AdoptionRefused, BackendError

pytestmark = pytest.mark.docker
OWNER = """
import sys
from sandbox.backends.docker import DockerBackend, DockerOptions
backend = DockerBackend(DockerOptions(image=sys.argv[1], host=sys.argv[2]))
backend.start()
print(backend.container_id, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def client(docker_daemon: DockerService) -> Iterator[docker.DockerClient]:
    client = docker.DockerClient(base_url=docker_daemon.url)
    yield client
    client.close()


@pytest.fixture
def options(docker_daemon: DockerService, client: docker.DockerClient) -> Iterator[DockerOptions]:
    name = f"coderig-test-{secrets.token_hex(4)}"
    yield DockerOptions(image=docker_daemon.busybox_image, host=docker_daemon.url, name=name)
    for container in client.containers.list(all=True, filters={"name": f"^/{name}$"}):
        container.remove(force=True, v=True)


@pytest.mark.spec("DKB-20")
def test_first_calls_at_once_make_one_container(options: DockerOptions) -> None:
    backends = [DockerBackend(options) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda backend: backend.start(), backends))
    assert len({backend.container_id for backend in backends}) == 1
    for backend in backends:
        backend.close()


@pytest.mark.spec("DKB-21")
def test_what_a_killed_owner_left_is_collected_and_nothing_else(
    options: DockerOptions, client: docker.DockerClient
) -> None:
    command = [sys.executable, "-c", OWNER, options.image, str(options.host)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        left = owner.stdout.readline().strip()
        named, mine = (
            DockerBackend(options),
            DockerBackend(DockerOptions(image=options.image, host=options.host)),
        )
        named.start()
        mine.start()
        assert left not in {each.id for each in collect(client.api, dry_run=True)}
        owner.send_signal(signal.SIGKILL)
        owner.wait(10)
    assert left in {each.id for each in collect(client.api)}
    there = {each.id for each in list_containers(client.api)}
    assert left not in there
    assert {named.container_id, mine.container_id} <= there
    named.close()
    mine.close()


@pytest.mark.spec("DKB-22")
def test_a_working_directory_that_cannot_be_made_leaves_no_container(
    options: DockerOptions, client: docker.DockerClient
) -> None:
    backend = DockerBackend(
        DockerOptions(
            image=options.image, host=options.host, name=options.name, workdir="/workspace/" + "x" * 300
        )
    )
    with pytest.raises(BackendError, match="cannot make /workspace/x"):
        backend.start()
    backend.close()
    assert client.containers.list(all=True, filters={"name": f"^/{options.name}$"}) == []


@pytest.mark.spec("DK-11")
def test_status_and_stop_look_whose_container_it_is(
    options: DockerOptions, client: docker.DockerClient
) -> None:
    backend = DockerBackend(options)
    assert backend.status() == "absent"
    foreign = client.containers.run(options.image, ["sleep", "60"], name=str(options.name), detach=True)
    for act in (backend.status, backend.stop):
        with pytest.raises(AdoptionRefused, match="not made by coderig"):
            act()
    backend.close()
    foreign.reload()
    assert foreign.status == "running"
