"""Programs in a real container, at the seam below all meaning: streams, statuses, and a place that fails."""

from __future__ import annotations

import base64
import hashlib
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import docker
import pytest
from services.docker_service import DockerService

from sandbox.backends.docker import DockerBackend, DockerOptions
from sandbox.backends.docker_exec import DockerProcess
from sandbox.errors import BackendError, PlaceUnavailable, RequestError
from sandbox.values import Deadline, PtySize, SpawnRequest

pytestmark = pytest.mark.docker
LIMIT_S = 40.0


@pytest.fixture(scope="module")
def client(docker_daemon: DockerService) -> Iterator[docker.DockerClient]:
    client = docker.DockerClient(base_url=docker_daemon.url)
    yield client
    client.close()


@pytest.fixture(scope="module", params=["debian", "busybox"])
def backend(request: pytest.FixtureRequest, docker_daemon: DockerService) -> Iterator[DockerBackend]:
    image = docker_daemon.debian_image if request.param == "debian" else docker_daemon.busybox_image
    backend = DockerBackend(DockerOptions(image=image, host=docker_daemon.url))
    yield backend
    backend.close()


@pytest.fixture
def fresh(docker_daemon: DockerService) -> Iterator[DockerBackend]:
    """A container of its own, for a test that breaks it."""
    backend = DockerBackend(DockerOptions(image=docker_daemon.busybox_image, host=docker_daemon.url))
    yield backend
    backend.close()


def start(backend: DockerBackend, *argv: str, pty: PtySize | None = None) -> DockerProcess:
    return backend.spawn(SpawnRequest(argv=argv, pty=pty))


def read_all(process: DockerProcess) -> tuple[bytes, bytes]:
    out, err, deadline = bytearray(), bytearray(), Deadline.after(LIMIT_S)
    while not deadline.passed:
        chunk = process.read(1.0)
        out += chunk.stdout
        err += chunk.stderr
        if chunk.eof:
            return bytes(out), bytes(err)
    raise AssertionError(f"no end of the stream; so far {bytes(out[-200:])!r}")


def read_until(process: DockerProcess, text: bytes) -> bytes:
    seen, deadline = bytearray(), Deadline.after(LIMIT_S)
    while text not in seen:
        assert not deadline.passed, f"{text!r} did not come; {bytes(seen)!r} did"
        chunk = process.read(0.5)
        seen += chunk.stdout
        assert not chunk.eof, bytes(seen)
    return bytes(seen)


def status(process: DockerProcess) -> int:
    deadline = Deadline.after(LIMIT_S)
    while (found := process.poll()) is None:
        assert not deadline.passed
        time.sleep(0.01)
    return found


def run(backend: DockerBackend, script: str, pty: PtySize | None = None) -> tuple[int, bytes, bytes]:
    process = start(backend, "sh", "-c", script, pty=pty)
    process.close_stdin()
    out, err = read_all(process)
    code = status(process)
    process.close()
    return code, out, err


