"""`coderig demo`, in every place."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from coderig_kit import ROOT, Cli, command
from services.docker_service import DockerService
from services.ssh_service import SshService

from coderig.place import parse_place
from sandbox import Sandbox


def check_demo(cli: Cli, *arguments: str, env: dict[str, str] | None = None) -> str:
    done = cli.run("demo", *arguments, env=env)
    assert done.code == 0, done
    story = done.out
    order = [
        "real but the model's words",
        "refused by the rule",
        "FAILED (failures=2)",
        "~ apply_patch",
        "\n  OK\n",
        "What changed:",
        "-    share = total_cents // people",
        "+    share, odd_cents = divmod(total_cents, people)",
        "The tests pass",
    ]
    at = 0
    for words in order:
        at = story.find(words, at)
        assert at >= 0, (words, story)
    return story


@pytest.mark.spec("CLI-100")
def test_the_demo_repairs_the_project_and_leaves_nothing_behind(cli: Cli, tmp_path: Path) -> None:
    spare = tmp_path / "spare"
    spare.mkdir()
    check_demo(cli, env={"TMPDIR": str(spare)})
    assert list(spare.iterdir()) == []
    assert list(cli.work.iterdir()) == []
    assert "completed" in cli.run("runs").out


@pytest.mark.spec("CLI-100")
def test_the_demo_keeps_the_project_if_asked(cli: Cli, tmp_path: Path) -> None:
    story = check_demo(cli, "--keep", env={"TMPDIR": str(tmp_path)})
    found = re.search(r"The project stays in (\S+)\.\n", story)
    assert found is not None
    tests = subprocess.run(["python3", "-m", "unittest"], cwd=found[1], capture_output=True)
    assert tests.returncode == 0


@pytest.mark.spec("CLI-101")
def test_the_demo_shows_its_diff_without_git(cli: Cli, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for folder in ("/usr/bin", "/usr/sbin"):
        for program in Path(folder).iterdir():
            link = programs / program.name
            if program.name != "git" and not link.is_symlink():
                link.symlink_to(program)
    story = check_demo(cli, env={"PATH": str(programs), "TMPDIR": str(tmp_path)})
    assert "diff -ru" in story


@pytest.mark.spec("CLI-102")
def test_the_demo_is_not_green_because_a_model_says_so(cli: Cli, tmp_path: Path) -> None:
    lazy = cli.script(["I repaired it, believe me."])
    done = cli.run("demo", "--model", lazy, env={"TMPDIR": str(tmp_path)})
    assert done.code == 1
    assert "The tests still fail" in done.out


@pytest.mark.spec("CLI-102")
def test_the_demos_policy_is_asked_about_a_real_models_commands(cli: Cli, tmp_path: Path) -> None:
    eager = cli.script([command("curl http://127.0.0.1:9/", id="c1"), "Done."])
    done = cli.run("demo", "--model", eager, env={"TMPDIR": str(tmp_path)})
    assert done.code == 3
    assert "curl" in done.err


@pytest.mark.spec("CLI-103")
def test_with_ask_a_person_decides_and_without_one_the_demo_pauses(cli: Cli, tmp_path: Path) -> None:
    cli.env["TMPDIR"] = str(tmp_path)
    alone = cli.run("demo", "--ask")
    assert alone.code == 3
    assert "coderig resume" in alone.err
    screen = cli.terminal("demo", "--ask")
    for shown in ("python3 -m unittest", "divmod", "python3 -m unittest"):
        screen.expect("run it? ")
        assert shown in screen.seen
        screen.type("y\n")
    assert screen.end() == 0


@pytest.mark.spec("CLI-104")
@pytest.mark.ssh
def test_the_demo_over_ssh(cli: Cli, ssh_service: SshService) -> None:
    check_demo(cli, "--place", ssh_service.place())


@pytest.mark.spec("CLI-104")
@pytest.mark.docker
def test_the_demo_in_a_container_that_goes_afterwards(cli: Cli, docker_daemon: DockerService) -> None:
    env = {"DOCKER_HOST": docker_daemon.url}
    check_demo(cli, "--place", f"docker://{docker_daemon.debian_image}", env=env)
    assert containers(docker_daemon, cli.only_id) == []


@pytest.mark.spec("CLI-105")
@pytest.mark.docker
def test_an_image_without_python_is_told_so(cli: Cli, docker_daemon: DockerService) -> None:
    env = {"DOCKER_HOST": docker_daemon.url}
    done = cli.run("demo", "--place", f"docker://{docker_daemon.busybox_image}", env=env)
    assert done.code == 1
    assert "no python3" in done.err
    assert containers(docker_daemon, re.findall("This is the run ([0-9a-f]{8})", done.out)[0]) == []


@pytest.mark.spec("CLI-106")
@pytest.mark.docker
def test_a_run_that_pauses_keeps_its_container_until_it_is_complete(
    cli: Cli, docker_daemon: DockerService
) -> None:
    cli.env["DOCKER_HOST"] = docker_daemon.url
    model = cli.script([command("echo one >>log", id="c1"), command("cat log", id="c2"), "Done."])
    place = f"docker://{docker_daemon.debian_image}"
    assert cli.run("run", "x", "--place", place, "--model", model).code == 3
    assert cli.run("resume", "last", "--approve", "c1").code == 3
    assert len(containers(docker_daemon, cli.only_id)) == 1
    done = cli.run("resume", "last", "--approve", "c2")
    assert done.code == 0
    assert "  one\n" in done.out
    assert containers(docker_daemon, cli.only_id) == []


@pytest.mark.spec("CLI-23")
@pytest.mark.docker
def test_a_run_that_is_forgotten_takes_its_container_along(cli: Cli, docker_daemon: DockerService) -> None:
    cli.env["DOCKER_HOST"] = docker_daemon.url
    place = f"docker://{docker_daemon.busybox_image}"
    model = cli.script([command("true"), {"error": {"message": "out of order"}}])
    assert cli.run("run", "x", "--place", place, "--model", model, "--yes").code == 1
    run_id = cli.only_id
    assert len(containers(docker_daemon, run_id)) == 1
    assert cli.run("forget", run_id).code == 0
    assert containers(docker_daemon, run_id) == []


def containers(service: DockerService, run_id: str) -> list[str]:
    import docker

    client = docker.DockerClient(base_url=service.url)
    try:
        every = client.containers.list(all=True, filters={"name": f"coderig-run-{run_id}"})
        return [str(each.name) for each in every]
    finally:
        client.close()


def test_the_demo_is_part_of_the_package() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    assert '"coderig.demo"' in text
    assert isinstance(parse_place("local").open(), Sandbox)
