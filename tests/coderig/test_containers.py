"""The commands about containers that are there, against the real daemon."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest
from coderig_kit import Cli
from devcontainer_kit import Dev, opened
from services.docker_service import DockerService

pytestmark = [pytest.mark.docker, pytest.mark.timeout(120)]


@pytest.fixture
def dev(cli: Cli, docker_daemon: DockerService) -> Iterator[Dev]:
    """A workspace with a dev container that runs."""
    with opened(cli, docker_daemon.url) as made:
        (cli.work / "coderig.toml").write_text(
            f'image = "{docker_daemon.debian_image}"\npost_create = "echo made; echo err >&2"\n'
        )
        made.ready()
        yield made


@pytest.mark.spec("DC-40")
def test_ls_shows_what_there_is_and_what_is_gone(dev: Dev) -> None:
    (name,) = dev.made
    (row,) = (each for each in dev.run("ls", "--json").lines if each["name"] == name)
    assert (row["state"], row["directory"]) == ("running", str(dev.cli.work))
    dev.container().kill()
    assert f"{name}  exited with 137" in dev.run("ls").out
    dev.container().remove()
    (row,) = (each for each in dev.run("ls", "--json").lines if each["name"] == name)
    assert row["state"] == "absent"


@pytest.mark.spec("DC-41")
def test_status_is_0_only_where_the_container_runs_and_is_as_its_file_says(dev: Dev) -> None:
    good = dev.run("status", "--json")
    assert (good.code, json.loads(good.out)["state"]) == (0, "running")
    assert dev.run("stop").code == 0
    stopped = dev.run("status")
    assert stopped.code == 1
    assert "exited" in stopped.out
    assert dev.run("start").code == 0
    assert dev.run("status").code == 0
    with (dev.cli.work / "coderig.toml").open("a") as file:
        file.write("pids = 99\n")
    changed = dev.run("status")
    assert changed.code == 1
    assert "changed    pids_limit: was 128, now 99" in changed.out
    started = dev.run("start")
    assert started.code == 0
    assert "`coderig diff` shows how" in started.err
    (dev.cli.work / "coderig.toml").unlink()
    lost = dev.run("status")
    assert lost.code == 1
    assert "no file" in lost.out
    assert dev.inside("echo still") == "still\n"


@pytest.mark.spec("DC-42")
def test_a_target_is_a_directory_or_below_it_or_a_name(dev: Dev) -> None:
    (name,) = dev.made
    (dev.cli.work / "a/b").mkdir(parents=True)
    for target in (str(dev.cli.work), "a/b", name, "."):
        assert dev.run("status", target).code == 0
    assert dev.run("exec", "--place", f"dev:{name}", "pwd").out == "/workspace\n"
    assert dev.run("exec", "--place", "dev:a/b", "pwd").out == "/workspace\n"
    for target in ("no-such", "/"):
        wrong = dev.run("status", target)
        assert wrong.code == 2
        assert "coderig" in wrong.err
    assert dev.run("exec", "--place", "dev:/", "true").code == 2


@pytest.mark.spec("DC-43")
def test_exec_in_the_dev_container_is_like_exec_in_any_place(dev: Dev) -> None:
    done = dev.cli.run(
        "exec",
        "--place",
        "dev",
        "--stdin",
        "--env",
        "A=b",
        "cat; echo $A; echo err >&2; exit 7",
        input="in\n",
    )
    assert (done.code, done.out, done.err) == (7, "in\nb\n", "err\n")
    dev.run("stop")
    assert dev.inside("echo up again") == "up again\n"
    dev.container().pause()
    try:
        paused = dev.run("exec", "--place", "dev", "true")
        assert (paused.code, paused.out) == (125, "")
        assert "paused" in paused.err
    finally:
        dev.container().unpause()


@pytest.mark.spec("DC-44")
def test_rm_removes_the_container_and_what_is_kept_and_leaves_the_directory(dev: Dev) -> None:
    (name,) = dev.made
    removed = dev.run("rm")
    assert (removed.code, removed.out) == (0, f"{name} is removed\n")
    assert dev.client.containers.list(all=True, filters={"name": name}) == []
    assert (dev.cli.work / "coderig.toml").exists()
    again = dev.run("rm")
    assert again.code == 2
    assert "coderig up" in again.err
    for command in ("status", "stop", "start", "diff", "logs"):
        assert dev.run(command).code == 2


@pytest.mark.spec("DC-45")
def test_logs_show_what_the_commands_have_printed_and_how_they_ended(dev: Dev) -> None:
    out = dev.run("logs").out
    assert "postCreate: echo made; echo err >&2\n" in out
    assert "made\n" in out
    assert "err\n" in out
    assert "postCreate ended with exit code 0\n" in out
    assert dev.run("logs", "--tail", "1").out == "== postCreate ended with exit code 0\n"


@pytest.mark.spec("DC-46")
def test_cp_copies_files_and_trees_both_ways_with_their_modes(dev: Dev) -> None:
    outside = dev.cli.home
    tree = outside / "tree"
    (tree / "sub dir").mkdir(parents=True)
    (tree / "sub dir" / "x").write_bytes(b"\0\xff")
    (tree / "run").write_text("#!/bin/sh\necho ran\n")
    (tree / "run").chmod(0o755)
    assert dev.run("cp", str(tree), ":/tmp").code == 0
    assert dev.inside("/tmp/tree/run") == "ran\n"
    assert dev.run("cp", ":/tmp/tree", str(outside / "back")).code == 0
    assert (outside / "back/sub dir/x").read_bytes() == b"\0\xff"
    assert (outside / "back/run").stat().st_mode & 0o777 == 0o755
    (name,) = dev.made
    assert dev.run("cp", f"{name}:/tmp/tree/run", str(outside)).code == 0
    assert (outside / "run").read_text() == "#!/bin/sh\necho ran\n"
    (tree / "link").symlink_to("run")
    linked = dev.run("cp", str(tree), ":/tmp/second")
    assert linked.code == 1
    assert "tree/link" in linked.err
    assert dev.run("cp", str(tree / "missing"), ":x").code == 2
    assert dev.run("cp", ":/tmp/missing", ".").code == 1
    assert dev.run("cp", "a", "b").code == 2
    assert dev.run("cp", ":a", ":b").code == 2


@pytest.mark.spec("DC-47")
def test_gc_removes_what_nobody_can_use_and_nothing_that_runs(dev: Dev) -> None:
    (name,) = dev.made
    other = dev.cli.work.with_name("other")
    shutil.copytree(dev.cli.work, other)
    made = json.loads(dev.run("up", str(other), "--json").out.splitlines()[-1])
    dev.made.add(made["name"])
    shutil.rmtree(other)
    assert dev.run("gc").out == ""
    dev.run("stop", made["name"])
    would = dev.run("gc", "--dry-run", "--json").lines
    assert [(row["name"], row["kind"], row["removed"]) for row in would] == [
        (made["name"], "container", False)
    ]
    assert dev.run("gc").out == f"removed container {made['name']}: {other} is gone\n"
    assert dev.client.containers.list(all=True, filters={"name": made["name"]}) == []
    assert dev.client.containers.get(name).status == "running"
    dev.client.containers.get(name).remove(force=True)
    (row,) = dev.run("gc", "--json").lines
    assert (row["name"], row["kind"]) == (name, "record")
    assert dev.run("gc").out == ""


@pytest.mark.spec("DC-48")
def test_what_is_kept_is_only_for_its_owner(dev: Dev) -> None:
    kept = dev.cli.home / "state/containers"
    assert kept.stat().st_mode & 0o777 == 0o700
    modes = {path.suffix: path.stat().st_mode & 0o777 for path in kept.iterdir()}
    assert modes == {".json": 0o600, ".log": 0o600, ".lock": 0o600}
    (path,) = kept.glob("*.json")
    path.write_text("{")
    broken = dev.run("up")
    assert broken.code == 1
    assert str(path) in broken.err


@pytest.mark.spec("DC-49")
def test_two_ups_at_once_make_one_container(dev: Dev) -> None:
    dev.run("rm")
    both = [dev.cli.start("up", "--json") for _ in range(2)]
    outs = [process.communicate(timeout=60)[0] for process in both]
    ends = [json.loads(out.splitlines()[-1]) for out in outs]
    assert [end["exit_code"] for end in ends] == [0, 0]
    assert {end["status"] for end in ends} == {"made", "ready"}
    assert len({end["id"] for end in ends}) == 1


@pytest.mark.spec("DC-47")
def test_gc_removes_a_temporary_container_once_its_process_is_gone(
    dev: Dev, docker_daemon: DockerService
) -> None:
    process = dev.cli.start("exec", "--place", f"docker://{docker_daemon.debian_image}", "echo up; sleep 300")
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    rows = dev.run("ls", "--json").lines
    names = {row["name"] for row in rows if not row["directory"]}
    assert not any(row["name"] in names for row in dev.run("gc", "--dry-run", "--json").lines)
    process.kill()
    process.communicate(timeout=30)
    went = {row["name"] for row in dev.run("gc", "--json").lines}
    assert went & names
    left = {row["name"] for row in dev.run("ls", "--json").lines}
    assert not went & left
    assert dev.made <= left