# ---- streams and statuses ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "code"),
    [("true", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill -TERM $$", 143), ("surely-not-a-program", 127)],
)
def test_the_status_is_what_a_shell_gives(backend: DockerBackend, script: str, code: int) -> None:
    assert run(backend, script)[0] == code


def test_the_two_streams_stay_apart_whatever_their_order(backend: DockerBackend) -> None:
    script = "i=0; while [ $i -lt 50 ]; do printf o; printf e >&2; i=$((i+1)); done"
    assert run(backend, script)[1:] == (b"o" * 50, b"e" * 50)


@pytest.mark.spec("DKB-03")
def test_no_byte_of_many_short_outputs_is_lost(backend: DockerBackend) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = set(pool.map(lambda _: run(backend, "printf x; printf y >&2"), range(60)))
    assert results == {(0, b"x", b"y")}


@pytest.mark.spec("DKB-04")
def test_ten_megabytes_go_in_and_come_out_again(backend: DockerBackend) -> None:
    data = bytes(range(256)) * 40_960
    process = start(backend, "cat")

    def feed() -> None:
        rest, deadline = memoryview(data), Deadline.after(LIMIT_S)
        while rest and not deadline.passed:
            rest = rest[process.write(bytes(rest[:1_000_000]), 1.0) :]
        process.close_stdin()

    writer = threading.Thread(target=feed)
    writer.start()
    out, _ = read_all(process)
    writer.join(LIMIT_S)
    assert hashlib.sha256(out).digest() == hashlib.sha256(data).digest()
    assert status(process) == 0
    process.close()


def test_an_input_that_is_closed_at_once_is_at_its_end(backend: DockerBackend) -> None:
    assert run(backend, "cat; echo done") == (0, b"done\n", b"")


def test_a_program_that_has_ended_takes_input_and_drops_it(backend: DockerBackend) -> None:
    process = start(backend, "true")
    assert status(process) == 0
    read_all(process)
    assert [process.write(b"x" * 1000, 0.1) for _ in range(5)] == [1000] * 5
    process.close()


@pytest.mark.spec("DKB-05")
def test_a_slow_reader_holds_the_program_back_and_loses_nothing(backend: DockerBackend) -> None:
    size = 15_000_000
    process = start(
        backend, "sh", "-c", f"head -c {size} /dev/urandom | tee /tmp/random | base64; echo end >&2"
    )
    seen, err, deadline = bytearray(), b"", Deadline.after(LIMIT_S)
    paused_at = 0
    while not deadline.passed:
        chunk = process.read(1.0)
        seen += chunk.stdout
        err += chunk.stderr
        if chunk.eof:
            break
        if len(seen) - paused_at > 2_000_000:
            paused_at = len(seen)
            time.sleep(0.3)
    process.close()
    check = run(backend, "sha256sum </tmp/random; rm /tmp/random")[1]
    assert hashlib.sha256(base64.b64decode(bytes(seen))).hexdigest().encode() in check
    assert err == b"end\n"


@pytest.mark.spec("DKB-05")
@pytest.mark.parametrize("size", [1_310_000, 1_370_000])
def test_what_a_program_left_behind_waits_for_a_reader_who_comes_late(
    fresh: DockerBackend, size: int
) -> None:
    # dockerd itself drops the end of such an output two seconds after the program has ended.
    process = start(fresh, "sh", "-c", f"head -c {size} /dev/zero")
    time.sleep(4)
    assert len(read_all(process)[0]) == size
    process.close()


@pytest.mark.spec("DKB-17")
def test_the_status_of_a_program_is_kept_though_nobody_asks_and_the_daemon_forgets(
    backend: DockerBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start(backend, "sh", "-c", "exit 9")
    deadline = Deadline.after(LIMIT_S)
    while process._status is None:
        assert not deadline.passed
        time.sleep(0.05)
    monkeypatch.setattr(process, "_identity", "forgotten")
    assert read_all(process) == (b"", b"")
    assert process.poll() == 9
    process.close()


@pytest.mark.spec("DKB-06")
def test_a_silent_program_outlives_the_read_timeout_of_http(docker_daemon: DockerService) -> None:
    quick = DockerBackend(DockerOptions(image=docker_daemon.busybox_image, host=docker_daemon.url))
    quick.start()  # with the usual patience: making a container may take its time
    quick._api.timeout = 2
    assert run(quick, "sleep 3; echo late") == (0, b"late\n", b"")
    quick.close()


def test_a_child_in_the_background_does_not_hide_that_the_program_ended(backend: DockerBackend) -> None:
    process = start(backend, "sh", "-c", "echo now; sleep 30 & exit 4")
    read_until(process, b"now\n")
    assert status(process) == 4
    process.close()


@pytest.mark.spec("DKB-01")
def test_each_program_leads_a_session_of_its_own(backend: DockerBackend) -> None:
    _, out, _ = run(backend, "read -r line </proc/$$/stat; set -- ${line##*) }; echo $$ $3 $4")
    pid, group, session = out.split()
    assert pid == group == session


def test_programs_run_side_by_side(backend: DockerBackend) -> None:
    processes = [start(backend, "cat") for _ in range(8)]
    for number, process in enumerate(processes):
        process.write(b"%d" % number, 5)
    for process in reversed(processes):
        process.close_stdin()
    assert [read_all(process)[0] for process in processes] == [b"%d" % number for number in range(8)]
    for process in processes:
        process.close()


@pytest.mark.spec("DKB-02")
def test_a_program_that_is_not_there_is_named_and_is_no_output(backend: DockerBackend) -> None:
    process = start(backend, "surely-not-a-program")
    with pytest.raises(BackendError, match="surely-not-a-program") as caught:
        read_all(process)
    assert not isinstance(caught.value, PlaceUnavailable)
    process.close()


@pytest.mark.spec("DKB-02")
def test_a_program_may_print_the_words_that_the_daemon_uses(backend: DockerBackend) -> None:
    words = b"OCI runtime exec failed: exec failed"
    assert run(backend, f"printf '{words.decode()}'; exit 126") == (126, words, b"")


def test_the_environment_of_a_request_reaches_the_program(backend: DockerBackend) -> None:
    process = backend.spawn(SpawnRequest(argv=["sh", "-c", 'printf %s "$A"'], env={"A": 'it\'s \n"ä"'}))
    assert read_all(process)[0].decode() == 'it\'s \n"ä"'
    process.close()


def test_close_wakes_a_reader(backend: DockerBackend) -> None:
    process = start(backend, "cat")
    ended: list[bool] = []
    reader = threading.Thread(target=lambda: ended.append(process.read(LIMIT_S).eof))
    reader.start()
    process.close()
    reader.join(5)
    assert ended == [True]


# ---- terminals ---------------------------------------------------------------------------------


def test_a_terminal_has_its_size_from_the_start_and_takes_a_new_one(backend: DockerBackend) -> None:
    process = start(backend, "sh", pty=PtySize(100, 30))
    process.write(b"stty size; echo size-$?\n", 5)
    assert b"30 100\r\n" in read_until(process, b"size-0\r\n")
    process.resize(132, 50)
    process.write(b"stty size; echo again-$?\n", 5)
    assert b"50 132\r\n" in read_until(process, b"again-0\r\n")
    process.write(b"exit 7\n", 5)
    read_all(process)
    assert status(process) == 7
    process.resize(80, 24)
    process.close()


@pytest.mark.spec("DKB-07")
def test_closing_a_terminal_hangs_up_on_its_programs(backend: DockerBackend) -> None:
    process = start(backend, "sh", pty=PtySize())
    process.write(b"echo pid-$$-; sleep 1234\n", 5)
    pid = read_until(process, b"-\r\n").rpartition(b"pid-")[2].strip(b"-\r\n").decode()
    process.close()
    deadline = Deadline.after(10)
    while run(backend, f"kill -0 {pid}")[0] == 0:
        assert not deadline.passed
    assert b"1234" not in run(backend, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")[1].replace(b"cmdline", b"")


# ---- the container -----------------------------------------------------------------------------


@pytest.mark.spec("DK-07")
def test_a_container_is_closed_unless_it_is_opened(fresh: DockerBackend, client: docker.DockerClient) -> None:
    fresh.start()
    live = client.api.inspect_container(str(fresh.container_id))
    host = live["HostConfig"]
    assert host["NetworkMode"] == "none"
    assert host["CapDrop"] == ["ALL"] and not host["CapAdd"]
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert not host["Privileged"] and host["Init"]
    assert (host["PidsLimit"], host["Memory"], host["MemorySwap"]) == (128, 2 << 30, 2 << 30)
    assert host["NanoCpus"] == 1_000_000_000
    assert host["LogConfig"] == {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "1"}}
    assert "nosuid" in host["Tmpfs"]["/tmp"] and "size=" in host["Tmpfs"]["/tmp"]
    assert live["Config"]["User"] == "65534:65534"


@pytest.mark.spec("DKB-08")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"read_only": True},
        {"user": "4321:4321"},
        {"user": "4321:4321", "read_only": True},
        {"user": "nobody"},
    ],
)
def test_workspace_home_and_tmp_can_be_written_by_the_user(
    docker_daemon: DockerService, options: Any
) -> None:
    backend = DockerBackend(
        DockerOptions(image=docker_daemon.debian_image, host=docker_daemon.url, **options)
    )
    try:
        script = 'cd ~ && touch x /tmp/x /workspace/x && git init -q /workspace && echo "$HOME"'
        assert run(backend, script) == (0, b"/home/coderig\n", b"")
    finally:
        backend.close()


@pytest.mark.spec("QX-09")
def test_a_bound_directory_belongs_to_its_owner_inside_too(
    docker_daemon: DockerService, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("from outside")
    for path in (tmp_path, tmp_path / "a"):
        path.chmod(0o755)
        os.chown(path, 4321, 4322)
    backend = DockerBackend(
        DockerOptions(image=docker_daemon.busybox_image, host=docker_daemon.url, directory=tmp_path)
    )
    try:
        assert run(backend, "cat /workspace/a; echo new >/workspace/b")[:2] == (0, b"from outside")
    finally:
        backend.close()
    made = (tmp_path / "b").stat()
    assert (made.st_uid, made.st_gid) == (4321, 4322)


@pytest.mark.spec("SX-07")
def test_a_narrower_working_directory_is_made_and_a_wider_one_refused(docker_daemon: DockerService) -> None:
    options = DockerOptions(
        image=docker_daemon.busybox_image, host=docker_daemon.url, workdir="/workspace/a/b"
    )
    backend = DockerBackend(options)
    try:
        assert run(backend, "cd /workspace/a/b && touch c")[0] == 0
    finally:
        backend.close()
    for path in ("/", "/etc", "/workspace/../etc", "/workspaces"):
        with pytest.raises(RequestError, match="/workspace or below"):
            DockerOptions(image="x", workdir=path)


def test_an_image_that_is_nowhere_is_reported(docker_daemon: DockerService) -> None:
    backend = DockerBackend(DockerOptions(image="coderig-test-missing:none", host=docker_daemon.url))
    with pytest.raises(BackendError, match="coderig-test-missing:none is not here and cannot be pulled"):
        backend.start()
    backend.close()


def test_a_daemon_that_is_not_there_is_reported(tmp_path: Path) -> None:
    backend = DockerBackend(DockerOptions(image="x", host=f"unix://{tmp_path}/none.sock"))
    with pytest.raises(PlaceUnavailable, match="no Docker daemon answers at unix://"):
        backend.start()
    backend.close()


@pytest.mark.spec("DK-10")
def test_close_removes_the_container_and_a_second_close_does_nothing(
    docker_daemon: DockerService, client: docker.DockerClient
) -> None:
    backend = DockerBackend(DockerOptions(image=docker_daemon.busybox_image, host=docker_daemon.url))
    backend.start()
    identity = backend.container_id
    backend.close()
    backend.close()
    assert identity not in [found.id for found in client.containers.list(all=True)]


def test_a_container_that_cannot_start_is_not_left_behind(
    docker_daemon: DockerService, client: docker.DockerClient
) -> None:
    before = {found.id for found in client.containers.list(all=True)}
    options = DockerOptions(image=docker_daemon.busybox_image, host=docker_daemon.url, user="no-such-user")
    backend = DockerBackend(options)
    with pytest.raises(BackendError, match="no-such-user"):
        backend.start()
    backend.close()
    assert {found.id for found in client.containers.list(all=True)} <= before


# ---- faults ------------------------------------------------------------------------------------


@pytest.mark.spec("DKB-09")
@pytest.mark.parametrize(("fault", "words"), [("kill", "exited with 137"), ("remove", "remov|exited|dead")])
def test_a_container_that_dies_under_a_program_is_an_error_not_an_end(
    fresh: DockerBackend, client: docker.DockerClient, fault: str, words: str
) -> None:
    process = start(fresh, "sh", "-c", "echo begun; sleep 60")
    read_until(process, b"begun\n")
    container = client.containers.get(str(fresh.container_id))
    if fault == "kill":
        container.kill()
    else:
        container.remove(force=True)
    with pytest.raises(PlaceUnavailable, match=words):
        read_all(process)
    with pytest.raises(PlaceUnavailable, match=words):
        start(fresh, "true")
    process.close()


@pytest.mark.spec("DKB-09")
def test_a_paused_container_is_told_instead_of_waited_for(
    fresh: DockerBackend, client: docker.DockerClient
) -> None:
    process = start(fresh, "sh", "-c", "echo begun; sleep 60")
    read_until(process, b"begun\n")
    container = client.containers.get(str(fresh.container_id))
    container.pause()
    try:
        with pytest.raises(PlaceUnavailable, match="paused"):
            status(process)
        with pytest.raises(PlaceUnavailable, match="paused"):
            start(fresh, "true")
        assert fresh.status() == "paused"
    finally:
        container.unpause()
    process.close()


@pytest.mark.spec("SX-18")
def test_stop_ends_programs_at_once_keeps_files_and_start_goes_on(fresh: DockerBackend) -> None:
    assert run(fresh, "echo kept >/workspace/file")[0] == 0
    began = time.monotonic()
    fresh.stop()
    fresh.stop()
    assert time.monotonic() - began < 5, "the first process did not end at TERM"
    assert fresh.status().startswith("exited")
    fresh.start()
    fresh.start()
    assert run(fresh, "cat /workspace/file") == (0, b"kept\n", b"")


@pytest.mark.spec("DKB-10")
def test_processes_that_nobody_waits_for_do_not_pile_up(fresh: DockerBackend) -> None:
    for _ in range(5):
        run(fresh, "i=0; while [ $i -lt 20 ]; do (true &) ; i=$((i+1)); done")
    assert run(fresh, "cat /proc/[0-9]*/stat | grep -c ' Z '")[1] == b"0\n"
